"""What each verb of the command line does with a question."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.text import Text

from pipeline.plan import cost
from pipeline.plan.machine import decide_precision, known_precision, read_machine
from pipeline.plan.prepare import prepare_corpora
from pipeline.plan.runs import data_folder, placeholder_manifest, planned_runs
from pipeline.question.goals import goal_folder
from pipeline.question.loading import ConfigError
from pipeline.question.schema import Question
from pipeline.report import terminal_tables as present
from pipeline.study.folder import PlannedRun, Study, StudyError, question_yaml
from pipeline.tracking.mirror import track_answer
from training.corpora.manifest import Manifest
from training.durable import write_whole
from training.run import Exit


def study_of(question: Question) -> Study:
    """The study's folder of a question."""
    one_domain = question.corpora.domains and question.goal.kind != "weights"
    answers = f"answers/{question.corpora.domain}" if one_domain else ""
    return Study(Path(question.studies) / question.name, answers, goal_folder(question))


def carry_out(verb: str, question: Question, console: Console) -> Exit:
    """Do what a verb of VERBS says; a question about weights has some of its own."""
    if question.goal.kind == "weights":
        from pipeline.mixture_weights.verbs import OWN

        return OWN.get(verb, VERBS[verb])(question, console)
    return VERBS[verb](question, console)


def prepare(question: Question, console: Console) -> Exit:
    """Tokenise the corpora and measure the precision."""
    study = study_of(question)
    study.folder.mkdir(parents=True, exist_ok=True)
    manifest = prepare_corpora(question, console.print, console)
    decide_precision(question, study, manifest, console.print)
    return Exit.DONE


def prepare_validation(question: Question, console: Console) -> Exit:
    """Choose validation documents by their perplexity under given models."""
    from pipeline.plan.validation_documents import choose_validation

    choose_validation(question, console)
    return Exit.DONE


def plan(question: Question, console: Console) -> Exit:
    """Write plan.jsonl and print what it costs; without prepared corpora print the runs only."""
    study = study_of(question)
    if not (data_folder(question) / "manifest.json").exists():
        runs = _runs_of(question, study, placeholder_manifest(question), known_precision(question, study) or "fp32")
        console.print(present.cost_table(cost.costs(runs, _speed(study), question), question))
        console.print(
            "only a price: the corpora are not prepared, nothing is written; run cptlaw prepare, then plan again"
        )
        return Exit.DONE
    runs = write_plan(question, study)
    states = [study.state(run) for run in runs]
    console.print(present.cost_table(cost.costs(runs, _speed(study), question), question))
    done = states.count("done")
    console.print(f"{len(runs)} runs, {done} of them done already; written to {study.plan_file}", highlight=False)
    if runs:
        console.print("start them: cptlaw train with the same words; watch them: cptlaw status")
    return Exit.DONE


def write_plan(question: Question, study: Study, *, keep: bool = False) -> list[PlannedRun]:
    """Freeze the question and its runs in the study's folder; with keep all runs stay that are planned already.

    Raises:
        CorpusError, ConfigError: as `plan_now`.
    """
    manifest = Manifest.open(data_folder(question))
    runs = plan_now(question, study, manifest, keep=keep)
    study.folder.mkdir(parents=True, exist_ok=True)
    write_whole(study.folder / "study.yaml", question_yaml(question))
    study.write_plan(runs)
    # Beside the plan, since a study may be read where its corpora are not.
    tokens_per_byte = {
        name: corpus.tokens["validation"] / corpus.bytes["validation"] for name, corpus in manifest.corpora.items()
    }
    texts = {
        name: {"fingerprint": corpus.fingerprint, "revision": corpus.revision, "tokens": corpus.tokens}
        for name, corpus in manifest.corpora.items()
    }
    study.write_json("corpora.json", {"tokens_per_byte": tokens_per_byte, "corpora": texts})
    return runs


