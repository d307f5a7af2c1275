"""The verbs of the command line that are no step: a function each, found by its name."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from pipeline.cli.table_studies import complete_study
from pipeline.goals.registry import goal_of
from pipeline.launch.downstream import evaluate_tasks, task_table
from pipeline.launch.launcher import launch
from pipeline.launch.slurm.client import Scheduler
from pipeline.launch.slurm.jobs import read_jobs
from pipeline.launch.slurm.status import with_job_states
from pipeline.launch.slurm.submit import cancel as cancel_jobs
from pipeline.papers.make import make_tables
from pipeline.plan.validation_documents import choose_validation
from pipeline.plan.write import write_plan
from pipeline.question.schema import Question
from pipeline.show.terminal.tables import answer_line
from pipeline.show.tracking.sync import sync
from pipeline.steps import STEPS, answered_questions, go_on, planned_now, print_answer, steps_between
from pipeline.study.context import context_of
from pipeline.study.folder import study_of
from pipeline.study.status import MOST, status_table, statuses
from training.run import Exit


def carry_out(verb: str, question: Question, console: Console) -> Exit:
    """Carry out a step, or the verb whose function is found by its name: "track sync" is `track_sync`."""
    if verb in STEPS:
        return STEPS[verb].run(context_of(question), console)
    function: Callable[[Question, Console], Exit] = globals()[verb.replace(" ", "_")]
    return function(question, console)


def prepare_validation(question: Question, console: Console) -> Exit:
    """Choose validation documents by their perplexity under given models."""
    choose_validation(question, console)
    return Exit.DONE


def refine(question: Question, console: Console) -> Exit:
    """Choose and train one more round, and answer again; finished confirmation runs become points for the fit."""
    context = context_of(question)
    before = answer_line(context)
    if line := goal_of(question).add_round(context):
        console.print(line, highlight=False, soft_wrap=True)
    context = context.fresh()
    write_plan(context, planned_now(context))
    code = launch(question, context.study, console)
    if code != Exit.DONE or question.launcher.kind == "slurm":
        return code  # DONE: the runs are queued, and behind them the job that answers.
    for name in steps_between("collect", "recommend"):
        if (code := STEPS[name].run(context.fresh(), console)) != Exit.DONE:
            return code
    console.print(f"before: {before or 'no answer'}", highlight=False)
    console.print(f"now:    {answer_line(context)}", highlight=False)
    return Exit.DONE


def status(question: Question, console: Console) -> Exit:
    """Print a table of all runs; on a terminal it is updated while a run is in progress."""
    study, scheduler = study_of(question), Scheduler(question.launcher.slurm.patience)

    def look() -> tuple[bool, Group]:
        # Jobs that prepare the corpora are there before a plan is.
        plan = study.read_plan() if study.plan_file.exists() or not read_jobs(study) else []
        rows = statuses(study, plan, question.launcher.stale_after, brief=len(plan) > MOST)
        rows, lines = with_job_states(rows, study, scheduler)
        table = [status_table(rows)] if rows else []
        return any(row.state == "running" for row in rows), Group(*table, *map(Text, lines))

    running, shown = look()
    if not console.is_terminal:
        console.print(shown)
        return Exit.DONE
    with Live(shown, console=console, auto_refresh=False) as live:
        try:
            while running:
                time.sleep(1.0)
                running, shown = look()
                live.update(shown, refresh=True)
        except KeyboardInterrupt:
            pass
    return Exit.DONE


def cancel(question: Question, console: Console) -> Exit:
    """Cancel the study's jobs on the cluster."""
    return cancel_jobs(study_of(question), question, console)


def tables(question: Question, console: Console) -> Exit:
    """The papers' tables from a study, beside the papers' numbers."""
    study = study_of(question)
    code = complete_study(study, question, console, carry_out)
    return make_tables(study, question, console) if code == Exit.DONE else code


def evaluate(question: Question, console: Console) -> Exit:
    """Down-stream tasks of the kept checkpoints."""
    console.print(task_table(evaluate_tasks(study_of(question), question, console)))
    return Exit.DONE


def track_sync(question: Question, console: Console) -> Exit:
    """Bring wandb's copy of a study up to its files."""
    return sync(study_of(question), question, console)


def quickstart(question: Question, console: Console) -> Exit:
    """All steps, and the answer."""
    code = go_on(question, console)
    if code == Exit.DONE and question.launcher.kind != "slurm":
        for single in answered_questions(question):
            print_answer(single, console)
    return code
