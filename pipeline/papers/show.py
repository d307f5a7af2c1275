"""Tables as people read them, the paper's numbers beside ours: on the terminal, as Markdown and as a page."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pandas as pd
from rich.console import Console

from pipeline.papers.table import PaperTable
from pipeline.papers.verdict import RULE
from pipeline.show.report.marks import Figure
from pipeline.show.report.page import page
from pipeline.show.table import Table

PAPERS = {"dcpt": "D-CPT", "dynamics": "Dynamics", "autoscale": "AutoScale"}
"""First part of a table's name -> the paper."""
_HEAD = ("table", "title", "verdict", "why")
_SIDES = {"paper": "paper", "here": "ours"}
_LABELS = {"G": "general", "D": "domain", "huber": "Huber", "r2": "R2"}


@dataclass(frozen=True, eq=False)
class Result:
    """A table with our numbers, the paper's and the verdict."""

    name: str
    """As in TABLES."""
    table: PaperTable
    cells: pd.DataFrame
    """A row per cell: the table's keys, `paper` and `ours`; NaN: no number."""
    verdict: str
    """One of those of `pipeline.papers.verdict`."""
    why: str
    note: str = ""
    """The method, where it is not obvious."""

    @property
    def title(self) -> str:
        """Paper, number and title."""
        return f"{numbered(self.name)}: {self.table.title}"


def verdicts(results: Iterable[Result]) -> pd.DataFrame:
    """A row per table: table, title, verdict, why, note."""
    rows = [(result.name, result.table.title, result.verdict, result.why, result.note) for result in results]
    return pd.DataFrame(rows, columns=[*_HEAD, "note"])


def markdown(results: list[Result], provenance: str) -> str:
    """All tables as Markdown, the verdicts and their rule first."""
    parts = ["# The papers' tables", provenance, _pipes(_HEAD, verdicts(results)[[*_HEAD]].to_numpy())]
    parts += ["The rule of the verdicts:", RULE]
    for result in results:
        table = _side_by_side(result)
        parts += [f"## {result.title}", f"{result.verdict[0].upper()}{result.verdict[1:]}.", result.why, result.note]
        parts += [_pipes(table.columns, table.rows)] if table.rows else []
    return "\n\n".join(filter(None, parts)) + "\n"


def _pipes(head: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    head = list(head)
    return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in (head, ["---"] * len(head), *rows))


def tables_page(study: Path, results: list[Result], provenance: str, figures: list[tuple[str, Figure]]) -> str:
    """tables.html of a study: the verdicts, their rule, figures by caption, then every table; `provenance` as text."""
    counts = Counter(result.verdict for result in results)
    listed = "; ".join(f"{verdict}: {count}" for verdict, count in counts.most_common())
    rows = [[numbered(result.name), result.table.title, result.verdict, result.why] for result in results]
    return page(
        "papers.html", (study, "tables.html"), "the papers' tables, beside ours",
        f"{len(results)} table{'s' * (len(results) != 1)} of the papers: {listed}.",
        provenance=provenance, overview=Table("Verdicts", _HEAD, rows, left=4, words=True), rules=RULE.split("\n\n"),
        drawn=figures, results=[(result, _side_by_side(result)) for result in results],
    )  # fmt: skip


def _side_by_side(result: Result) -> Table:
    """The cells, the paper's column beside ours; without rows where there are none."""
    names, columns, rows = _wide(result)
    heads = [*names, *(f"{name}, {side}" for name, sides in columns for side in sides)]
    return Table(result.title, heads, [[*key, *chain(*numbers)] for key, numbers in rows], result.note, len(names))


def print_tables(results: list[Result], console: Console) -> None:
    """Print every table on the terminal, the verdicts last."""
    for result in results:
        names, columns, rows = _wide(result)
        if not rows:
            continue
        sides = [sides for _, sides in columns]
        both = "paper | here" if max(map(len, sides)) > 1 else " and ".join(dict.fromkeys(chain(*sides)))
        body = [[*key, *map(" | ".join, cells)] for key, cells in rows]
        heads = [*names, *(name for name, _ in columns)]
        console.print(Table(result.title, heads, body, f"{both}. {result.note}", left=len(names), words=True))
    columns = ["table", "verdict", "why"]
    rows = [[result.name, result.verdict, result.why] for result in results]
    console.print(Table("do they hold here?", columns, rows, left=len(columns), words=True))


def numbered(name: str) -> str:
    """A table's name in words.

    >>> numbered("dcpt-1"), numbered("dynamics-figure-3")
    ('D-CPT table 1', 'Dynamics figure 3')
    """
    paper, *kind, number = name.split("-")
    return f"{PAPERS[paper]} {kind[0] if kind else 'table'} {number}"


def _wide(result: Result) -> tuple[list[str], list[tuple[str, list[str]]], list[tuple[list[str], list[list[str]]]]]:
    """Keys that are rows; heading and sides (paper, here) of each column; keys and, by column, numbers of each row."""
    across = [name for name in result.table.keys if name in result.table.across]
    names = [name for name in result.table.keys if name not in across]
    shown = result.cells.assign(**{name: result.cells[name].astype(str) for name in across})
    sides = {
        tuple(map(str, key)): [side for side, column in _SIDES.items() if cells[column].notna().any()]
        for key, cells in shown.groupby(across, sort=False)  # pyright: ignore[reportGeneralTypeIssues]
    }
    order = list(_LABELS)
    keys = sorted(sides, key=lambda key: [order.index(part) if part in order else -1 for part in key])
    columns = [(" ".join(_LABELS.get(part, part) for part in key), sides[key]) for key in keys]
    rows = []
    for row, cells in shown.groupby(names, sort=False):
        at = cells.set_index(across)
        rows.append(([*map(str, row)], [[_number(at, key, _SIDES[side]) for side in sides[key]] for key in keys]))
    return names, columns, rows


def _number(at: pd.DataFrame, column: tuple[str, ...], side: str) -> str:
    key = column if len(column) > 1 else "".join(column)
    if key not in at.index or pd.isna(value := float(at.loc[key, side])):  # pyright: ignore
        return ""
    # A law that fails to extrapolate can have an R2 of any size.
    if "r2" in column and value > -10:
        return f"{value:.4f}"
    return f"{value:.3g}" if "huber" in column else f"{value:.5g}"
