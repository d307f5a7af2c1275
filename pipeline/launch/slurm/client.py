"""Slurm's commands: at most one call a second, each with a time-out and without a shell."""

import functools
import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.study.context import Context
from pipeline.study.folder import StudyError

MARK = "cptlaw:"
"""Prefix of the token in a job's comment. A study finds its jobs by their tokens, whatever their numbers."""
WAITING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "SUSPENDED", "STOPPED", "PREEMPTED")
RUNNING = ("RUNNING", "CONFIGURING", "COMPLETING", "SIGNALING", "STAGE_OUT", "RESIZING")


class SchedulerError(StudyError):
    """A Slurm command is missing, failed or timed out; one line."""


@dataclass(frozen=True)
class JobState:
    """State of a job, or of one task of an array, in the scheduler, by the number of the job or array."""

    job: str
    state: str
    """PENDING, RUNNING, COMPLETED, FAILED, ..."""
    reason: str
    """Slurm's reason for the state: Priority, Dependency, NonZeroExitCode, ..."""

    @property
    def alive(self) -> bool:
        """Whether it is running or may still start."""
        return self.state in (*WAITING, *RUNNING) and self.reason != "DependencyNeverSatisfied"


Queue = dict[str, dict[int, JobState]]
"""Token -> index in the array (0 for a single job) -> state."""


class Scheduler:
    """Slurm's commands for this process; a method raises SchedulerError where its command fails or times out.

    In seconds: `patience`, time-out of a command; `interval`, between two commands, and life of the cached queue.
    """

    def __init__(self, patience: float = 60.0, interval: float = 1.0) -> None:
        self._patience, self._interval = patience, interval
        # Times of the last command and of the cached queue.
        self._last = self._read = -float("inf")
        self._queue: Queue | None = None
        self._accounting = True

    def submit(self, options: Sequence[str], script: Path) -> str:
        """Submit a script with sbatch; returns the job number. After a time-out the job may have been accepted."""
        answer = self._call("sbatch", "--parsable", *options, str(script))
        job = answer.strip().splitlines()[-1].split(";")[0] if answer.strip() else ""
        if not job.isdigit():
            raise SchedulerError(f"sbatch: the answer {answer.strip()!r} is not a job number")
        self._queue = None
        return job

    def queue(self) -> Queue:
        """This user's jobs of all studies, with those that ended a few minutes ago; read at most once a second."""
        if self._queue is None or time.monotonic() - self._read > self._interval:
            options = ("--noheader", "--me", "--states=all", "--format=%F|%K|%T|%r|%k")
            self._queue = parse_queue(self._call("squeue", *options))
            self._read = time.monotonic()
        return self._queue

    def ended(self, jobs: Sequence[str]) -> dict[tuple[str, int], JobState]:
        """(job, index) -> final state, for jobs no longer in the queue; empty on clusters without accounting."""
        if not jobs or not self._accounting:
            return {}
        options = ("--noheader", "--parsable2", "--allocations", f"--jobs={','.join(jobs)}", "--format=JobID,State")
        try:
            lines = self._call("sacct", *options).splitlines()
        except SchedulerError:
            self._accounting = False
            return {}
        states = {}
        for line in lines:
            name, _, state = line.partition("|")
            job, _, index = name.partition("_")
            # "CANCELLED by 1000"
            state, _, user = state.partition(" by ")
            for number in _indices(index):
                states[job, number] = JobState(job, state, f"by user {user}" if user else "None")
        return states

    def cancel(self, jobs: Sequence[str]) -> None:
        """Cancel jobs; those that have ended are ignored."""
        if jobs:
            self._call("scancel", "--quiet", *jobs)
            self._queue = None

    @functools.cached_property
    def largest_array(self) -> int:
        """Largest number of tasks of an array."""
        match = re.search(r"^MaxArraySize\s*=\s*(\d+)", self._call("scontrol", "show", "config"), re.MULTILINE)
        # 0: arrays are disabled, so each run is a job.
        return max(1, int(match.group(1))) if match else 1001

    def _call(self, program: str, *arguments: str) -> str:
        time.sleep(max(0.0, self._last + self._interval - time.monotonic()))
        try:
            done = subprocess.run(
                [program, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                timeout=self._patience, env=environment(os.environ), check=False,
            )  # fmt: skip
        except FileNotFoundError:
            raise SchedulerError(f"{program}: not found; launcher=slurm needs Slurm's commands on the PATH") from None
        except subprocess.TimeoutExpired:
            raise SchedulerError(f"{program}: no answer within {self._patience:g} s") from None
        finally:
            self._last = time.monotonic()
        if done.returncode:
            lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
            raise SchedulerError("; ".join(lines) or f"{program}: exit code {done.returncode}")
        return done.stdout


def scheduler_of(context: Context) -> Scheduler:
    """The commands for a study; `context.once(scheduler_of)` keeps their rate and what they have read."""
    return Scheduler(context.question.launcher.slurm.patience)


def parse_queue(text: str) -> Queue:
    """The jobs of cptlaw in the output of squeue, whose fields are array job|indices|state|reason|comment.

    >>> parse_queue("7|0-1,4%2|PENDING|Resources|cptlaw:ab")["ab"][4]
    JobState(job='7', state='PENDING', reason='Resources')
    """
    queue: Queue = {}
    for line in text.splitlines():
        fields = line.strip().split("|", 4)
        if len(fields) == 5 and fields[4].startswith(MARK):
            state = JobState(fields[0], fields[2], fields[3])
            queue.setdefault(fields[4].removeprefix(MARK), {}).update(dict.fromkeys(_indices(fields[1]), state))
    return queue


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """An environment for Slurm's commands: without the variables that describe the job that calls them."""
    of_job = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
    of_job |= {name for name in given if name.startswith("SLURM_") and name != "SLURM_CONF"}
    kept = {name: value for name, value in given.items() if name not in of_job}
    # Without it squeue cuts the indices of an array at 64 characters.
    return {**kept, "SLURM_BITSTR_LEN": "0"}


def _indices(text: str) -> list[int]:
    numbers: list[int] = []
    for part in text.strip("[]").partition("%")[0].split(","):
        if match := re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part):
            first, last, step = match.groups()
            numbers += range(int(first), int(last or first) + 1, int(step or 1))
    return numbers or [0]
