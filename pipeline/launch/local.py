"""launcher=local: train with worker processes on this machine, and show their progress."""

from __future__ import annotations

import itertools
import os
import re
import sys
import time
from collections.abc import Callable, Collection
from functools import partial
from subprocess import DEVNULL, Popen

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column

from pipeline.goals.registry import goal_of
from pipeline.plan.cost import run_flops
from pipeline.plan.processes import MEMORY, free_gpus, gpus, process_memory, runs_on_device, workers
from pipeline.question.messages import ConfigError
from pipeline.question.schema import Question
from pipeline.study.context import Context
from pipeline.study.folder import PlannedRun, Study
from pipeline.study.number_format import duration
from pipeline.study.status import RunStatus, print_failed, statuses
from training.attempt import attempts
from training.run import Exit
from training.stop import answer_signal

ENDED = ("done", "failed")
_LOG_SECONDS = 15.0
"""Between two lines of progress in a log; after ten minutes four times as long."""
_SAME_SECONDS = 600.0
"""Between two lines of the same steps."""
_SPEED_SECONDS = 5.0
"""From the first step until a speed is known."""
_HALVINGS = 20
"""How often processes that train a run together may be started again since memory ran out."""
_MOST_LISTED = 12
"""Runs that are shown at once."""


def train(context: Context, console: Console, only: Collection[str] | None) -> Exit:
    """Train as `train_locally`, and say which runs have failed and why."""
    study, code = context.study, train_locally(context.study, context.question, console, only)
    if code == Exit.CRASH:
        print_failed(study, [run for run in context.plan if study.state(run) == "failed"], console)
    if code in (Exit.CRASH, Exit.INPUT_MISSING) and (line := last_log_line(study)):
        console.print(f"last line of the workers' logs: {line}")
    return code


def train_locally(study: Study, question: Question, console: Console, only: Collection[str] | None = None) -> Exit:
    """Train the plan, or the runs named in `only`, with parallel worker processes.

    Ctrl-C makes every worker save; the same command continues from there. The exit code is DONE, CRASH when a run
    failed, RUN_ME_AGAIN when stopped, or INPUT_MISSING when the input of a worker is wrong.
    """
    plan = [run for run in study.read_plan() if only is None or run.name in only]
    if all(study.state(run) == "done" for run in plan):
        needed = "nothing to train: the {} runs needed" if only else "all {} runs of the plan"
        console.print(f"{needed.format(len(plan))} are done")
        return Exit.DONE
    if (visible := gpus()) and len(visible) < question.parallel.processes:
        several = f"{len(visible)} GPUs are visible" if len(visible) > 1 else "one GPU is visible"
        way = f"allowed: 1 to {len(visible)}, a process for each, or CUDA_VISIBLE_DEVICES= for processes on the CPU"
        raise ConfigError([f"parallel.processes: {question.parallel.processes}, but {several}; {way}"])
    if (stop_file := study.folder / "STOP").exists():
        console.print(f"{stop_file}: this file stops every run: remove it and give the same command again")
        return Exit.RUN_ME_AGAIN
    # Of named runs, as to confirm, those that were done before, like their pre-training, are not news.
    watched = [run for run in plan if only is None or study.state(run) != "done"] or plan
    read = _reader(study, watched, question.launcher.stale_after)
    rows = read()
    if running := [row for row in rows if row.state == "running"]:
        console.print(_helping(study, running, waits=not any(row.state in ("waiting", "interrupted") for row in rows)))
    # A worker without a run to take only costs its start.
    count = min(workers(question), sum(study.state(run) == "open" for run in plan))
    (study.folder / "logs").mkdir(exist_ok=True)
    selection = [] if only is None else ["--only", ",".join(only)]
    on_gpu = runs_on_device(question)
    with free_gpus(question.parallel.processes, -(-count // on_gpu)) as groups:
        if len(groups) * on_gpu < count and groups:
            count = len(groups) * on_gpu
            console.print(f"GPUs that no other study trains on: {', '.join(itertools.chain(*groups))}")
        start = partial(_start, study, question, selection, groups)
        processes = [start(number) for number in range(count)]
        try:
            display = _ProgressDisplay(rows, console, only is None and goal_of(question).is_staged(question))
            with display.bars:
                _watch(processes, start, read, display)
        except KeyboardInterrupt:
            answer_signal()
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
    processes: list[Popen[bytes]], start: Callable[[int], Popen[bytes]], read: Callable[[], list[RunStatus]],
    display: _ProgressDisplay,
) -> None:  # fmt: skip
    """Show progress until all workers have exited; a worker that died during a run is started again."""
    restarts = 0
    while True:
        # Once, before the states are read: a dead process without a poll still counts as alive, and one that dies from
        # here on is seen the next time.
        codes = [process.poll() for process in processes]
        rows = read()
        display.show(rows)
        # Negative codes are signals.
        dead = [number for number, code in enumerate(codes) if code == Exit.UNEXPECTED or (code or 0) < 0]
        if dead and any(row.state == "interrupted" for row in rows) and restarts < 3 * len(rows) + _HALVINGS:
            # Its run is open again. launcher.retries limits how often a run is tried.
            processes[dead[0]] = start(dead[0])
            restarts += 1
        elif None not in codes:
            break
        time.sleep(0.5)
    display.show(read())


def _start(
    study: Study, question: Question, selection: list[str], own_gpus: list[list[str]], number: int
) -> Popen[bytes]:
    variables = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(question.launcher.threads))
    environment = os.environ | variables | {"TOKENIZERS_PARALLELISM": "0"}
    if own_gpus:
        # With more workers than GPUs several workers use one.
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(own_gpus[number % len(own_gpus)])
    if memory := process_memory(question):
        environment[MEMORY] = str(memory)
    command = [sys.executable, "-m", "pipeline.launch.worker", str(study.folder)]
    command += ["--number", str(number), "--parent", str(os.getpid()), *selection]
    with open(study.folder / "logs" / f"worker-{number}.log", "ab") as log:
        return Popen(command, stdin=DEVNULL, stdout=log, stderr=log, env=environment)


