"""launcher=local: train with worker processes on this machine, and show their progress."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Collection
from functools import partial
from subprocess import DEVNULL, Popen

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from pipeline.plan.machine import gpus, workers
from pipeline.question.schema import Question
from pipeline.study.context import Context
from pipeline.study.folder import PlannedRun, Study
from pipeline.study.status import RunStatus, print_failed, statuses
from training.run import Exit

_LINE_SECONDS = 15.0


def train(context: Context, console: Console, only: Collection[str] | None) -> Exit:
    """Train as `train_locally`, and say which runs have failed and why."""
    study, code = context.study, train_locally(context.study, context.question, console, only)
    if code == Exit.CRASH:
        print_failed(study, [run for run in context.plan if study.state(run) == "failed"], console)
    if code in (Exit.CRASH, Exit.INPUT_MISSING) and (line := last_log_line(study)):
        console.print(f"last line of the workers' logs: {line}", highlight=False, markup=False)
    return code


def train_locally(study: Study, question: Question, console: Console, only: Collection[str] | None = None) -> Exit:
    """Train the plan, or the runs named in `only`, with parallel worker processes.

    Ctrl-C makes every worker save; the same command continues from there. The exit code is DONE, CRASH when a run
    failed, RUN_ME_AGAIN when stopped, or INPUT_MISSING when the input of a worker is wrong.
    """
    plan = [run for run in study.read_plan() if only is None or run.name in only]
    if all(study.state(run) == "done" for run in plan):
        console.print(f"all {len(plan)} runs of the plan are done")
        return Exit.DONE
    stop_file = study.folder / "STOP"
    if stop_file.exists():
        line = "this file stops every run: remove it and give the same command again"
        console.print(f"{stop_file}: {line}", markup=False)
        return Exit.RUN_ME_AGAIN
    # A worker without a run to take only costs its start.
    count = min(workers(question), sum(study.state(run) == "open" for run in plan))
    (study.folder / "logs").mkdir(exist_ok=True)
    start = partial(_start, study, question, [] if only is None else ["--only", ",".join(only)])
    processes = [start(number) for number in range(count)]
    try:
        with _ProgressDisplay(plan, console) as display:
            _watch(processes, start, partial(statuses, study, plan, question.launcher.stale_after), display)
    except KeyboardInterrupt:
        console.print("stopping: each run saves its state ...")
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
        return Exit.RUN_ME_AGAIN
    codes = [process.returncode for process in processes]
    if {Exit.INPUT_MISSING, Exit.BAD_CONFIGURATION} & {*codes}:
        return Exit.INPUT_MISSING
    if Exit.RUN_ME_AGAIN in codes:
        return Exit.RUN_ME_AGAIN
    return Exit.DONE if all(study.state(run) == "done" for run in plan) else Exit.CRASH


def _watch(
    processes: list[Popen[bytes]],
    start: Callable[[int], Popen[bytes]],
    read: Callable[[], list[RunStatus]],
    display: _ProgressDisplay,
) -> None:
    """Show progress until all workers have exited; a worker that died during a run is started again."""
    restarts = 0
    while True:
        # Polled before the states are read: a dead process without a poll still counts as alive.
        dead = [number for number, process in enumerate(processes) if _died(process)]
        rows = read()
        display.show(rows)
        if dead and any(row.state == "interrupted" for row in rows) and restarts < 3 * len(rows):
            # Its run is open again. launcher.retries limits how often a run is tried.
            processes[dead[0]] = start(dead[0])
            restarts += 1
        if all(process.poll() is not None for process in processes):
            break
        time.sleep(0.5)
    display.show(read())


def _died(process: Popen[bytes]) -> bool:
    # Negative codes are signals.
    return process.poll() is not None and (process.returncode < 0 or process.returncode == Exit.UNEXPECTED)


def _start(study: Study, question: Question, selection: list[str], number: int) -> Popen[bytes]:
    variables = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(question.launcher.threads))
    environment = os.environ | variables | {"TOKENIZERS_PARALLELISM": "0"}
    visible, processes = gpus(), question.parallel.processes
    if len(visible) > processes:
        # With more workers than GPUs several workers use one.
        first = number % (len(visible) // processes) * processes
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(visible[first : first + processes])
    command = [sys.executable, "-m", "pipeline.launch.worker", str(study.folder)]
    command += ["--number", str(number), "--parent", str(os.getpid()), *selection]
    with open(study.folder / "logs" / f"worker-{number}.log", "ab") as log:
        return Popen(command, stdin=DEVNULL, stdout=log, stderr=log, env=environment)


class _ProgressDisplay:
    """A progress bar on a terminal, plain lines in a log."""

    def __init__(self, plan: list[PlannedRun], console: Console) -> None:
        self._console = console
        self._tokens = sum(run.spec.tokens for run in plan)
        self._shown: set[str] = set()
        self._last_time, self._last_line = 0.0, ""
        self._first = True
        columns = (
            *(TextColumn("{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn(), TextColumn("runs")),
            *(TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()),
        )
        self._bars = Progress(*columns, console=console, disable=not console.is_terminal)
        self._task = self._bars.add_task("training", total=len(plan))

    def __enter__(self) -> _ProgressDisplay:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def show(self, rows: list[RunStatus]) -> None:
        trained = sum(row.step * row.run.spec.tokens_per_step for row in rows) / self._tokens
        running = [f"{row.run.name} {row.step}/{row.run.spec.steps}" for row in rows if row.state == "running"]
        self._bars.update(
            self._task,
            # By tokens, since runs differ a hundredfold in length; shown as runs.
            completed=trained * len(rows),
            description="training " + (f"{len(running)} in parallel" if running else ""),
        )
        for row in rows:
            if row.state in ("done", "failed") and row.run.name not in self._shown:
                self._shown.add(row.run.name)
                if not self._first or row.state == "failed":
                    self._console.print(f"{row.state:7} {row.run.name}  {row.detail}", highlight=False)
        if not self._console.is_terminal and time.monotonic() - self._last_time > _LINE_SECONDS:
            self._last_time = time.monotonic()
            done = sum(row.state == "done" for row in rows)
            line = f"{done}/{len(rows)} runs, {trained:.0%} of the tokens; {'; '.join(running)}"
            if line != self._last_line:
                self._console.print(line, highlight=False, soft_wrap=True)
            self._last_line = line
        self._first = False


def last_log_line(study: Study) -> str:
    """The last line in the workers' logs, which gives the reason of a failure; empty if there is none."""
    logs = sorted((study.folder / "logs").glob("worker-*.log"), key=lambda path: path.stat().st_mtime)
    lines = (line for path in reversed(logs) for line in reversed(path.read_text(errors="replace").splitlines()))
    return next(filter(str.strip, lines), "")
