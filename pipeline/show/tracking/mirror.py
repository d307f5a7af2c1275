"""Mirror a study to wandb from a separate process, with a time-out.

wandb gets a copy of the files of a study. Without network, with a server that hangs, or if wandb does not start, the
cost is a warning and a bounded wait; `cptlaw track sync` copies the rest later. docs/negative-results.md has
measurements of wandb inside the training process.
"""

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
"""Environment of the wandb run of a sweep's agent; the runs of the study are others."""


class Mirror:
    """The process that copies the runs of this one into wandb; with tracking=none it does nothing."""

    def __init__(self, study: Study, tracking: TrackingConfig) -> None:
        self._study, self._tracking = study, tracking
        self._process = _start("follow", study, tracking)
        if self._process is not None and self._process.stdin is not None:
            os.set_blocking(self._process.stdin.fileno(), False)

    def begin(self, run: PlannedRun, attempt: int) -> None:
        """Start to copy an attempt, which this process trains from now on."""
        if self._process is None:
            return
        metrics = self._study.runs / run.name / "metrics.jsonl"
        written = metrics.stat().st_size if metrics.exists() else 0
        attempt_of = {"run": run.name, "role": run.role, "model": run.model, "number": attempt, "metrics": written}
        assert self._process.stdin is not None
        try:
            # Unbuffered and atomic: a mirror that hangs fills the pipe, and is then ended.
            os.write(self._process.stdin.fileno(), (json.dumps(attempt_of) + "\n").encode())
        except OSError:
            self.end(0.0)

    def end(self, seconds: float | None = None) -> None:
        """Let the mirror finish, for so many seconds at most; None: tracking.wait."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        _wait(process, self._study, self._tracking.wait if seconds is None else seconds)


@contextlib.contextmanager
def mirrored(study: Study, question: Question, first: bool = True) -> Iterator[Mirror]:
    """A mirror for the length of a block; of several processes that train a run only the first has one."""
    mirror = Mirror(study, question.tracking if first else TrackingConfig())
    try:
        yield mirror
    finally:
        mirror.end()


def track_answer(study: Study, question: Question) -> None:
    """Copy fits, answer and report of a study into a wandb run; waits tracking.wait seconds at most."""
    _run("answer", study, question.tracking, study.answers)


def track_job(study: Study, question: Question, runs: list[str], exit_code: int, objective: float | None) -> None:
    """Report to a sweep how the job of its agent ended; a job that was stopped is given out again."""
    _run("job", study, question.tracking, json.dumps([runs, int(exit_code), objective]))


def _run(task: str, study: Study, tracking: TrackingConfig, *more: str) -> None:
    """Run a task of the mirror's program to its end, or for tracking.wait seconds."""
    if (process := _start(task, study, tracking, *more)) is not None:
        try:
            _wait(process, study, tracking.wait)
        finally:
            _end_group(process)


def _start(task: str, study: Study, tracking: TrackingConfig, *more: str) -> subprocess.Popen[bytes] | None:
    if tracking.kind == "none":
        return None
    program = [sys.executable, "-m", "pipeline.show.tracking.mirror_process", task, str(Path(study.folder).resolve())]
    try:
        # A session of its own: a signal that stops this process must not cut off the last rows.
        return subprocess.Popen(
            [*program, json.dumps(asdict(tracking)), *more],
            stdin=subprocess.PIPE if task == "follow" else subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            # The wandb run of a sweep's job is the agent's, so that its environment stays.
            env=environment(study, of_agent=task == "job"),
            start_new_session=True,
        )
    except OSError as error:
        warn(f"not tracked: {error}")
        return None


def _wait(process: subprocess.Popen[bytes], study: Study, seconds: float) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        _end_group(process)
        warn(f"wandb did not end within {seconds:g} s; copy the rest with cptlaw track sync {study.word}")


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process and its children, wandb's service among them."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def environment(study: Study, *, of_agent: bool = False) -> dict[str, str]:
    """The environment of a process that uses wandb, with wandb's own files in the study."""
    folder = study.folder.resolve() / "wandb"
    inherited = {name: value for name, value in os.environ.items() if of_agent or name not in OF_A_SWEEP}
    own = {"WANDB_DATA_DIR": str(folder / "data"), "WANDB_CACHE_DIR": str(folder / "cache")}
    # Loading torch or opening many threads beside a training process would slow it down.
    return {**own, **inherited, "OMP_NUM_THREADS": "1"}


def warn(line: str) -> None:
    """Print one line on stderr: tracking never stops a run."""
    print(f"tracking: {line}", file=sys.stderr, flush=True)


def reason(error: Exception) -> str:
    """The first line of an error."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


NO_MIRROR = Mirror(Study(Path()), TrackingConfig())
"""What tracking=none does: nothing."""
