"""cptlaw tables: from a study to the tables on disk and on the terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from fitting import PointsError
from pipeline.paper_tables.catalogue import READINGS, TABLES
from pipeline.paper_tables.page import tables_page
from pipeline.paper_tables.paper_numbers import VARIABLE, paper_folder, printed
from pipeline.paper_tables.show import Shown, markdown, on_terminal, verdicts
from pipeline.paper_tables.table import Source
from pipeline.paper_tables.verdict import UNKNOWN, judge
from pipeline.question.loading import ConfigError
from pipeline.question.schema import Question
from pipeline.study.folder import Study, StudyError
from training.durable import write_whole
from training.run import Exit


def make_tables(study: Study, question: Question, console: Console) -> Exit:
    """Make the tables of `tables.names` from what the study has; writes tables/<name>.csv, tables/verdicts.csv,
    tables.md and tables.html.

    Raises:
        ConfigError: an unknown table, a folder of the papers' numbers that is not there; all at once.
        StudyError: nothing that a table is made from.
    """

    def log(line: str) -> None:
        console.print(line, highlight=False, markup=False, soft_wrap=True)

    names, papers = _asked(question)
    source = Source(study, question, log)
    given = _read(source, list(dict.fromkeys(TABLES[name].reads for name in names)))
    if papers is None:
        log(f"the papers' numbers are not at hand, ours stand alone: give tables.papers=FOLDER or set {VARIABLE}")
    made = tables_of(given, names, papers, log)
    folder = study.folder / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    for shown in made:
        write_whole(folder / f"{shown.name}.csv", shown.cells.to_csv(index=False))
    write_whole(folder / "verdicts.csv", verdicts(made).to_csv(index=False))
    provenance = _provenance(source, given)
    write_whole(study.folder / "tables.md", markdown(made, provenance))
    write_whole(study.folder / "tables.html", tables_page(study.folder.resolve().name, made, provenance))
    on_terminal(made, console)
    log(f"{len(made)} table{'s' * (len(made) != 1)} in {folder}, {study.folder / 'tables.md'} and tables.html")
    return Exit.DONE


def tables_of(
    given: Mapping[str, Any], names: list[str], papers: Path | None, log: Callable[[str], object] = lambda line: None
) -> list[Shown]:
    """Our numbers beside the paper's, and the verdict; a table that cannot be made says why.

    Args:
        given: name of READINGS -> what its tables are made from, or the error that says why it is not there.
        names: of TABLES.
        papers: folder of the papers' numbers; None: ours stand alone.
        log: is given a line for each table that takes over two seconds.

    Raises:
        StudyError: a file of the papers' numbers that lacks a column.
    """
    found = []
    for name in names:
        table, start = TABLES[name], time.perf_counter()
        paper = printed(papers, table)
        read = given[table.reads]
        try:
            if isinstance(read, StudyError):
                raise read
            ours, why = table.make(read), ""
        except (PointsError, StudyError) as error:
            ours, why = pd.DataFrame(columns=[*table.keys, "value"]), f"Not made: {error}."
        cells = _beside(paper, ours, list(table.keys))
        if why:
            verdict, reason = UNKNOWN, why
        elif "verdict" in ours.attrs:
            verdict, reason = ours.attrs["verdict"]
        else:
            verdict, reason = table.judge(cells) if table.judge else judge(cells, table.subject, table.alike)
        found.append(Shown(name, table, cells, verdict, reason, ours.attrs.get("note", "")))
        if (seconds := time.perf_counter() - start) > 2:
            log(f"{name}: {seconds:.0f} s")
    return found


def _read(source: Source, readings: list[str]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for name in readings:
        try:
            given[name] = READINGS[name].read(source)
        except StudyError as error:
            given[name] = error
    missing = [read for read in given.values() if isinstance(read, StudyError)]
    if given and len(missing) == len(given):
        raise missing[0]
    return given


def _asked(question: Question) -> tuple[list[str], Path | None]:
    own = [name for name, table in TABLES.items() if READINGS[table.reads].of(question)]
    names = question.tables.names or own
    wrong = [f"tables.names: {name!r}; allowed: {', '.join(TABLES)}" for name in names if name not in TABLES]
    papers = None
    try:
        papers = paper_folder(question.tables.papers)
    except ConfigError as error:
        wrong += error.lines
    if wrong:
        raise ConfigError(wrong)
    return names, papers


def _beside(paper: pd.DataFrame | None, ours: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    ours = ours.rename(columns={"value": "ours"})
    if paper is None:
        return ours.assign(paper=float("nan"))[[*keys, "paper", "ours"]]
    printed_there, found_here = paper.set_index(keys)["value"], ours.set_index(keys)["ours"].astype(float)
    order = printed_there.index.append(found_here.index.difference(printed_there.index, sort=False))
    return pd.DataFrame({"paper": printed_there.reindex(order), "ours": found_here.reindex(order)}).reset_index()


def _provenance(source: Source, given: Mapping[str, Any]) -> str:
    name, asked = source.study.folder.resolve().name, source.question.tables
    said = [READINGS[reading].said(source) for reading, read in given.items() if not isinstance(read, StudyError)]
    words = f"tables.from_step={asked.from_step} tables.min_ratio={asked.min_ratio:g}"
    head = f"From the study {name}, by cptlaw {version('cptlaw')}. {' '.join(said)}".strip()
    return f"{head} Made by `cptlaw tables studies/{name} {words}`."
