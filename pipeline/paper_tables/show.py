"""Tables as people read them: the paper's numbers and ours in turn, on the terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import pandas as pd
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from pipeline.paper_tables.table import Table
from pipeline.paper_tables.verdict import RULE

PAPERS = {"dcpt": "D-CPT", "dynamics": "Dynamics", "autoscale": "AutoScale"}
"""First part of a table's name -> the paper."""
_HEAD = ("table", "title", "verdict", "why")
_SIDES = {"paper": "paper", "here": "ours"}
_WORDS = {"G": "general", "D": "domain", "huber": "Huber", "r2": "R2"}


@dataclass(frozen=True, eq=False)
class Shown:
    """A table that was made."""

    name: str
    """As in TABLES."""
    table: Table
    """What it is."""
    cells: pd.DataFrame
    """A row a cell: the table's keys, `paper` and `ours`; NaN: no number."""
    verdict: str
    """As `pipeline.paper_tables.verdict` has them."""
    why: str
    """A sentence."""
    note: str = ""
    """How ours came about, where that is not plain."""


def verdicts(made: Iterable[Shown]) -> pd.DataFrame:
    """A row a table: table, title, verdict, why, note."""
    rows = [(shown.name, shown.table.title, shown.verdict, shown.why, shown.note) for shown in made]
    return pd.DataFrame(rows, columns=[*_HEAD, "note"])


def markdown(made: list[Shown], provenance: str) -> str:
    """All tables, the verdicts and their rule first."""
    parts = ["# The papers' tables", provenance, pipes(verdicts(made)[[*_HEAD]].itertuples(index=False), _HEAD)]
    parts += ["How a verdict is reached:", RULE]
    for shown in made:
        parts += [f"## {numbered(shown.name)}: {shown.table.title}", f"{shown.verdict[0].upper()}{shown.verdict[1:]}."]
        parts += [shown.why, *([shown.note] if shown.note else []), side_by_side(shown)]
    return "\n\n".join(filter(None, parts)) + "\n"


def side_by_side(shown: Shown) -> str:
    """The cells as a Markdown table, the paper's column beside ours; empty where there are none."""
    names, columns, rows = wide(shown)
    head = [*names, *(f"{column.name}, {side}" for column in columns for side in column.sides)]
    return pipes(([*key, *chain(*cells)] for key, cells in rows), head) if rows else ""


def on_terminal(made: list[Shown], console: Console) -> None:
    """Print every table, the verdicts last, where the eye is."""
    for shown in made:
        names, columns, rows = wide(shown)
        if rows:
            both = "paper | here. " if any(len(column.sides) > 1 for column in columns) else ""
            alone = {side for column in columns for side in column.sides} if not both else ()
            caption = f"{both or ' and '.join(alone) + '. '}{shown.note}"
            together = [[*key, *map(" | ".join, cells)] for key, cells in rows]
            heads = [*names, *(column.name for column in columns)]
            console.print(_rich(heads, together, f"{numbered(shown.name)}: {shown.table.title}", caption))
    told = verdicts(made)[["table", "verdict", "why"]]
    console.print(_rich(list(told.columns), list(told.itertuples(index=False)), "do they hold here?", ""))


def numbered(name: str) -> str:
    """A table as people call it.

    >>> numbered("dcpt-1"), numbered("dynamics-figure-3")
    ('D-CPT table 1', 'Dynamics figure 3')
    """
    paper, *kind, number = name.split("-")
    return f"{PAPERS[paper]} {kind[0] if kind else 'table'} {number}"


@dataclass(frozen=True)
class Column:
    """Cells under each other."""

    at: tuple[str, ...]
    """Values of the keys that stand side by side."""
    name: str
    """Heading."""
    sides: list[str]
    """paper, here, or both."""


def wide(shown: Shown) -> tuple[list[str], list[Column], list[tuple[list[str], list[list[str]]]]]:
    """Names of the keys that have rows, the columns, and the rows: their keys, and for each column the numbers of its
    sides: the paper's, ours, or both, as there are any."""
    across = [name for name in shown.table.keys if name in shown.table.across]
    names = [name for name in shown.table.keys if name not in across]
    order, columns, rows = list(_WORDS), [], []
    for at, own in shown.cells.groupby(across, sort=False):
        key = tuple(map(str, at))  # pyright: ignore[reportArgumentType]
        sides = [side for side, of in _SIDES.items() if own[of].notna().any()]
        columns.append(Column(key, " ".join(_WORDS.get(part, part) for part in key), sides))
    columns.sort(key=lambda column: [order.index(part) if part in order else -1 for part in column.at])
    for key, own in shown.cells.groupby(names, sort=False):
        at = own.set_index(across)
        numbers = [[_number_of(at, column.at, _SIDES[side]) for side in column.sides] for column in columns]
        rows.append(([*map(str, key)], numbers))
    return names, columns, rows


def _number_of(at: pd.DataFrame, column: tuple[str, ...], side: str) -> str:
    place = column if len(column) > 1 else "".join(column)
    if place not in at.index or pd.isna(value := float(at.loc[place, side])):  # pyright: ignore
        return ""
    # A law that fails beyond its points does so by any factor.
    if "r2" in column and value > -10:
        return f"{value:.4f}"
    return f"{value:.3g}" if "huber" in column else f"{value:.5g}"


def pipes(rows: Iterable[Iterable[object]], head: Iterable[str]) -> str:
    """A Markdown table."""

    def line(cells: Iterable[object]) -> str:
        return f"| {' | '.join(str(cell) for cell in cells)} |"

    def lines() -> Iterator[str]:
        yield line(head)
        yield line("---" for _ in head)
        yield from map(line, rows)

    return "\n".join(lines())


def _rich(head: list[str], rows: list, title: str, caption: str) -> RichTable:
    table = RichTable(title=title, caption=Text(caption) if caption else None)
    for name in head:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    return table
