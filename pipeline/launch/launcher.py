"""Train a plan on this machine or on a cluster, or a single run of it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from pipeline.launch.run_queue import try_again
from pipeline.question.messages import ConfigError
from pipeline.question.schema import Question
from pipeline.study.folder import PlannedRun, Study
from pipeline.study.status import print_failed
from training.run import Exit


def launch(
    question: Question,
    study: Study,
    console: Console,
    last: str = "recommend",
    wanted: Sequence[PlannedRun] | None = None,
) -> Exit:
    """Train the plan, or question.run, with the launcher of the question.

    On a cluster a job of the kind `last`, recommend or confirm, follows the runs. On this machine only the runs
    `wanted`, and those that they start from, are trained, where they are given.

    What a launcher must do, as `launch.slurm.submit` does: start `python -m pipeline.launch.worker STUDY --only RUN`
    for each open run, on a shared disk, parents before children; pass SIGTERM on, so that the run saves; start it again
    after exit code 75, 70 or a signal, and not after 0, 1, 2 or 3 (`training.run.Exit` says what each means); submit
    nothing twice, also after a kill in between; and put behind the runs what continues the study: `cptlaw train` where
    the goal is staged, else collect, fit, recommend, confirm, report. Processes with one host name and one boot, as of
    two containers on one machine, must see each other: a run's lease looks for its process.

    Raises:
        ConfigError: question.run is not in the plan.
    """
    plan = study.read_plan()
    chosen = [run for run in plan if question.run in (None, run.name, run.spec.hash, run.spec.hash[:8])]
    if not chosen and question.run is not None:
        raise ConfigError([f"run: {question.run!r} is not in {study.plan_file}; see cptlaw status"])
    if question.retry_failed:
        for run in chosen:
            try_again(study.runs / run.name)
    on_cluster = question.launcher.kind == "slurm"
    if question.run is not None and not (on_cluster and question.retry_failed):
        from pipeline.launch.work import run_worker

        return run_worker(study, question, chosen[0].name)
    if on_cluster:
        from pipeline.launch.slurm.submit import show, submit

        return (show if question.dry_run else submit)(study, question, plan, last, console)
    from pipeline.launch.local import last_log_line, train_locally

    only = None if wanted is None else _with_parents(plan, wanted)
    code = train_locally(study, question, console, only)
    if code == Exit.CRASH:
        print_failed(study, [run for run in plan if study.state(run) == "failed"], console)
    if code in (Exit.CRASH, Exit.INPUT_MISSING) and (line := last_log_line(study)):
        console.print(f"last line of the workers' logs: {line}", highlight=False, markup=False)
    return code


def _with_parents(plan: Sequence[PlannedRun], wanted: Sequence[PlannedRun]) -> set[str]:
    """Names of the runs, and of those that have to be done before them."""
    by_hash, names = {run.spec.hash: run for run in plan}, set()
    for run in wanted:
        needed: PlannedRun | None = run
        while needed is not None:
            names.add(needed.name)
            needed = by_hash.get(needed.after or "")
    return names