def _reader(study: Study, plan: list[PlannedRun], stale_after: float) -> Callable[[], list[RunStatus]]:
    """A function that reads the states of the runs, of one that has ended once."""
    ended: dict[str, RunStatus] = {}

    def read() -> list[RunStatus]:
        rows = [ended.get(run.name) or statuses(study, [run], stale_after)[0] for run in plan]
        ended.update({row.run.name: row for row in rows if row.state in ENDED})
        return rows

    return read


def _helping(study: Study, running: list[RunStatus], waits: bool) -> str:
    listed = []
    for row in running[:_MOST_LISTED]:
        record = attempts(study.runs / row.run.name)[-1]
        listed.append(f"process {record.get('pid')} on {record.get('host')} trains {row.run.name}")
    if running[_MOST_LISTED:]:
        listed.append(f"others {len(running) - _MOST_LISTED} more runs")
    task = "waits for them" if waits else "helps with the other runs"
    return f"{'; '.join(listed)}; this command {task}, and ends when all {'of them ' * waits}are done"


class _ProgressDisplay:
    """Progress bars on a terminal, of all runs and of each that is trained now; plain lines in a log."""

    def __init__(self, rows: list[RunStatus], console: Console, staged: bool = False) -> None:
        self._console = console
        # Runs of rounds that may follow are not chosen yet, and those of a confirmation may be among these.
        self._of = ("runs so far", "their") if staged else ("runs", "the")
        self._tokens = sum(row.run.spec.tokens for row in rows)
        self._flops = {row.run.name: run_flops(row.run.spec) for row in rows}
        self._start, self._before = time.monotonic(), self._work(rows)[0]
        self._since: tuple[float, float] | None = None
        self._left: tuple[float, float] | None = None
        self._shown = {row.run.name for row in rows if row.state == "done"}
        self._last_line, self._said = -_LOG_SECONDS, (-_SAME_SECONDS, list[tuple[str, int, str]]())
        # A fixed width each but the last, which is cut at the right: what comes first says most.
        cut = Column(no_wrap=True, overflow="ellipsis", ratio=1)
        columns = (
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
            BarColumn(bar_width=10),
            TextColumn("{task.fields[facts]}", markup=False, table_column=cut),
        )
        self.bars = Progress(*columns, console=console, disable=not console.is_terminal, expand=True)
        self._all = self.bars.add_task("all runs", total=1.0, facts="")
        self._of_run: dict[str, TaskID] = {}

    def show(self, rows: list[RunStatus]) -> None:
        """Show the states of the runs now."""
        trained = sum(row.step * row.run.spec.tokens_per_step for row in rows) / self._tokens
        done, left = sum(row.state == "done" for row in rows), self._seconds_left(rows)
        facts = f"{done}/{len(rows)} {self._of[0]}, {trained:.0%} of {self._of[1]} tokens"
        # The speed of all since the first step knows late of a run that is slow, or of a slow start.
        known = [seconds for row in rows if (seconds := _run_seconds_left(row)) is not None]
        facts += "" if left is None else f", {duration(max([left, *known]))} left"
        running = [row for row in rows if row.state == "running"][:_MOST_LISTED]
        for row in rows:
            if row.state in ENDED and row.run.name not in self._shown:
                self._shown.add(row.run.name)
                self._console.print(f"{row.state:7} {row.run.name}  {_facts(row)}  ({facts})")
        if self._console.is_terminal:
            # By tokens, since runs differ a hundredfold in length.
            self.bars.update(self._all, completed=trained, facts=facts)
            for name in {*self._of_run} - {row.run.name for row in running}:
                self.bars.remove_task(self._of_run.pop(name))
            for row in running:
                name, spec = row.run.name, row.run.spec
                if name not in self._of_run:
                    label = f"{row.run.model} {spec.hash[:8]}"
                    self._of_run[name] = self.bars.add_task(label, total=spec.steps, facts="")
                self.bars.update(self._of_run[name], completed=row.step, facts=_step_and_facts(row))
            return
        now = time.monotonic()
        if running and now - self._last_line > (_LOG_SECONDS if now - self._start < 600 else 4 * _LOG_SECONDS):
            self._last_line, steps = now, [(row.run.name, row.step, row.detail) for row in running]
            # Steps of a large model take minutes: the same line again says nothing but that this goes on.
            if steps != self._said[1] or now - self._said[0] > _SAME_SECONDS:
                self._said = now, steps
                self._console.print("; ".join([facts, *(f"{row.run.name} {_step_and_facts(row)}" for row in running)]))

    def _work(self, rows: list[RunStatus]) -> tuple[float, float]:
        """FLOPs of the steps so far, and of those left in runs that have not ended."""
        done = {row.run.name: self._flops[row.run.name] * row.step / row.run.spec.steps for row in rows}
        left = (self._flops[row.run.name] - done[row.run.name] for row in rows if row.state not in ENDED)
        return sum(done.values()), sum(left)

    def _seconds_left(self, rows: list[RunStatus]) -> float | None:
        """Seconds until all runs are done, by the speed since the first step; None: not known yet."""
        now, (done, left) = time.monotonic(), self._work(rows)
        if self._since is None and done > self._before:
            self._since = now, done
        if self._since is None or now - self._since[0] < _SPEED_SECONDS or done <= self._since[1]:
            return None
        seconds = left * (now - self._since[0]) / (done - self._since[1])
        if self._left is not None:
            expected = max(self._left[1] - (now - self._left[0]), 0.0)
            # What grows by less than this is noise of evaluations and starts.
            seconds = expected if expected < seconds < 1.25 * expected else seconds
        self._left = now, seconds
        return seconds


