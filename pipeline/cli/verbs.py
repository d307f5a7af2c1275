"""The verbs of the command line: a function each, found by its name."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from rich.console import Console
from rich.text import Text

from pipeline.launch.launcher import launch
from pipeline.plan import cost
from pipeline.plan.engines import measure_engine
from pipeline.plan.machine import known_precision, measure_machine
from pipeline.plan.prepare import begin_corpora, generation_lines, prepare_corpora
from pipeline.plan.runs import by_domain, data_folder, placeholder_manifest
from pipeline.plan.write import add_to_plan, current_plan, planned_corpora, write_plan
from pipeline.question.goal import Output, goal_of
from pipeline.question.messages import ConfigError
from pipeline.question.schema import Question
from pipeline.report.terminal_tables import cost_table
from pipeline.study.folder import PlannedRun, Study, StudyError, study_of
from pipeline.tracking.mirror import track_answer
from training.corpora.manifest import Manifest
from training.run import Exit


def carry_out(verb: str, question: Question, console: Console) -> Exit:
    """Carry out a verb: "track sync" is the function `track_sync`."""
    function: Callable[[Question, Console], Exit] = globals()[verb.replace(" ", "_")]
    return function(question, console)


def prepare(question: Question, console: Console) -> Exit:
    """Tokenise the corpora, and measure the speed of the models in each precision and of the engines."""
    study = study_of(question)
    study.folder.mkdir(parents=True, exist_ok=True)
    if question.launcher.kind == "slurm" and question.launcher.slurm.prepare_tasks:
        from pipeline.launch.slurm.preparation import submit_preparation

        if folders := begin_corpora(question, console.print):
            return submit_preparation(study, question, folders, console)
    if generation_lines(question):
        # Writing takes hours: whether it will be enough is known before.
        goal_of(question).runs(question, study, placeholder_manifest(question), "fp32")
    manifest = prepare_corpora(question, console.print, console)
    precision = measure_machine(question, study, manifest, console.print)
    if question.launcher.kind == "local":
        # A mistake that runs cannot be planned with is reported by plan.
        with contextlib.suppress(ConfigError, StudyError):
            runs = goal_of(question).runs(question, study, manifest, precision)
            measure_engine(question, study, runs, console.print)
    return Exit.DONE


def prepare_validation(question: Question, console: Console) -> Exit:
    """Choose validation documents by their perplexity under given models."""
    from pipeline.plan.validation_documents import choose_validation

    choose_validation(question, console)
    return Exit.DONE


def plan(question: Question, console: Console) -> Exit:
    """Write plan.jsonl and print its cost; without prepared corpora print the cost only."""
    goal, study = goal_of(question), study_of(question)
    prepared = (data_folder(question) / "manifest.json").exists()
    if prepared:
        runs, manifest = write_plan(question, study), Manifest.open(data_folder(question))
    else:
        manifest = placeholder_manifest(question)
        runs = goal.runs(question, study, manifest, known_precision(question, study) or "fp32")
    console.print(cost_table(study, question, runs))
    for note in filter(None, (cost.evaluation_note(runs, question), cost.variant_note(runs, question))):
        console.print(note, highlight=False, soft_wrap=True)
    if not prepared:
        line = "the corpora are not prepared: this is an estimate, nothing is written"
        console.print(f"{line}; run cptlaw prepare, then plan again")
        for line in generation_lines(question):
            console.print(line, highlight=False, soft_wrap=True)
    else:
        done = sum(study.state(run) == "done" for run in runs)
        console.print(f"{len(runs)} runs, {done} of them done already; written to {study.plan_file}", highlight=False)
        if runs:
            console.print("start them: cptlaw train with the same overrides; watch them: cptlaw status")
    precision = known_precision(question, study) or "fp32"
    _show(Output(goal.cost_notes(question, study, manifest, precision)), console)
    return Exit.DONE


def train(question: Question, console: Console) -> Exit:
    """Train the plan of the question, or one run of it; of a staged goal every stage."""
    goal, study = goal_of(question), study_of(question)
    if question.dry_run:
        from pipeline.launch.slurm.submit import show

        manifest = Manifest.open(data_folder(question))
        return show(study, question, current_plan(question, study, manifest), "recommend", console)
    if question.run is not None and study.plan_file.exists():
        return launch(question, study, console)
    trained: set[str] | None = None
    while True:
        # Before planning, so that a command that was stopped between the end of a run and this goes on from here.
        line = goal.collect_stage(question, study, console.print)
        names = {run.name for run in write_plan(question, study) if run.role != "confirm"}
        if line:
            console.print(line, highlight=False, soft_wrap=True)
        if trained is not None and names <= trained:
            return Exit.DONE
        if trained is not None and not line:
            console.print(f"next round: {len(names - trained)} more runs", highlight=False)
        code = launch(question, study, console)
        if code != Exit.DONE or not goal.staged(question) or question.run is not None:
            return code
        trained = names


def refine(question: Question, console: Console) -> Exit:
    """Choose and train one more round, and answer again; finished confirmation runs become points for the fit."""
    goal, study = goal_of(question), study_of(question)
    before = goal.answer_line(question, study)
    if line := goal.add_round(question, study):
        console.print(line, highlight=False, soft_wrap=True)
    write_plan(question, study)
    code = launch(question, study, console)
    if code != Exit.DONE or question.launcher.kind == "slurm":
        return code  # DONE: the runs are queued, and behind them the job that answers.
    for name in ("collect", "fit", "recommend"):
        if (code := carry_out(name, question, console)) != Exit.DONE:
            return code
    console.print(f"before: {before or 'no answer'}", highlight=False)
    console.print(f"now:    {goal.answer_line(question, study)}", highlight=False)
    return Exit.DONE


def status(question: Question, console: Console) -> Exit:
    """Print a table of all runs; on a terminal it is updated while a run is in progress."""
    from rich.console import Group
    from rich.live import Live

    from pipeline.launch.slurm.client import Scheduler
    from pipeline.launch.slurm.jobs import read_jobs
    from pipeline.launch.slurm.status import with_job_states
    from pipeline.study.status import MOST, status_table, statuses

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
    from pipeline.launch.slurm.submit import cancel as cancel_jobs

    return cancel_jobs(study_of(question), question, console)


def collect(question: Question, console: Console) -> Exit:
    """Join all points into points.parquet."""
    from pipeline.study.collect import collect as collect_points

    study = study_of(question)
    if not study.read_plan():
        console.print("nothing to collect: the plan has no runs, because no method of weights.methods needs one")
        return Exit.DONE
    table = collect_points(study, question.corpora.general)
    line = f"{len(table):,} points of {table['run'].nunique()} runs in {study.folder / 'points.parquet'}"
    console.print(line, highlight=False)
    return Exit.DONE


def fit(question: Question, console: Console) -> Exit:
    """Fit what the goal's recommendation reads."""
    study = study_of(question)
    output = goal_of(question).fit(question, study, console.print)
    track_answer(study, question)
    return _show(output, console)


