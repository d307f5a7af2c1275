"""launcher=local: worker processes on this machine, and their progress on the terminal."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from pipeline.question.schema import Question
from pipeline.study.folder import PlannedRun, Study
from pipeline.study.status import RunStatus, statuses
from training.run import Exit

_LINE_SECONDS = 15.0


def train_locally(study: Study, question: Question, console: Console, only: Collection[str] | None = None) -> Exit:
    """Train the plan, or the runs of it named in `only`, with worker processes side by side until nothing is left.

    Ctrl-C lets every worker save; the same command goes on from there.

    Returns:
        DONE, CRASH when a run failed, RUN_ME_AGAIN when stopped, INPUT_MISSING when a worker found its input wrong.
    """
    plan = [run for run in study.read_plan() if only is None or run.name in only]
    if all(study.state(run) == "done" for run in plan):
        console.print(f"all {len(plan)} runs of the plan are done")
        return Exit.DONE
    # What is done does not need processes, and a worker without a run to take only costs its start.
    count = min(workers(question), sum(study.state(run) == "open" for run in plan))
    (study.folder / "logs").mkdir(exist_ok=True)
    more = [] if only is None else ["--only", ",".join(only)]
    processes = [_start(study, question, number, more) for number in range(count)]
    try:
        with _Watch(plan, console) as watch:
            restarts = 0
            while True:
                # Polled before the states are read: a dead process that nobody has asked about still counts as alive.
                died = [number for number, process in enumerate(processes) if _died(process)]
                now = statuses(study, plan)
                watch.show(now)
                if died and any(row.state == "interrupted" for row in now) and restarts < 3 * len(plan):
                    # What it was training is open again; the number of attempts on a run bounds the retries.
                    processes[died[0]] = _start(study, question, died[0], more)
                    restarts += 1
                if all(process.poll() is not None for process in processes):
                    break
                time.sleep(0.5)
            watch.show(statuses(study, plan))
    except KeyboardInterrupt:
        console.print("stopping: each run saves its state ...")
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
        return Exit.RUN_ME_AGAIN
    codes = [process.returncode for process in processes]
    if any(code in (Exit.INPUT_MISSING, Exit.BAD_CONFIGURATION) for code in codes):
        return Exit.INPUT_MISSING
    if Exit.RUN_ME_AGAIN in codes:
        return Exit.RUN_ME_AGAIN
    return Exit.DONE if all(study.state(run) == "done" for run in plan) else Exit.CRASH


def workers(question: Question) -> int:
    """How many runs go side by side: as asked, or as many as there are GPUs or cores for."""
    processes, threads = question.parallel.processes, question.launcher.threads
    room = len(_gpus()) // processes if _gpus() else len(os.sched_getaffinity(0)) // (threads * processes)
    return question.launcher.workers or max(1, room)


@functools.cache
def _gpus() -> list[str]:
    """What CUDA_VISIBLE_DEVICES says, or all GPUs of this machine; asked without loading torch."""
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [name for name in visible.split(",") if name.strip()]
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [str(number) for number in range(listed.count("GPU "))]


def _own_gpus(number: int, processes: int) -> dict[str, str]:
    """The GPUs of a worker, as its environment; workers beyond the last GPU share from the first on."""
    gpus = _gpus()
    if len(gpus) <= processes:
        return {}
    first = number % (len(gpus) // processes) * processes
    return {"CUDA_VISIBLE_DEVICES": ",".join(gpus[first : first + processes])}


def _died(process: subprocess.Popen[bytes]) -> bool:
    # Below 0: a signal.
    return process.poll() is not None and (process.returncode < 0 or process.returncode == Exit.UNEXPECTED)


def _start(study: Study, question: Question, number: int, more: list[str]) -> subprocess.Popen[bytes]:
    threads = str(question.launcher.threads)
    environment = os.environ | {
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "TOKENIZERS_PARALLELISM": "0",
        **_own_gpus(number, question.parallel.processes),
    }
    command = [sys.executable, "-m", "pipeline.launch.worker", str(study.folder)]
    command += ["--number", str(number), "--parent", str(os.getpid()), *more]
    with open(study.folder / "logs" / f"worker-{number}.log", "ab") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)


class _Watch:
    """Bars on a terminal, plain lines in a log."""

    def __init__(self, plan: list[PlannedRun], console: Console) -> None:
        self._console = console
        self._tokens = sum(run.spec.tokens for run in plan)
        self._told: set[str] = set()
        self._last_line = 0.0
        self._first = True
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("runs"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bars.add_task("training", total=len(plan))

    def __enter__(self) -> _Watch:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def show(self, now: list[RunStatus]) -> None:
        tokens = sum(status.step * status.run.spec.tokens_per_step for status in now)
        done = sum(status.state == "done" for status in now)
        running = [
            f"{status.run.name} {status.step}/{status.run.spec.steps}" for status in now if status.state == "running"
        ]
        self._bars.update(
            self._task,
            # By tokens, since runs differ a hundredfold in length; shown as runs.
            completed=tokens / self._tokens * len(now),
            description="training " + (f"{len(running)} at once" if running else ""),
        )
        for status in now:
            if status.state in ("done", "failed") and status.run.name not in self._told:
                self._told.add(status.run.name)
                if not self._first or status.state == "failed":
                    self._console.print(f"{status.state:7} {status.run.name}  {status.detail}", highlight=False)
        if not self._console.is_terminal and time.monotonic() - self._last_line > _LINE_SECONDS:
            self._last_line = time.monotonic()
            share = tokens / self._tokens
            self._console.print(
                f"{done}/{len(now)} runs, {share:.0%} of the tokens; {'; '.join(running)}",
                highlight=False,
                soft_wrap=True,
            )
        self._first = False


def last_log_line(study: Study) -> str:
    """The last line that a worker wrote, to say why it ended."""
    lines = [
        line
        for path in sorted(Path(study.folder / "logs").glob("worker-*.log"), key=lambda path: path.stat().st_mtime)
        for line in path.read_text(errors="replace").splitlines()
        if line.strip()
    ]
    return lines[-1] if lines else ""
