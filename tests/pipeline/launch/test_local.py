"""What a training on this machine shows: lines in a log, bars on a terminal, and whom a second command helps."""

import dataclasses
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text

from pipeline.launch import local
from pipeline.show.console import LineConsole
from pipeline.study.folder import PlannedRun, Study
from pipeline.study.status import RunStatus, statuses
from tests.conftest import tiny_spec
from training.attempt import claim

LOSSES = "general 3.1416  code 2.7183"


def rows(*states: str, step: int = 10) -> list[RunStatus]:
    """A run in each state, of 20 steps, the first one with measurements."""
    planned = [PlannedRun(f"{'long-name-' * 9}{n}", "fit", "tiny", "", tiny_spec(seed=n)) for n in range(len(states))]
    steps = {"done": 20, "running": step, "failed": 5}
    known = {run.name: (320, LOSSES) if state == "running" else (None, "") for run, state in zip(planned, states)}
    return [RunStatus(run, state, steps.get(state, 0), *known[run.name]) for run, state in zip(planned, states)]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr("pipeline.launch.local.time.monotonic", lambda: now[0])
    return now


def shown(clock: list[float], *states: list[RunStatus], **console) -> str:
    """What is printed of states that follow one another in 20 seconds."""
    output = LineConsole(file=(text := io.StringIO()), **console)
    display = local._ProgressDisplay(states[0], output)
    with display.bars:
        for state in states:
            display.show(state)
            clock[0] += 20
        display.bars.refresh()
    return Text.from_ansi(text.getvalue()).plain


def test_each_line_of_a_log_has_time_left_speed_and_losses(clock) -> None:
    before, after = rows("running", "waiting", "waiting", step=0), rows("running", "failed", "waiting")
    begun, later = (rows("running", "waiting", "waiting", step=step) for step in (4, 8))
    lines = shown(clock, rows("waiting", "waiting", "waiting", step=0), before, begun, later, after).splitlines()
    first, second = (run.run.name for run in after[:2])
    of_run = f"left, {LOSSES}, 320 tokens/s"
    assert lines == [
        # No line before a run begins, and no time left before there is a speed: the first steps come late.
        f"0/3 runs, 0% of the tokens; {first} 0/20, 4 s {of_run}",
        f"0/3 runs, 7% of the tokens; {first} 4/20, 3 s {of_run}",
        f"0/3 runs, 13% of the tokens, 4 min left; {first} 8/20, 2 s {of_run}",
        # What is left of the failed run is not waited for: 30 steps, of which 11 took 40 s.
        f"failed  {second}    (0/3 runs, 25% of the tokens, 109 s left)",
        f"0/3 runs, 25% of the tokens, 109 s left; {first} 10/20, 2 s {of_run}",
    ]


def test_the_time_left_of_all_is_not_below_that_of_one_run(clock) -> None:
    waiting, *states = (rows(state, step=step) for state, step in (("waiting", 0), ("running", 4), ("running", 16)))
    slow = [[dataclasses.replace(row, speed=1) for row in state] for state in states]
    last = shown(clock, waiting, *slow, [dataclasses.replace(row, step=17) for row in slow[-1]]).splitlines()[-1]
    of_all, of_run = re.findall(r"(\S+ \S+) left", last)
    assert of_all == of_run == "3 min"


def test_confirmation_runs_are_not_counted_as_runs_of_rounds(clock) -> None:
    states = [dataclasses.replace(row, run=dataclasses.replace(row.run, role="confirm")) for row in rows("running")]
    display = local._ProgressDisplay(states, LineConsole(file=(text := io.StringIO())), staged=True)
    display.show(states)
    assert text.getvalue().startswith("0/1 runs so far, 50% of their tokens; ")


def test_a_line_of_a_log_is_not_repeated(clock) -> None:
    starting = [dataclasses.replace(row, speed=None, detail="") for row in rows("running", "waiting", step=0)]
    (line,) = shown(clock, starting, starting, starting).splitlines()
    assert line.endswith(" 0/20, starting: loads and compiles")
    # Another guess of the time left is no news; after ten minutes the same steps are, since they go on.
    begun, later = rows("running", "waiting", step=0), rows("running", "waiting", step=4)
    assert len(shown(clock, begun, later, later, later).splitlines()) == 2
    assert len(shown(clock, begun, *[later] * 33).splitlines()) == 3


def test_time_left_does_not_grow_by_noise(clock) -> None:
    display, left = local._ProgressDisplay(rows("running", step=0), LineConsole(file=io.StringIO())), []
    # The third and fourth are estimated as 17.3 and 16.3 s; the last step took 9 s.
    for seconds, step in ((3, 2), (9, 8), (2, 9), (2, 10), (9, 11)):
        clock[0] += seconds
        left.append(display._seconds_left(rows("running", step=step)))
    assert left[0] is None
    assert left[1:] == pytest.approx([18, 16, 14, 22])


def test_a_terminal_has_a_bar_for_each_run_that_is_trained(clock) -> None:
    before, after = rows("running", "running", "waiting", step=0), rows("done", "running", "waiting")
    text = shown(clock, before, after, force_terminal=True, width=80)
    last = text[text.rindex("all runs") :]
    of_run = re.escape(f"tiny {after[1].run.spec.hash[:8]}")
    assert re.search(rf"{of_run} ━.* 10/20, 2 s left, {LOSSES}, 320 t", last)
    assert after[0].run.spec.hash[:8] not in last
    assert max(map(len, last.splitlines())) <= 80


def test_a_second_command_says_whom_it_helps(tmp_path: Path) -> None:
    study, (first, second) = Study(tmp_path), [row.run for row in rows("waiting", "waiting")]
    attempt = claim(study.runs / first.name)
    assert attempt is not None
    record = json.loads((study.runs / first.name / "attempts/001.json").read_text())
    now = statuses(study, [first, second], 60.0)
    assert [row.state for row in now] == ["running", "waiting"]
    by = f"process {record['pid']} on {record['host']} trains {first.name}; this command"
    assert local._helping(study, now[:1], waits=False) == f"{by} helps with the other runs, and ends when all are done"
    assert local._helping(study, now[:1], waits=True) == f"{by} waits for them, and ends when all of them are done"
    attempt.end(0)


def test_the_reason_of_a_failure_is_no_line_of_progress(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    progress = "fit-1: step 20/600, 3 min left, 1,234 tokens/s, training loss 3.1\n"
    (tmp_path / "logs/worker-0.log").write_text(f"{progress}disk: no space\n{progress}\n")
    assert local.last_log_line(Study(tmp_path)) == "disk: no space"


def test_a_worker_that_dies_while_states_are_read_is_replaced(clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.launch.local.time.sleep", lambda seconds: None)
    codes, states = {"old": iter([None, -9, -9, -9]), "new": iter([0])}, [rows("interrupted"), rows("done")]
    started = []

    class Worker:
        def __init__(self, name: str) -> None:
            self.name = name

        def poll(self) -> int | None:
            return next(codes[self.name])

    def start(number: int) -> Any:
        started.append(number)
        return Worker("new")

    def read() -> list[RunStatus]:
        return states[len(started)]

    processes: list[Any] = [Worker("old")]
    local._watch(processes, start, read, local._ProgressDisplay(states[0], LineConsole(file=io.StringIO())))
    assert started == [0]
