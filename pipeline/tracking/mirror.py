"""tracking=wandb, seen from a process that trains or fits: the mirror is another process, so that none waits for wandb.

wandb gets a copy of the files of a study, never the other way round. Whatever happens to it (no network, a server
that hangs, a wandb that does not start) costs a warning and a bounded wait; `cptlaw track sync` makes up for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from pipeline.question.schema import Question, TrackingConfig
from pipeline.study.folder import PlannedRun, Study

OF_A_SWEEP = ("WANDB_RUN_ID", "WANDB_SWEEP_ID", "WANDB_SWEEP_PARAM_PATH", "WANDB_RESUME")
"""What a sweep's agent gives the run that it asked for; the runs of the study are others."""


class Mirror:
    """The process that copies what this one trains into wandb; of tracking=none nothing."""

    def __init__(self, study: Study, tracking: TrackingConfig) -> None:
        self._study, self._tracking = study, tracking
        self._process: subprocess.Popen[bytes] | None = None
        if tracking.kind == "none":
            return
        try:
            # A session of its own: what asks this process to stop must not cut off the last lines.
            self._process = subprocess.Popen(
                _program("follow", study, tracking),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                env=environment(study),
                start_new_session=True,
            )
        except OSError as error:
            warn(f"not tracked: {error}")
            return
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)

    def begin(self, run: PlannedRun, attempt: int) -> None:
        """Say that this process trains a run from now on, as which attempt."""
        if self._process is None:
            return
        metrics = self._study.runs / run.name / "metrics.jsonl"
        written = metrics.stat().st_size if metrics.exists() else 0
        word = {"run": run.name, "role": run.role, "model": run.model, "attempt": attempt, "metrics": written}
        assert self._process.stdin is not None
        try:
            # Unbuffered and whole or not at all: a mirror that hangs fills the pipe, and is then given up.
            os.write(self._process.stdin.fileno(), (json.dumps(word) + "\n").encode())
        except OSError:
            self.end(0.0)

    def end(self, seconds: float | None = None) -> None:
        """Let the mirror finish what it has, for so many seconds at most; None: tracking.wait."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(self._tracking.wait if seconds is None else seconds)
        except subprocess.TimeoutExpired:
            end_group(process)
            warn(f"wandb did not end in time and was left; cptlaw track sync {self._study.folder} makes up for it")


NO_MIRROR = Mirror(Study(Path()), TrackingConfig())
"""Of tracking=none."""


@contextlib.contextmanager
def mirrored(study: Study, question: Question, first: bool = True) -> Iterator[Mirror]:
    """A mirror for the length of a block; of several processes that train a run only the first has one."""
    mirror = Mirror(study, question.tracking if first else TrackingConfig())
    try:
        yield mirror
    finally:
        mirror.end()


def track_answer(study: Study, question: Question) -> None:
    """Copy fits, answer and report of a study into wandb as a run of their own; waits tracking.wait seconds at most."""
    tracked(study, question.tracking, "answer")


def track_job(study: Study, question: Question, runs: list[str], exit_code: int, objective: float | None) -> None:
    """Tell a sweep how the job that its agent asked for ended; one that was stopped is given out again."""
    told = [] if objective is None else ["--objective", repr(objective)]
    tracked(study, question.tracking, "job", *runs, "--exit-code", str(int(exit_code)), *told)


def tracked(study: Study, tracking: TrackingConfig, what: str, *more: str) -> None:
    """Run a word of the mirror's program to its end, or for tracking.wait seconds."""
    if tracking.kind == "none":
        return
    # The job's own run is the agent's: its environment stays.
    surroundings = environment(study, of_agent=what == "job")
    try:
        process = subprocess.Popen(
            [*_program(what, study, tracking), *more],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=surroundings,
            start_new_session=True,
        )
    except OSError as error:
        warn(f"not tracked: {error}")
        return
    try:
        process.wait(tracking.wait)
    except subprocess.TimeoutExpired:
        warn(f"wandb did not end in time and was left; cptlaw track sync {study.folder} makes up for it")
    finally:
        end_group(process)


def environment(study: Study, *, of_agent: bool = False) -> dict[str, str]:
    """The environment of a process that talks to wandb: what it stages and caches stays in the study."""
    place = study.folder.resolve() / "wandb"
    inherited = {name: value for name, value in os.environ.items() if of_agent or name not in OF_A_SWEEP}
    own = {"WANDB_DATA_DIR": str(place / "data"), "WANDB_CACHE_DIR": str(place / "cache")}
    # Loading torch or opening many threads beside a training process would slow it down.
    return {**own, **inherited, "OMP_NUM_THREADS": "1"}


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process with all that it started, wandb's own service too."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def warn(line: str) -> None:
    """One line on stderr; tracking has no other way to fail."""
    print(f"tracking: {line}", file=sys.stderr, flush=True)


def _program(what: str, study: Study, tracking: TrackingConfig) -> list[str]:
    said = json.dumps(asdict(tracking))
    return [sys.executable, "-m", "pipeline.tracking.mirror_process", what, str(Path(study.folder).resolve()), said]
