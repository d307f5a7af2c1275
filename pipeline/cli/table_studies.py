"""`cptlaw tables`: find or run the study that each paper's tables are made from."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from pipeline.goals.registry import load_question, question_of_study, read_question
from pipeline.papers.catalogue import READINGS, TABLES, paper_folder
from pipeline.papers.make import make_tables
from pipeline.papers.table import PaperStudy, StudyReader
from pipeline.question.messages import ConfigError
from pipeline.question.schema import Question
from pipeline.show.tables import cost_table
from pipeline.show.terminal import print_items
from pipeline.steps import STEPS, go_on, steps_between
from pipeline.study.context import Context, context_of
from pipeline.study.folder import Study, StudyError, study_of
from training.corpora.documents import CorpusError
from training.run import Exit

RUN_HINT = "tables.run=true runs it, and continues after a stop"


def tables(question: Question, console: Console) -> Exit:
    """The papers' tables from a study, beside the papers' numbers; in a dry run the cost and jobs of the study."""
    if question.dry_run:
        return go_on(question, console)
    study = study_of(question)
    code = complete_study(study, question, console)
    return make_tables(study, question, console) if code == Exit.DONE else code


def make_all_tables(overrides: Sequence[str], console: Console) -> Exit:
    """Make the tables of every paper, from the study of each experiment: `cptlaw tables` without a study.

    Returns:
        DONE; INPUT_MISSING where a study is missing and tables.run is false; else the exit code of a failed training.

    Raises:
        ConfigError: a mistake in the overrides.
    """
    by_experiment: dict[str, list[str]] = {}
    for name, reading in READINGS.items():
        by_experiment.setdefault(reading.experiment, []).append(name)
    names, asked, mistakes = None, [], []
    # All are read before the first table is made, which may take minutes.
    for readings in by_experiment.values():
        if names is not None and not any(TABLES[name].reads in readings for name in names):
            continue
        try:
            question = _question(READINGS[readings[0]], overrides)
        except ConfigError as error:
            mistakes += error.lines
            continue
        names = question.tables.names or list(TABLES)
        mistakes += [f"tables.names: {name!r}; allowed: {', '.join(TABLES)}" for name in names if name not in TABLES]
        asked.append((question, [name for name in names if name in TABLES and TABLES[name].reads in readings]))
    if mistakes:
        raise ConfigError(list(dict.fromkeys(mistakes)))
    paper_folder(asked[0][0].tables.papers)
    console.print("the studies of the papers' tables, each in its own folder", highlight=False)
    code = Exit.DONE
    for question, own in asked:
        question.tables.names = own
        if not own:
            continue
        console.rule(f"{question.name}: tables {own[0]} to {own[-1]}", align="left")
        try:
            result = tables(question, console)
        except (StudyError, CorpusError) as error:  # No runs, or no text to plan them for.
            print_items([str(error)], console)
            result = Exit.INPUT_MISSING
        if result not in (Exit.DONE, Exit.INPUT_MISSING):
            return result
        code = max(code, result)
    return code


def complete_study(study: Study, question: Question, console: Console) -> Exit:
    """Check that a study has what its tables are made from; with tables.run train what is missing.

    Returns:
        DONE, also for a part of the runs, after a message; else the exit code that stopped the training.

    Raises:
        StudyError: nothing is there and tables.run is false; the cost is printed first. The file of tables.points is
            not there.
    """
    if question.tables.points and not Path(question.tables.points).exists():
        raise StudyError(f"tables.points: {question.tables.points} does not exist")
    needed = {TABLES[name].reads for name in question.tables.names if name in TABLES}
    needed = needed or {name for name, reading in READINGS.items() if reading.applies(question)}
    readings = [reading for name, reading in READINGS.items() if name in needed]
    open_runs = _open_runs(study)
    missing = []
    for reading in readings:
        try:
            reading.read(PaperStudy(study, question))
        except StudyError as error:
            missing.append(str(error))
    if question.tables.points or not (missing or open_runs):
        return Exit.DONE
    if question.tables.run:
        return _run(study, question, readings, console)
    if open_runs != 0 and not study.plan_file.exists():
        STEPS["plan"].run(context_of(question), console)
    elif open_runs:
        console.print(cost_table(Context(question, study), [r for r in study.read_plan() if study.state(r) != "done"]))
    state = "not begun" if open_runs is None else f"{open_runs} runs to train"
    lines = missing if open_runs == 0 else [f"{study.folder}: {state}"]
    message = f"{'; '.join(lines)}; {RUN_HINT}"
    if readings and len(missing) == len(readings):
        raise StudyError(message)
    print_items([f"{message}; made from the finished runs"], console)
    return Exit.DONE


def _run(study: Study, question: Question, readings: Sequence[StudyReader], console: Console) -> Exit:
    steps = steps_between("prepare", "train") if _open_runs(study) != 0 else []
    after = list(dict.fromkeys(verb for reading in readings for verb in reading.verbs))
    for step in [*steps, *after]:
        if step == after[0] and (waiting := _open_runs(study)):
            console.print(f"{waiting} runs are queued: run the same command when they are done", highlight=False)
            return Exit.RUN_ME_AGAIN
        verb, *overrides = shlex.split(step)
        console.rule(step, align="left")
        variant = load_question(study.folder / "study.yaml", overrides) if overrides else question
        variant.name, variant.studies = question.name, question.studies
        if (code := STEPS[verb].run(context_of(variant), console)) != Exit.DONE:
            return code
    return Exit.DONE


def _open_runs(study: Study) -> int | None:
    """Planned runs that are not done; None: nothing is planned, unless the study is kept without its runs."""
    if not study.runs.exists() and (study.folder / "study.yaml").exists():
        return 0 if any((study.folder / name).exists() for name in ("points.parquet", "confirmation.json")) else None
    if not study.plan_file.exists():
        return None
    return sum(study.state(run) != "done" for run in study.read_plan())


def _question(reading: StudyReader, overrides: Sequence[str]) -> Question:
    """The question of the experiment whose study exists; else of the one whose texts are on this machine."""
    questions, mistakes = [], []
    for experiment in filter(None, (reading.experiment, reading.fallback)):
        try:
            question = read_question([f"experiment={experiment}", *overrides])
        except ConfigError as error:  # For example, the folder of its texts is not given.
            mistakes.append(error)
            continue
        folder = Path(question.studies) / question.name
        if (folder / "study.yaml").exists():
            return question_of_study(folder, overrides)
        questions.append(question)
    if not questions:
        raise mistakes[-1]
    with_texts = [one for one in questions if not one.corpora.folder or Path(one.corpora.folder).is_dir()]
    return [*with_texts, *questions][0]
