"""The runs of a plan that a worker can train now."""

from __future__ import annotations

import os
import sys
import time
from itertools import takewhile
from pathlib import Path

from pipeline.question.schema import Question
from pipeline.study.folder import PlannedRun, Study
from training.attempt import attempts, is_live
from training.durable import write_whole
from training.run import Exit
from training.spec import SpecError

_STARTED = time.monotonic()


def select_runs(study: Study, plan: list[PlannedRun], only: str | None) -> list[PlannedRun]:
    """The runs named in `only` by name or hash, with commas between them; None: the whole plan.

    Raises:
        SpecError: no run of the plan has such a name.
    """
    if only is None:
        return plan
    names = set(only.split(","))
    selected = [run for run in plan if names & {run.name, run.spec.hash, run.spec.hash[:8]}]
    if not selected:
        raise SpecError(f"run: {only!r} is not in {study.plan_file}; see cptlaw status")
    return selected


def next_runs(
    study: Study,
    question: Question,
    plan: list[PlannedRun],
    selected: list[PlannedRun],
    number: int,
    last_model: str | None,
) -> Exit | list[str]:
    """Names of the `selected` runs that can start now, in the order to try them; empty while all wait for others.

    Workers of different numbers begin with different models. Runs of `last_model`, whose compiled code is in memory,
    come first. Where none is left it is an exit code: DONE when all are done, CRASH when one failed.

    Raises:
        SpecError: the selected runs start from a run that is not done and that nobody here will train.
    """
    # Not the states of the whole plan: ten thousand jobs of one run each would read a shared disk 10^8 times.
    needed = {run.spec.hash for run in selected} | {run.after for run in selected}
    states = {run.spec.hash: study.state(run) for run in plan if run.spec.hash in needed}
    open_runs = [run for run in selected if states[run.spec.hash] == "open"]
    startable = [run for run in open_runs if run.after is None or states.get(run.after, "done") == "done"]
    waiting = [run for run in open_runs if run not in startable and states.get(run.after or "", "") == "open"]
    # A slow shared disk may still hide that the parent is done: Slurm starts a job only after its parent.
    may_appear = "SLURM_JOB_ID" in os.environ and time.monotonic() - _STARTED < question.launcher.stale_after
    if selected is not plan and open_runs and not startable and not (waiting and may_appear):
        raise SpecError(f"{open_runs[0].name}: the run that it starts from is not done; train that one first")
    if any([fail_after_retries(study.runs / run.name, question) for run in startable]):
        return next_runs(study, question, plan, selected, number, last_model)
    if not startable and not waiting:
        return Exit.CRASH if any(states[run.spec.hash] != "done" for run in selected) else Exit.DONE
    if last_model is None and startable:
        shapes = list(dict.fromkeys(run.model for run in startable))
        last_model = shapes[number % len(shapes)]
    return [run.name for run in sorted(startable, key=lambda run: run.model != last_model)]


def try_again(folder: Path) -> None:
    """Let a run that is marked as failed be trained again; its attempts so far no longer count."""
    if not (folder / "FAILED").exists():
        return
    write_whole(folder / "RETRIED", f"{max([0, *(record['attempt'] for record in attempts(folder))])}\n")
    (folder / "FAILED").unlink()


def fail_after_retries(folder: Path, question: Question) -> bool:
    """Mark a run as failed if its process died more often than launcher.retries without progress.

    Attempts before the last `try_again` do not count. Returns whether the run is marked as failed now.
    """
    retried = folder / "RETRIED"
    before = int(retried.read_text() or 0) if retried.exists() else 0
    records = [record for record in attempts(folder) if record["attempt"] > before]
    if not records or is_live(folder, records[-1], question.launcher.stale_after):
        return False
    # Deaths count from the last progress, since a long run may lose a node every few days.
    start = next((record["from_step"] for record in reversed(records) if "from_step" in record), 0)
    since = takewhile(lambda record: record.get("from_step", start) == start, reversed(records))
    crashes = [record for record in since if record.get("exit_code", 1) == Exit.CRASH]
    if len(crashes) <= question.launcher.retries:
        return False
    reason = crashes[0].get("reason", "the process ended without a message")
    write_whole(folder / "FAILED", f"{len(crashes)} attempts failed, the last one: {reason}\n")
    print(f"{folder.name}: failed after {len(crashes)} attempts: {reason}", file=sys.stderr, flush=True)
    return True