def recommend(question: Question, console: Console) -> Exit:
    """Answer the goal and write recommendation.json."""
    return _show(goal_of(question).recommend(question, study_of(question), console.print), console)


def confirm(question: Question, console: Console) -> Exit:
    """Train runs that the fit has not seen, at the answer and around it, and compare."""
    goal, study = goal_of(question), study_of(question)
    if goal.staged(question) and question.launcher.kind == "slurm":
        # Short runs of a next round may be done before the job of this round comes here.
        waiting = _not_in_answer(study)
        if waiting:
            console.print(f"not confirmed yet: {len(waiting)} runs for the fit are not in the answer", highlight=False)
            return Exit.DONE
    if study.plan_file.exists() and any(run.imported for run in study.read_plan()):
        return _show(goal.confirm(question, study, goal.imported_runs(question, study)), console)
    manifest = planned_corpora(question, study)
    runs = goal.confirmation_runs(question, study, manifest, known_precision(question, study) or "fp32")
    add_to_plan(study, runs)

    def ended() -> bool:
        return all(study.state(run) == "done" for run in runs)

    if question.launcher.kind != "slurm" or not ended():
        code = launch(question, study, console, last="confirm", wanted=runs)
        if code != Exit.DONE or not ended():
            return code  # DONE: they are queued, and behind them the job that compares.
    return _show(goal.confirm(question, study, runs), console)


