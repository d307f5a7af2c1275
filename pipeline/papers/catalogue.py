"""All tables that can be made, and their inputs. A new table is a function and an entry in its file's TABLES."""

from __future__ import annotations

import string

from pipeline.papers import autoscale
from pipeline.papers.dcpt import fits, near_zero, usages
from pipeline.papers.dynamics import tables as dynamics
from pipeline.papers.table import StudyReader, Table

READINGS: dict[str, StudyReader] = {
    **fits.READINGS,
    "weights": autoscale.READING,
    **dynamics.READINGS,
    **usages.READINGS,
    **near_zero.READINGS,
}
"""Name -> the input of a family of tables."""


def _order(item: tuple[str, Table]) -> tuple[int, int]:
    paper, *kind, number = item[0].split("-")
    place = int(number.rstrip(string.ascii_lowercase)) + (100 if kind else 0)
    return ["dcpt", "dynamics", "autoscale"].index(paper), place


TABLES: dict[str, Table] = dict(
    sorted(
        {**fits.TABLES, **usages.TABLES, **near_zero.TABLES, **dynamics.TABLES, **autoscale.TABLES}.items(), key=_order
    )
)
"""Name -> table: PAPER-NUMBER as the paper counts its tables, PAPER-figure-NUMBER for the numbers of a figure."""
