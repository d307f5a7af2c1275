"""Make the tables of a study, and write them to disk and to the terminal."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
from rich.console import Console

from fitting import PointsError
from pipeline.papers.catalogue import PAPERS_VARIABLE, READINGS, TABLES, paper_folder
from pipeline.papers.figures import figures
from pipeline.papers.show import Result, markdown, print_tables, tables_page, verdicts
from pipeline.papers.table import PaperStudy, judged, paper_numbers
from pipeline.papers.verdict import UNKNOWN
from pipeline.question.messages import ConfigError
from pipeline.question.schema import Question
from pipeline.study.folder import Study, StudyError
from training.durable import write_whole
from training.run import Exit


def make_tables(study: Study, question: Question, console: Console) -> Exit:
    """Make the tables of `tables.names`; write tables/<name>.csv, tables/verdicts.csv, tables.md and tables.html.

    Raises ConfigError: unknown tables, or a missing folder of the papers' numbers; all at once. StudyError: the study
    has the input of none of the tables.
    """
    log = partial(console.print, highlight=False, markup=False, soft_wrap=True)
    names, papers = _selection(question)
    source = PaperStudy(study, question, log)
    inputs: dict[str, object] = {}
    for name in dict.fromkeys(TABLES[name].reads for name in names):
        try:
            inputs[name] = READINGS[name].read(source)
        except StudyError as error:
            inputs[name] = error
    errors = [data for data in inputs.values() if isinstance(data, StudyError)]
    if inputs and len(errors) == len(inputs):
        raise errors[0]
    if papers is None:
        log(f"without the papers' numbers: to compare, give tables.papers=FOLDER or set {PAPERS_VARIABLE}")
    results = tables_of(inputs, names, papers, log)
    folder = study.folder / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    for result in results:
        write_whole(folder / f"{result.name}.csv", result.cells.to_csv(index=False))
    write_whole(folder / "verdicts.csv", verdicts(results).to_csv(index=False))
    provenance = _provenance(source, inputs)
    write_whole(study.folder / "tables.md", markdown(results, provenance))
    drawn = figures(inputs, results) if find_spec("plotly") else []
    if not find_spec("plotly"):
        log("without figures: they need plotly, pip install -e '.[report]'")
    write_whole(study.folder / "tables.html", tables_page(study.folder, results, provenance, drawn))
    print_tables(results, console)
    log(f"{len(results)} table{'s' * (len(results) != 1)} in {folder}, {study.folder / 'tables.md'} and tables.html")
    return Exit.DONE


def tables_of(
    inputs: Mapping[str, object], names: list[str], papers: Path | None, log: Callable[[str], object] = print
) -> list[Result]:
    """Our numbers beside the paper's (None: only ours), and the verdict; a table that cannot be made gives the reason.

    `inputs`: name of READINGS -> the input of its tables, or the StudyError of reading it; `log` receives a line for
    each table that takes over two seconds. StudyError: a file of the papers' numbers lacks a column.
    """
    results = []
    for name in names:
        table, start = TABLES[name], time.perf_counter()
        paper = paper_numbers(papers, table)
        data = inputs[table.reads]
        try:
            if isinstance(data, StudyError):
                raise data
            ours, error = table.make(data), ""
        except (PointsError, StudyError) as reason:
            ours, error = pd.DataFrame(columns=[*table.keys, "value"]), f"Not made: {reason}."
        cells = _beside(paper, ours, list(table.keys))
        if error:
            verdict, why = UNKNOWN, error
        elif "verdict" in ours.attrs:
            verdict, why = ours.attrs["verdict"]
        else:
            verdict, why = judged(table, cells)
        results.append(Result(name, table, cells, verdict, why, ours.attrs.get("note", "")))
        if (seconds := time.perf_counter() - start) > 2:
            log(f"{name}: {seconds:.0f} s")
    return results


def _selection(question: Question) -> tuple[list[str], Path | None]:
    names = question.tables.names or [name for name, table in TABLES.items() if READINGS[table.reads].applies(question)]
    errors = [f"tables.names: {name!r}; allowed: {', '.join(TABLES)}" for name in names if name not in TABLES]
    papers = None
    try:
        papers = paper_folder(question.tables.papers)
    except ConfigError as error:
        errors += error.lines
    if errors:
        raise ConfigError(errors)
    return names, papers


def _beside(paper: pd.DataFrame | None, ours: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    ours = ours.rename(columns={"value": "ours"})
    if paper is None:
        return ours.assign(paper=float("nan"))[[*keys, "paper", "ours"]]
    printed, measured = paper.set_index(keys)["value"], ours.set_index(keys)["ours"].astype(float)
    order = printed.index.append(measured.index.difference(printed.index, sort=False))
    return pd.DataFrame({"paper": printed.reindex(order), "ours": measured.reindex(order)}).reset_index()


def _provenance(source: PaperStudy, inputs: Mapping[str, object]) -> str:
    name, settings = source.study.folder.resolve().name, source.question.tables
    made = [READINGS[name] for name, data in inputs.items() if not isinstance(data, StudyError)]
    # Readings of one input say the same of it.
    summaries = dict.fromkeys(reading.summary(source) for reading in made)
    overrides = f"tables.from_step={settings.from_step} tables.min_ratio={settings.min_ratio:g}"
    head = f"From the study {name}, by cptlaw {version('cptlaw')}. {' '.join(summaries)}".strip()
    return f"{source.question.marked(head)} Made by `cptlaw tables studies/{name} {overrides}`."