def _not_in_answer(study: Study) -> list[PlannedRun]:
    """The runs for the fit that have not failed, and whose points were not all collected."""
    from pipeline.study.collect import read_points
    from pipeline.study.point_counts import ended_points

    plan = [run for run in study.read_plan() if run.role == "fit" and study.state(run) != "failed"]
    ended = ended_points(study, plan)
    collected = read_points(study)["run"].value_counts() if (study.folder / "points.parquet").exists() else {}
    return [run for run in plan if run.name not in ended or ended[run.name] != collected.get(run.name, 0)]


def report(question: Question, console: Console) -> Exit:
    """Write report.html."""
    study = study_of(question)
    for path, name in zip(goal_of(question).report(question, study), ("report", "all domains")):
        console.print(f"{name}: {path}", highlight=False)
    track_answer(study, question)
    return Exit.DONE


def tables(question: Question, console: Console) -> Exit:
    """The papers' tables from a study, beside the papers' numbers."""
    from pipeline.cli.table_studies import complete_study
    from pipeline.paper_tables.make import make_tables

    study = study_of(question)
    code = complete_study(study, question, console, carry_out)
    return make_tables(study, question, console) if code == Exit.DONE else code


def evaluate(question: Question, console: Console) -> Exit:
    """Down-stream tasks of the kept checkpoints."""
    from pipeline.launch.downstream import evaluate_tasks, task_table

    console.print(task_table(evaluate_tasks(study_of(question), question, console)))
    return Exit.DONE


def track_sync(question: Question, console: Console) -> Exit:
    """Bring wandb's copy of a study up to its files."""
    from pipeline.tracking.sync import sync

    return sync(study_of(question), question, console)


def quickstart(question: Question, console: Console) -> Exit:
    """All steps of the built-in example."""
    return all_steps(question, console)


def all_steps(question: Question, console: Console) -> Exit:
    """Prepare, plan, train, collect; fit, recommend, confirm, report for each domain."""
    start = time.perf_counter()
    slurm = question.launcher.kind == "slurm"
    answered = [question] if goal_of(question).many_domains else [*by_domain(question)]
    # On a cluster, what comes after training is queued behind it.
    steps = [(name, question) for name in STEPS[: 3 if slurm else 4]]
    steps += [(name, single) for single in answered * (not slurm) for name in STEPS[4:]]
    for name, single in steps:
        about = f" {single.corpora.domain}" * (len(answered) > 1 and name in STEPS[4:])
        console.rule(f"{name}{about} [dim]{time.perf_counter() - start:.0f} s[/]", align="left")
        if (code := carry_out(name, single, console)) != Exit.DONE:
            return code
    for single in answered * (not slurm):
        study = study_of(single)
        console.rule(f"answer [dim]{time.perf_counter() - start:.0f} s[/]", align="left")
        _show(goal_of(single).answer(single, study), console)
        path = (study.folder / study.answer("report.html")).resolve()
        console.print(f"{time.perf_counter() - start:.0f} s; open {path}", highlight=False, soft_wrap=True)
    return Exit.DONE


def _show(output: Output, console: Console) -> Exit:
    for item in output.shown:
        if isinstance(item, str):
            console.print(item, highlight=False, markup=False, soft_wrap=True)
        else:
            console.print(item)
    return Exit.DONE if output.answered else Exit.CRASH


STEPS = ("prepare", "plan", "train", "collect", "fit", "recommend", "confirm", "report")
"""Verbs from text to report."""
