"""The launchers, and the training of a plan, or of a single run of it, by that of the question."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from rich.console import Console

from pipeline.launch import local
from pipeline.launch.slurm.status import with_job_states
from pipeline.launch.slurm.submit import cancel, show, submit, submit_preparation
from pipeline.launch.work import run_worker, try_again
from pipeline.plan.memory import check_memory
from pipeline.question.messages import ConfigError
from pipeline.question.schema import Question
from pipeline.study.context import Context
from pipeline.study.folder import PlannedRun
from pipeline.study.status import RunStatus
from training.run import Exit

Described = tuple[list[RunStatus], list[str]]
"""Rows of the runs, and lines about jobs that are no run."""


@dataclass(frozen=True)
class Launcher:
    """Where runs are trained. All but `train` may be left out by a launcher that trains on this machine."""

    train: Callable[[Context, Console, Collection[str] | None], Exit]
    """Trains the open runs of the plan, or those named. Or queues all open runs and `cptlaw continue STUDY` behind
    them, and returns DONE once they are queued, CRASH where a failed run blocks others.

    It starts `python -m pipeline.launch.worker STUDY --only RUN` for each open run, on a shared disk, parents before
    children; passes SIGTERM on, so that the run saves; starts it again after exit code 75, 70 or a signal, and not
    after 0, 1, 2 or 3 (`training.run.Exit` says what each means); and submits nothing twice, also after a kill in
    between. Processes with one host name and one boot, as of two containers on one machine, must see each other: a
    run's lease looks for its process.
    """
    show: Callable[[Context, Sequence[PlannedRun], bool, Console], Exit] = lambda *of: Exit.DONE
    """Prints what `train` would submit for a plan that is not written, and submits nothing; `more`: whether further
    runs for the fit may follow from results."""
    prepare: Callable[[Context, Console], Exit | None] = lambda context, console: None
    """Queues the tokenising of the corpora; None: it is to be done here."""
    status: Callable[[Context, list[RunStatus]], Described] = lambda context, rows: (rows, [])
    """The rows with what is known of their jobs, and lines about the other jobs of the study."""
    cancel: Callable[[Context], list[str]] = lambda context: []
    """Cancels all jobs of the study; a line each."""


LAUNCHERS = {
    "local": Launcher(local.train),
    "slurm": Launcher(submit, show, submit_preparation, with_job_states, cancel),
}
"""launcher.kind -> the launcher."""


def launcher_of(question: Question) -> Launcher:
    """The launcher of a question."""
    return LAUNCHERS[question.launcher.kind]


def launch(context: Context, console: Console, wanted: Sequence[PlannedRun] | None = None) -> Exit:
    """Train the plan, or question.run, with the launcher of the question; on this machine only the runs `wanted`, and
    those that they start from. ConfigError: question.run is not in the plan.
    """
    question, study, context = context.question, context.study, context.fresh()
    chosen = [run for run in context.plan if question.run in (None, run.name, run.spec.hash, run.spec.hash[:8])]
    if not chosen and question.run is not None:
        raise ConfigError([f"run: {question.run!r} is not in {study.plan_file}; see cptlaw status {study.word}"])
    check_memory(question, (run for run in chosen if study.state(run) != "done"))
    if question.retry_failed:
        for run in chosen:
            try_again(study.runs / run.name)
    if question.run is not None and not (question.launcher.elsewhere and question.retry_failed):
        return run_worker(study, question, chosen[0].name)
    only = None if wanted is None else _with_parents(context.plan, wanted)
    return launcher_of(question).train(context, console, only)


def _with_parents(plan: Sequence[PlannedRun], wanted: Sequence[PlannedRun]) -> set[str]:
    """Names of the runs, and of those that have to be done before them."""
    by_hash, names, needed = {run.spec.hash: run for run in plan}, set(), list(wanted)
    while needed:
        run = needed.pop()
        names.add(run.name)
        needed += [by_hash[run.after]] if run.after in by_hash else []
    return names
