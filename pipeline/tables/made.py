"""cptlaw tables: from a study's points to the tables on disk and on the terminal."""

from __future__ import annotations

import time
from importlib.metadata import version
from pathlib import Path

import pandas as pd
from rich.console import Console

from fitting import PointsError
from pipeline.collect import read_points
from pipeline.config import ConfigError
from pipeline.schema import Question
from pipeline.study import Study
from pipeline.tables.catalogue import TABLES
from pipeline.tables.material import Material
from pipeline.tables.paper import VARIABLE, paper_folder, printed
from pipeline.tables.shown import Shown, markdown, on_terminal, verdicts
from pipeline.tables.verdict import UNKNOWN, judge
from training.durable import write_whole
from training.run import Exit


def make_tables(study: Study, question: Question, console: Console) -> Exit:
    """Make the tables of `tables.names` from points.parquet; writes tables/<name>.csv, tables/verdicts.csv, tables.md.

    Raises:
        ConfigError: an unknown table, a folder of the papers' numbers that is not there; all at once.
        StudyError: no points.
    """
    names, papers = _asked(question)
    points = read_points(study)

    def tell(line: str) -> None:
        console.print(line, highlight=False, markup=False, soft_wrap=True)

    if papers is None:
        tell(f"the papers' numbers are not at hand, ours stand alone: give tables.papers=FOLDER or set {VARIABLE}")
    made = tables_of(material_of(points, question, tell), names, papers)
    folder = study.folder / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    for shown in made:
        write_whole(folder / f"{shown.name}.csv", shown.cells.to_csv(index=False))
    write_whole(folder / "verdicts.csv", verdicts(made).to_csv(index=False))
    write_whole(study.folder / "tables.md", markdown(made, _provenance(study, question, points)))
    on_terminal(made, console)
    tell(f"{len(made)} tables in {folder} and {study.folder / 'tables.md'}")
    return Exit.DONE


def material_of(points: pd.DataFrame, question: Question, tell=lambda line: None) -> Material:
    """What the tables read of a study's points: continual runs planned for the fit."""
    corpora = question.corpora
    domains = tuple(corpora.domains or [corpora.domain])
    chosen = points[(points["phase"] == "continual") & (points["role"] == "fit")]
    return Material(chosen, corpora.general, domains, question.tables.from_step, question.tables.least_share, tell)


def tables_of(material: Material, names: list[str], papers: Path | None) -> list[Shown]:
    """Our numbers beside the paper's, and the verdict; a table that the points do not allow says why.

    Raises:
        StudyError: a file of the papers' numbers that lacks a column.
    """
    found = []
    for name in names:
        table, start = TABLES[name], time.perf_counter()
        paper = printed(papers, table.file, table.keys)
        try:
            ours, why = table.make(material), ""
        except PointsError as error:
            ours, why = pd.DataFrame(columns=[*table.keys, "value"]), f"Not made: {error}."
        cells = _beside(paper, ours, table.keys)
        verdict, reason = (UNKNOWN, why) if why else judge(cells, table.subject, table.alike)
        found.append(Shown(name, table, cells, verdict, reason, ours.attrs.get("note", "")))
        if (seconds := time.perf_counter() - start) > 2:
            material.tell(f"{name}: {seconds:.0f} s")
    return found


def _asked(question: Question) -> tuple[list[str], Path | None]:
    names = question.tables.names or list(TABLES)
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


def _provenance(study: Study, question: Question, points: pd.DataFrame) -> str:
    runs, name, asked = points["run"].nunique(), study.folder.resolve().name, question.tables
    words = f"tables.from_step={asked.from_step} tables.least_share={asked.least_share:g}"
    return (
        f"From the study {name}: {len(points):,} points of {runs} runs, by cptlaw {version('cptlaw')}. Fitted: points "
        f"from step {asked.from_step} on, of runs with {asked.least_share:g} or more of the corpus that is predicted. "
        f"Made by `cptlaw tables studies/{name} {words}`."
    )
