"""The verbs of the command line that are no step: a function each."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from pipeline.cli.table_studies import complete_study
from pipeline.goals.registry import goal_of
from pipeline.launch.downstream import evaluate_tasks, task_table
from pipeline.launch.launcher import LAUNCHERS, launch
from pipeline.papers.make import make_tables
from pipeline.plan.validation_documents import choose_validation
from pipeline.plan.write import write_plan
from pipeline.question.schema import Question
from pipeline.show.terminal import answer_line
from pipeline.show.tracking.sync import sync
from pipeline.steps import STEPS, answered_questions, go_on, planned_now, print_answer, steps_between
from pipeline.study.context import context_of
from pipeline.study.folder import study_of
from pipeline.study.status import MOST, status_table, statuses
from training.run import Exit


def carry_out(verb: str, question: Question, console: Console) -> Exit:
    """Carry out a step, or another verb."""
    return STEPS[verb].run(context_of(question), console) if verb in STEPS else FUNCTIONS[verb](question, console)


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
    code = launch(context, console)
    if code != Exit.DONE or question.launcher.elsewhere:
        return code  # DONE: the runs are queued, and behind them the job that answers.
    for name in steps_between("collect", "recommend"):
        if (code := STEPS[name].run(context.fresh(), console)) != Exit.DONE:
            return code
    console.print(f"before: {before or 'no answer'}", highlight=False)
    console.print(f"now:    {answer_line(context)}", highlight=False)
    return Exit.DONE


def status(question: Question, console: Console) -> Exit:
    """Print a table of all runs; on a terminal it is updated while a run is in progress."""
    context = context_of(question)
    study = context.study

    def look() -> tuple[bool, Group]:
        plan, lines = study.read_plan() if study.plan_file.exists() else [], []
        rows = statuses(study, plan, question.launcher.stale_after, brief=len(plan) > MOST)
        # Of all launchers: the study's may have been another when jobs were queued.
        for launcher in LAUNCHERS.values():
            rows, more = launcher.status(context, rows)
            lines += more
        if not rows and not lines:
            study.read_plan()
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
    lines = [line for launcher in LAUNCHERS.values() for line in launcher.cancel(context_of(question))]
    for line in lines:
        console.print(line, highlight=False, markup=False)
    console.print("running jobs save their state first; cptlaw train continues" if lines else "no job runs or waits")
    return Exit.DONE


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
    if code == Exit.DONE and not question.launcher.elsewhere:
        for single in answered_questions(question):
            print_answer(single, console)
    return code


FUNCTIONS: dict[str, Callable[[Question, Console], Exit]] = {
    "prepare validation": prepare_validation,
    "continue": go_on,
    "refine": refine,
    "status": status,
    "cancel": cancel,
    "tables": tables,
    "evaluate": evaluate,
    "track sync": track_sync,
    "quickstart": quickstart,
}
"""Verb -> its function."""
