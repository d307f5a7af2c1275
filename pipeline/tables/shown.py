"""Tables as people read them: the paper's numbers and ours in turn, on the terminal and as Markdown."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, product

import pandas as pd
from rich.console import Console
from rich.table import Table as RichTable

from pipeline.tables import verdict as rule
from pipeline.tables.catalogue import Table
from pipeline.tables.material import CORPORA, METRICS

_WORDS = {"huber": "Huber", "r2": "R2", "G": "general", "D": "domain"}


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
    """As `pipeline.tables.verdict` has them."""
    why: str
    """A sentence."""
    note: str = ""
    """How ours came about, where that is not plain."""


def verdicts(made: Iterable[Shown]) -> pd.DataFrame:
    """A row a table: table, title, verdict, why."""
    rows = [(shown.name, shown.table.title, shown.verdict, shown.why) for shown in made]
    return pd.DataFrame(rows, columns=["table", "title", "verdict", "why"])


def markdown(made: list[Shown], provenance: str) -> str:
    """All tables, the verdicts and their rule first."""
    parts = ["# The D-CPT paper's tables", provenance, _pipes(verdicts(made).itertuples(index=False), _HEAD)]
    parts += ["How a verdict is reached:", inspect.cleandoc((rule.__doc__ or "").split("\n", 2)[2])]
    parts.append(
        f"CLEAR {rule.CLEAR:g}, MOST {rule.MOST:.0%}, FACTOR {rule.FACTOR:g}, ALIKE {rule.ALIKE:g}. Ours: the Huber "
        "loss is the sum over the judged points of log losses, delta 0.001; held out, the mean over the folds."
    )
    for shown in made:
        parts += [f"## {_number(shown)}: {shown.table.title}", f"{shown.verdict[0].upper()}{shown.verdict[1:]}."]
        parts += [shown.why, *([shown.note] if shown.note else [])]
        names, columns, rows = _wide(shown)
        if rows:
            head = [*names, *(f"{column}, {side}" for column in columns for side in _sides(shown))]
            parts.append(_pipes(([*key, *chain(*cells)] for key, cells in rows), head))
    return "\n\n".join(parts) + "\n"


def on_terminal(made: list[Shown], console: Console) -> None:
    """Print every table, the verdicts last, where the eye is."""
    for shown in made:
        names, columns, rows = _wide(shown)
        if rows:
            caption = f"{' | '.join(_sides(shown))}. {shown.note}"
            together = [[*key, *map(" | ".join, cells)] for key, cells in rows]
            console.print(_rich([*names, *columns], together, f"{_number(shown)}: {shown.table.title}", caption))
    told = verdicts(made).drop(columns="title")
    console.print(_rich(list(told.columns), list(told.itertuples(index=False)), "do they hold here?", ""))


_HEAD = ("table", "title", "verdict", "why")


def _number(shown: Shown) -> str:
    return f"D-CPT table {shown.name.split('-')[1]}"


def _sides(shown: Shown) -> list[str]:
    return ["paper", "here"] if shown.cells["paper"].notna().any() else ["here"]


def _wide(shown: Shown) -> tuple[list[str], list[str], list[tuple[list[str], list[list[str]]]]]:
    """Names of the keys, of the columns, and a row for each subject (and domain): its keys, and for each column the
    paper's number, where there is one, and ours."""
    table, cells = shown.table, shown.cells
    names = [name for name in table.keys if name not in ("corpus", "metric")]
    sides = {"paper": "paper", "here": "ours"}
    there = set(cells[["corpus", "metric"]].itertuples(index=False, name=None))
    columns = [column for column in product(CORPORA, METRICS) if column in there]
    rows = []
    for key, own in cells.groupby(names, sort=False):
        at = own.set_index(["corpus", "metric"])
        numbers = [[_number_of(at, column, sides[side]) for side in _sides(shown)] for column in columns]
        rows.append(([*map(str, key)], numbers))
    return names, [f"{_WORDS[corpus]} {_WORDS[metric]}" for corpus, metric in columns], rows


def _number_of(at: pd.DataFrame, column: tuple[str, str], side: str) -> str:
    if column not in at.index or pd.isna(value := float(at.loc[column, side])):  # pyright: ignore
        return ""
    # A law that fails beyond its points does so by any factor.
    return f"{value:.4f}" if column[1] == "r2" and value > -10 else f"{value:.3g}"


def _pipes(rows: Iterable[Iterable[object]], head: Iterable[str]) -> str:
    def line(cells: Iterable[object]) -> str:
        return f"| {' | '.join(str(cell) for cell in cells)} |"

    def lines() -> Iterator[str]:
        yield line(head)
        yield line("---" for _ in head)
        yield from map(line, rows)

    return "\n".join(lines())


def _rich(head: list[str], rows: list, title: str, caption: str) -> RichTable:
    table = RichTable(title=title, caption=caption or None)
    for name in head:
        table.add_column(name)
    for row in rows:
        table.add_row(*map(str, row))
    return table
