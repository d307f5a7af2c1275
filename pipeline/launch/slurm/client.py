"""Slurm's own commands: asked at most once a second, never waited for without end, never through a shell."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.study.folder import StudyError

MARK = "cptlaw:"
"""Before the token in a job's comment, by which a study knows its jobs again, whatever their numbers."""
WAITING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "SUSPENDED", "STOPPED", "PREEMPTED")
RUNNING = ("RUNNING", "CONFIGURING", "COMPLETING", "SIGNALING", "STAGE_OUT", "RESIZING")


class SchedulerError(StudyError):
    """A command of Slurm that is missing, refused or gave no answer; one line."""


@dataclass(frozen=True)
class Seen:
    """What the scheduler says of a job, or of one task of an array."""

    job: str
    """Number of the job or the array."""
    state: str
    """PENDING, RUNNING, COMPLETED, FAILED, ..."""
    reason: str
    """Why it is in that state, in Slurm's word: Priority, Dependency, NonZeroExitCode, ..."""

    @property
    def alive(self) -> bool:
        """Whether it runs or may yet run."""
        return self.state in (*WAITING, *RUNNING) and self.reason != "DependencyNeverSatisfied"


Queue = dict[str, dict[int, Seen]]
"""Token -> index in the array (0 of a job that is none) -> what is seen of it."""


class Scheduler:
    """Slurm as this process sees it."""

    def __init__(self, patience: float = 60.0, interval: float = 1.0) -> None:
        """
        Args:
            patience: seconds after which a command is given up.
            interval: seconds between two commands, and that an answer about the queue is kept.
        """
        self._patience, self._interval = patience, interval
        # When the last command ended, and when the queue was asked for.
        self._last = self._asked = -float("inf")
        self._queue: Queue | None = None
        self._accounting = True

    def submit(self, words: Sequence[str], script: Path) -> str:
        """Number of the job that sbatch makes of a script.

        Raises:
            SchedulerError: sbatch refused, in its own words, or gave no answer: then it may yet have taken the job.
        """
        answer = self._call("sbatch", "--parsable", *words, str(script))
        job = answer.strip().splitlines()[-1].split(";")[0] if answer.strip() else ""
        if not job.isdigit():
            raise SchedulerError(f"sbatch: answered {answer.strip()!r}, not the number of a job")
        self._queue = None
        return job

    def queue(self) -> Queue:
        """This user's jobs of any study, also those that ended a few minutes ago; asked at most once a second.

        Raises:
            SchedulerError: squeue gave no answer.
        """
        if self._queue is None or time.monotonic() - self._asked > self._interval:
            words = ("--noheader", "--me", "--states=all", "--format=%F|%K|%T|%r|%k")
            self._queue = parse_queue(self._call("squeue", *words))
            self._asked = time.monotonic()
        return self._queue

    def ended(self, jobs: Sequence[str]) -> dict[tuple[str, int], Seen]:
        """(job, index) -> how it ended, for jobs that the queue has forgotten; empty where there is no accounting."""
        if not jobs or not self._accounting:
            return {}
        words = ("--noheader", "--parsable2", "--allocations", f"--jobs={','.join(jobs)}", "--format=JobID,State")
        try:
            lines = self._call("sacct", *words).splitlines()
        except SchedulerError:
            self._accounting = False
            return {}
        found = {}
        for line in lines:
            name, _, state = line.partition("|")
            job, _, index = name.partition("_")
            for number in _indices(index):
                # "CANCELLED by 1000"
                found[job, number] = Seen(job, state.split()[0] if state else "", state)
        return found

    def cancel(self, jobs: Sequence[str]) -> None:
        """Cancel jobs; those that have ended already are let be.

        Raises:
            SchedulerError: scancel refused.
        """
        if jobs:
            self._call("scancel", "--quiet", *jobs)
            self._queue = None

    @functools.cached_property
    def largest_array(self) -> int:
        """How many tasks an array may have.

        Raises:
            SchedulerError: scontrol gave no answer.
        """
        found = re.search(r"^MaxArraySize\s*=\s*(\d+)", self._call("scontrol", "show", "config"), re.MULTILINE)
        # 0: arrays are switched off; a job a run is what is left.
        return max(1, int(found.group(1))) if found else 1001

    def _call(self, program: str, *words: str) -> str:
        time.sleep(max(0.0, self._last + self._interval - time.monotonic()))
        try:
            done = subprocess.run(
                [program, *words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self._patience,
                env=environment(os.environ),
                check=False,
            )
        except FileNotFoundError:
            raise SchedulerError(f"{program}: not found; launcher=slurm needs Slurm's commands on the PATH") from None
        except subprocess.TimeoutExpired:
            raise SchedulerError(f"{program}: no answer in {self._patience:g} s") from None
        finally:
            self._last = time.monotonic()
        if done.returncode:
            lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
            raise SchedulerError("; ".join(lines) or f"{program}: ended with {done.returncode}")
        return done.stdout


def parse_queue(text: str) -> Queue:
    """What squeue printed as array job|indices|state|reason|comment, without the jobs that are not cptlaw's.

    >>> parse_queue("7|0-1,4%2|PENDING|Resources|cptlaw:ab")["ab"][4]
    Seen(job='7', state='PENDING', reason='Resources')
    """
    queue: Queue = {}
    for line in text.splitlines():
        fields = line.strip().split("|", 4)
        if len(fields) == 5 and fields[4].startswith(MARK):
            seen = Seen(fields[0], fields[2], fields[3])
            queue.setdefault(fields[4].removeprefix(MARK), {}).update(dict.fromkeys(_indices(fields[1]), seen))
    return queue


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """An environment for Slurm's commands: a job that submits another must not hand on what describes itself."""
    kept = {name: value for name, value in given.items() if not name.startswith("SLURM_") or name == "SLURM_CONF"}
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        kept.pop(name, None)
    # Else squeue shortens the indices of an array to 64 characters.
    return {**kept, "SLURM_BITSTR_LEN": "0"}


def _indices(text: str) -> list[int]:
    numbers: list[int] = []
    for part in text.strip("[]").partition("%")[0].split(","):
        if match := re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part):
            first, last, step = match.groups()
            numbers += range(int(first), int(last or first) + 1, int(step or 1))
    return numbers or [0]