def plan_now(question: Question, study: Study, manifest: Manifest, *, keep: bool = False) -> list[PlannedRun]:
    """The runs of a question; confirmation runs that are planned already stay, and with keep all others.

    Raises:
        CorpusError: the corpora are not prepared.
        ConfigError: a corpus too short, for all at once.
    """
    precision = known_precision(question, study)
    if precision is None:
        raise StudyError(f"{study.folder}/machine.json: missing, and precision=auto; run cptlaw prepare first")
    runs = _runs_of(question, study, manifest, precision)
    if study.plan_file.exists():
        planned = {run.spec.hash for run in runs}
        runs += [
            run
            for run in study.read_plan()
            if run.spec.hash not in planned
            and (keep or (run.role == "confirm" and not run.variant and run.parent in {*planned, None}))
        ]
    return runs


def _runs_of(question: Question, study: Study, manifest: Manifest, precision: str) -> list[PlannedRun]:
    if question.goal.kind == "weights":
        from pipeline.mixture_weights.verbs import runs_wanted

        return runs_wanted(question, study, manifest, precision)
    return planned_runs(question, manifest, precision)


def train(question: Question, console: Console) -> Exit:
    """Train the plan of the question, or one run of it."""
    study = study_of(question)
    if question.dry_run:
        from pipeline.launch.slurm.submit import show

        manifest = Manifest.open(data_folder(question))
        return show(study, question, plan_now(question, study, manifest), "recommend", console)
    if question.run is None or not study.plan_file.exists():
        write_plan(question, study)
    return launch(question, study, console)


def launch(question: Question, study: Study, console: Console, last: str = "recommend") -> Exit:
    """Train what is planned, as the launcher section says; on a cluster `last` is the job behind the runs."""
    plan = study.read_plan()
    failed = [run for run in plan if study.state(run) == "failed"]
    if question.retry_failed:
        for run in failed:
            (study.runs / run.name / "FAILED").unlink()
    if question.run is not None:
        from pipeline.launch.worker import run_worker

        named = [run for run in plan if question.run in (run.name, run.spec.hash, run.spec.hash[:8])]
        if not named:
            raise ConfigError([f"run: {question.run!r} is not in {study.plan_file}; see cptlaw status"])
        return run_worker(study, question, named[0].name)
    if question.launcher.kind == "slurm":
        from pipeline.launch.slurm.submit import show, submit

        return (show if question.dry_run else submit)(study, question, plan, last, console)
    from pipeline.launch.local import last_log_line, train_locally

    code = train_locally(study, question, console)
    if code == Exit.CRASH:
        for run in plan:
            if study.state(run) == "failed":
                reason = (study.runs / run.name / "FAILED").read_text().strip()
                console.print(
                    f"failed {run.name}: {reason}; cptlaw train retry_failed=true tries again",
                    highlight=False,
                )
    if code in (Exit.CRASH, Exit.INPUT_MISSING) and (line := last_log_line(study)):
        console.print(f"last line of the workers' logs: {line}", highlight=False, markup=False)
    return code


def status(question: Question, console: Console) -> Exit:
    """A table of all runs; on a terminal it stays and is renewed until nothing runs."""
    from rich.console import Group
    from rich.live import Live

    from pipeline.launch.slurm.client import Scheduler
    from pipeline.launch.slurm.status import with_job_states
    from pipeline.study.status import MOST, status_table, statuses

    study, scheduler = study_of(question), Scheduler(question.launcher.slurm.patience)

    def look() -> tuple[bool, Group]:
        plan = study.read_plan()
        rows, lines = with_job_states(statuses(study, plan, brief=len(plan) > MOST), study, scheduler)
        return any(row.state == "running" for row in rows), Group(status_table(rows), *map(Text, lines))

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
    from pipeline.study import collect as collecting

    study = study_of(question)
    table = collecting.collect(study, question.corpora.general)
    console.print(
        f"{len(table):,} points of {table['run'].nunique()} runs in {study.folder / 'points.parquet'}",
        highlight=False,
    )
    return Exit.DONE


def fit(question: Question, console: Console) -> Exit:
    """Fit every law to every corpus."""
    from pipeline.study import collect as collecting
    from pipeline.study.domain_points import of_domain
    from pipeline.study.fits import back_test, fit_all, trust

    study = study_of(question)
    points = of_domain(collecting.read_points(study), question)
    schedules = collecting.schedules(study.read_plan())
    fit_all(study, question, points, schedules, console.print)
    tested = back_test(study, question, points, schedules)
    track_answer(study, question)
    console.print(present.held_out_table(tested))
    for line in trust(tested):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    return Exit.DONE


