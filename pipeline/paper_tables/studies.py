"""The studies that tables are made from: what is missing, what it costs, and how it comes about."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from pipeline.cli import terminal_tables as present
from pipeline.cli import verbs
from pipeline.paper_tables.catalogue import READINGS, TABLES
from pipeline.paper_tables.table import Reading, Source
from pipeline.plan import cost
from pipeline.plan.prepare import machine_record
from pipeline.question.loading import ConfigError, load_question, question_of_study, read_question
from pipeline.question.schema import Question
from pipeline.study.folder import Study, StudyError
from training.run import Exit

RUN = "tables.run=true sees to it, and goes on where it was stopped"


def every_study(words: Sequence[str], console: Console) -> Exit:
    """Make every table that is asked for, from the studies of its experiment: `cptlaw tables` without a study.

    Returns:
        DONE; INPUT_MISSING where a study is missing and tables.run is not asked for; what stopped a training.

    Raises:
        ConfigError: a mistake in the words.
    """
    console.print("the studies of the papers' tables, each in its own folder", highlight=False)
    code, asked = Exit.DONE, None
    for readings in _by_experiment().values():
        if asked is not None and not any(TABLES[name].reads in readings for name in asked):
            continue
        question = _question(READINGS[readings[0]], words)
        asked = question.tables.names or list(TABLES)
        if wrong := [name for name in asked if name not in TABLES]:
            raise ConfigError([f"tables.names: {name!r}; allowed: {', '.join(TABLES)}" for name in wrong])
        question.tables.names = [name for name in asked if TABLES[name].reads in readings]
        if not question.tables.names:
            continue
        console.rule(f"{question.name}: tables {question.tables.names[0]} to {question.tables.names[-1]}", align="left")
        try:
            own = verbs.carry_out("tables", question, console)
        except StudyError as error:
            console.print(str(error), highlight=False, markup=False, soft_wrap=True)
            own = Exit.INPUT_MISSING
        if own not in (Exit.DONE, Exit.INPUT_MISSING):
            return own
        code = max(code, own)
    return code


def brought_about(study: Study, question: Question, console: Console) -> Exit:
    """See that there is a study to make tables from; with tables.run train what is missing.

    Returns:
        DONE, also with a part of the runs, which is told; else what stopped the training.

    Raises:
        StudyError: nothing is there, and tables.run is not asked for; the price is printed before.
    """
    asked = question.tables
    names = [name for name in asked.names if name in TABLES]
    wanted = {TABLES[name].reads for name in names} or {name for name, own in READINGS.items() if own.of(question)}
    readings = [READINGS[name] for name in READINGS if name in wanted]
    open_runs = _open(study)
    missing = _missing(readings, study, question)
    if asked.points or not (missing or open_runs):
        return Exit.DONE
    if asked.run:
        return _run(study, question, readings, console)
    if open_runs != 0:
        _price(study, question, console)
    lacks = [f"{study.folder}: {open_runs} runs to train"] if open_runs else []
    lacks = lacks or missing if open_runs is not None else [f"{study.folder}: not begun"]
    line = f"{'; '.join(lacks)}; {RUN}"
    if readings and len(missing) == len(readings):
        raise StudyError(line)
    console.print(f"{line}; made now from what there is", highlight=False, markup=False, soft_wrap=True)
    return Exit.DONE


def _run(study: Study, question: Question, readings: Sequence[Reading], console: Console) -> Exit:
    steps = ["prepare", "plan", "train"] if _open(study) != 0 else []
    after = list(dict.fromkeys(verb for reading in readings for verb in reading.verbs))
    for step in [*steps, *after]:
        if step == after[0] and (waiting := _open(study)):
            console.print(f"{waiting} runs are queued: the same command again when they are done", highlight=False)
            return Exit.RUN_ME_AGAIN
        verb, *words = shlex.split(step)
        console.rule(step, align="left")
        own = load_question(study.folder / "study.yaml", words) if words else question
        own.name, own.studies = question.name, question.studies
        if (code := verbs.carry_out(verb, own, console)) != Exit.DONE:
            return code
    return Exit.DONE


def _open(study: Study) -> int | None:
    """Planned runs that are not done; None: nothing is planned, unless the study is kept without its runs."""
    if not study.runs.exists() and (study.folder / "study.yaml").exists():
        return 0 if any((study.folder / name).exists() for name in ("points.parquet", "confirmation.json")) else None
    if not study.plan_file.exists():
        return None
    return sum(study.state(run) != "done" for run in study.read_plan())


def _missing(readings: Sequence[Reading], study: Study, question: Question) -> list[str]:
    """What cannot be read, a line each."""
    lines = []
    for reading in readings:
        try:
            reading.read(Source(study, question))
        except StudyError as error:
            lines.append(str(error))
    return lines


def _price(study: Study, question: Question, console: Console) -> None:
    if not study.plan_file.exists():
        verbs.carry_out("plan", question, console)
    elif runs := [run for run in study.read_plan() if study.state(run) != "done"]:
        speed = (machine_record(study) or {}).get("flops_per_second")
        console.print(present.cost_table(cost.costs(runs, speed, question), question))


def _by_experiment() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, reading in READINGS.items():
        found.setdefault(reading.experiment, []).append(name)
    return found


def _question(reading: Reading, words: Sequence[str]) -> Question:
    """Of the experiment that there is a study of; else of that whose texts are here."""
    questions, mistakes = [], []
    for experiment in filter(None, (reading.experiment, reading.otherwise)):
        try:
            own = read_question([f"experiment={experiment}", *words])
        except ConfigError as error:  # The folder of its texts is not named, say.
            mistakes.append(error)
            continue
        folder = Path(own.studies) / own.name
        if (folder / "study.yaml").exists():
            return question_of_study(folder, words)
        questions.append(own)
    if not questions:
        raise mistakes[-1]
    with_texts = [own for own in questions if not own.corpora.folder or Path(own.corpora.folder).is_dir()]
    return [*with_texts, *questions][0]