def _step_and_facts(row: RunStatus) -> str:
    start = "starting: loads and compiles" if not row.step else ""
    return ", ".join(filter(None, [f"{row.step}/{row.run.spec.steps}", _facts(row) or start]))


def _facts(row: RunStatus) -> str:
    """Time left, last losses and speed of a run, as far as they are known."""
    words = [row.detail]
    if (left := _run_seconds_left(row)) is not None:
        words.insert(0, f"{duration(left)} left")
    return ", ".join(filter(None, [*words, f"{row.speed:,} tokens/s" if row.speed else ""]))


def _run_seconds_left(row: RunStatus) -> float | None:
    """Seconds until a run that is trained now is done, by its own speed; None: not known."""
    if not row.speed or row.state != "running":
        return None
    return (row.run.spec.steps - row.step) * row.run.spec.tokens_per_step / row.speed


def last_log_line(study: Study) -> str:
    """The last line in the workers' logs, which gives the reason of a failure; empty if there is none."""
    logs = sorted((study.folder / "logs").glob("worker-*.log"), key=lambda path: path.stat().st_mtime)
    lines = (line for path in reversed(logs) for line in reversed(path.read_text(errors="replace").splitlines()))
    # Another worker may go on for long, with lines of progress.
    return next((line for line in lines if line.strip() and not re.search(r": step \d+/\d+, ", line)), "")