def recommend(question: Question, console: Console) -> Exit:
    """Answer the goal and write recommendation.json."""
    from pipeline.answers.recommend import recommend as answer
    from pipeline.study import collect as collecting
    from pipeline.study.domain_points import of_domain
    from pipeline.study.fits import read_fits

    study = study_of(question)
    points = of_domain(collecting.read_points(study), question)
    content = answer(study, question, points, read_fits(study, question))
    console.print(present.recommendation_table(content, question))
    for warning in content["warnings"]:
        console.print(f"note: {warning}", highlight=False, markup=False)
    return Exit.DONE if content["mixture"] else Exit.CRASH


def confirm(question: Question, console: Console) -> Exit:
    """Train runs that the fit has not seen, at the answer and around it, and compare."""
    from pipeline.answers.confirm import add_to_plan, compare, confirmation_plan
    from pipeline.study import collect as collecting
    from pipeline.study.domain_points import of_domain
    from pipeline.study.fits import read_fits

    study = study_of(question)
    manifest = Manifest.open(data_folder(question))
    precision = known_precision(question, study) or "fp32"
    runs = confirmation_plan(question, study, manifest, precision)
    add_to_plan(study, runs)

    def ended() -> bool:
        return all(study.state(run) == "done" for run in runs)

    if question.launcher.kind != "slurm" or not ended():
        code = launch(question, study, console, last="confirm")
        if code != Exit.DONE or not ended():
            return code  # DONE: they are queued, and behind them the job that compares.
    points = of_domain(collecting.collect(study, question.corpora.general), question)
    content = compare(study, question, runs, points, read_fits(study, question))
    console.print(present.confirmation_table(content["confirmations"]))
    console.print(content["proof"]["sentence"], highlight=False, markup=False, soft_wrap=True)
    return Exit.DONE


def report(question: Question, console: Console) -> Exit:
    """Write report.html."""
    from pipeline.report.write import write_report

    study = study_of(question)
    path = write_report(study, question)
    track_answer(study, question)
    console.print(f"report: {path}", highlight=False)
    if question.corpora.domains:
        console.print(f"all domains: {study.folder / 'report.html'}", highlight=False)
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
    """The whole road: prepare, plan, train, collect, fit, recommend, confirm, report."""
    start = time.perf_counter()
    steps = ["prepare", "plan", "train", "collect", "fit", "recommend", "confirm", "report"]
    if question.launcher.kind == "slurm":
        steps = steps[:3]  # What comes after training is queued behind it.
    for name in steps:
        console.rule(f"{name} [dim]{time.perf_counter() - start:.0f} s[/]", align="left")
        if (code := carry_out(name, question, console)) != Exit.DONE:
            return code
    if question.launcher.kind == "slurm":
        return Exit.DONE
    console.rule(f"answer [dim]{time.perf_counter() - start:.0f} s[/]", align="left")
    study = study_of(question)
    if question.goal.kind == "weights":
        from pipeline.mixture_weights.verbs import answer

        answer(study, console)
    else:
        console.print(present.answer_table(study, question))
    console.print(
        f"{time.perf_counter() - start:.0f} s; open {(study.folder / study.answer('report.html')).resolve()}",
        highlight=False,
        soft_wrap=True,
    )
    return Exit.DONE


def _speed(study: Study) -> float | None:
    """FLOPs a second of one worker, from what prepare measured."""
    machine = read_machine(study)
    return machine.flops_per_second if machine else None


VERBS: dict[str, Callable[[Question, Console], Exit]] = {
    "quickstart": quickstart,
    "prepare": prepare,
    "prepare validation": prepare_validation,
    "plan": plan,
    "train": train,
    "status": status,
    "cancel": cancel,
    "collect": collect,
    "fit": fit,
    "recommend": recommend,
    "confirm": confirm,
    "report": report,
    "tables": tables,
    "track sync": track_sync,
    "evaluate": evaluate,
}
