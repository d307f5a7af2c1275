"""Tables as people read them, the paper's numbers beside ours: on the terminal, as Markdown and as a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import pandas as pd
from rich.console import Console

from pipeline.papers.table import Table
from pipeline.papers.verdict import RULE
from pipeline.show.report.page import page
from pipeline.show.table import Table as Cells

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
    table: Table
    cells: pd.DataFrame
    """A row per cell: the table's keys, `paper` and `ours`; NaN: no number."""
    verdict: str
    """One of those of `pipeline.papers.verdict`."""
    why: str
    """The reason, a sentence."""
    note: str = ""
    """The method, where it is not obvious."""


class Column(NamedTuple):
    """A column of a table as it is shown: values of the keys that are columns, heading, and paper, here, or both."""

    at: tuple[str, ...]
    name: str
    sides: list[str]


def verdicts(results: Iterable[Result]) -> pd.DataFrame:
    """A row per table: table, title, verdict, why, note."""
    rows = [(result.name, result.table.title, result.verdict, result.why, result.note) for result in results]
    return pd.DataFrame(rows, columns=[*_HEAD, "note"])


def markdown(results: list[Result], provenance: str) -> str:
    """All tables as Markdown, the verdicts and their rule first."""
    parts = ["# The papers' tables", provenance, pipes(verdicts(results)[[*_HEAD]].itertuples(index=False), _HEAD)]
    parts += ["The rule of the verdicts:", RULE]
    for result in results:
        parts += [f"## {numbered(result.name)}: {result.table.title}", f"{_capital(result.verdict)}."]
        parts += [result.why, result.note, side_by_side(result)]
    return "\n\n".join(filter(None, parts)) + "\n"


def side_by_side(result: Result) -> str:
    """The cells as a Markdown table, the paper's column beside ours; empty where there are none."""
    names, columns, rows = wide(result)
    return pipes(([*key, *chain(*cells)] for key, cells in rows), _headings(names, columns)) if rows else ""


def tables_page(study: str, results: list[Result], provenance: str) -> str:
    """tables.html of a study: the verdicts, their rule, then every table; `provenance` in sentences."""
    counts = Counter(result.verdict for result in results)
    listed = "; ".join(f"{verdict}: {count}" for verdict, count in counts.most_common())
    summary = f"{len(results)} tables of the papers: {listed}."
    rows = [[numbered(result.name), result.table.title, result.verdict, result.why] for result in results]
    overview = Cells("Verdicts", ["table", "title", "verdict", "why"], rows, left=4, words=True)
    return page(
        "papers.html", study, "the papers' tables, beside ours", summary, provenance=provenance,
        overview=overview, rules=RULE.split("\n\n"), results=[(result, _cells(result)) for result in results],
    )  # fmt: skip


def _cells(result: Result) -> Cells:
    title = f"{numbered(result.name)}: {result.table.title}"
    names, columns, rows = wide(result)
    body = [[*key, *chain(*numbers)] for key, numbers in rows]
    return Cells(title, _headings(names, columns), body, result.note, left=len(names))


def print_tables(results: list[Result], console: Console) -> None:
    """Print every table on the terminal, the verdicts last."""
    for result in results:
        names, columns, rows = wide(result)
        if not rows:
            continue
        sides = dict.fromkeys(side for column in columns for side in column.sides)
        both = any(len(column.sides) > 1 for column in columns)
        caption = f"{'paper | here' if both else ' and '.join(sides)}. {result.note}"
        body = [[*key, *map(" | ".join, cells)] for key, cells in rows]
        heads = [*names, *(column.name for column in columns)]
        title = f"{numbered(result.name)}: {result.table.title}"
        console.print(Cells(title, heads, body, caption, left=len(names), words=True))
    columns = ["table", "verdict", "why"]
    rows = [[getattr(result, name) for name in ("name", "verdict", "why")] for result in results]
    console.print(Cells("do they hold here?", columns, rows, left=len(columns), words=True))


def numbered(name: str) -> str:
    """A table's name in words.

    >>> numbered("dcpt-1"), numbered("dynamics-figure-3")
    ('D-CPT table 1', 'Dynamics figure 3')
    """
    paper, *kind, number = name.split("-")
    return f"{PAPERS[paper]} {kind[0] if kind else 'table'} {number}"


def wide(result: Result) -> tuple[list[str], list[Column], list[tuple[list[str], list[list[str]]]]]:
    """The table as rows and columns.

    Returns:
        Names of the keys that are rows; the columns; of each row its keys, and for each column the numbers of its
        sides: the paper's, ours, or both, where there are any.
    """
    across = [name for name in result.table.keys if name in result.table.across]
    names = [name for name in result.table.keys if name not in across]
    order, columns, rows = list(_LABELS), [], []
    for at, cells in result.cells.groupby(across, sort=False):
        key = tuple(map(str, at))  # pyright: ignore[reportArgumentType]
        sides = [side for side, column in _SIDES.items() if cells[column].notna().any()]
        columns.append(Column(key, " ".join(_LABELS.get(part, part) for part in key), sides))
    columns.sort(key=lambda column: [order.index(part) if part in order else -1 for part in column.at])
    for key, cells in result.cells.groupby(names, sort=False):
        at = cells.set_index(across)
        numbers = [[_number(at, column.at, _SIDES[side]) for side in column.sides] for column in columns]
        rows.append(([*map(str, key)], numbers))
    return names, columns, rows


def _headings(names: list[str], columns: list[Column]) -> list[str]:
    return [*names, *(f"{column.name}, {side}" for column in columns for side in column.sides)]


def _number(at: pd.DataFrame, column: tuple[str, ...], side: str) -> str:
    place = column if len(column) > 1 else "".join(column)
    if place not in at.index or pd.isna(value := float(at.loc[place, side])):  # pyright: ignore
        return ""
    # A law that fails to extrapolate can have an R2 of any size.
    if "r2" in column and value > -10:
        return f"{value:.4f}"
    return f"{value:.3g}" if "huber" in column else f"{value:.5g}"


def pipes(rows: Iterable[Iterable[object]], head: Iterable[str]) -> str:
    """A Markdown table."""

    head = list(head)
    return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in (head, ["---"] * len(head), *rows))


def _capital(words: str) -> str:
    return words[0].upper() + words[1:]
