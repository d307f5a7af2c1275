"""All tables that can be made, and their inputs. A new table is a function and an entry in its file's TABLES."""

import string

from pipeline.papers import autoscale
from pipeline.papers.dcpt import fits, near_zero, points, usages
from pipeline.papers.dynamics import tables as dynamics
from pipeline.papers.table import StudyReader, Table

READINGS: dict[str, StudyReader] = {
    **{"six": points.READING, "weights": autoscale.READING, **dynamics.READINGS, **usages.READINGS},
    "near-zero": near_zero.READING,
}
"""Name -> the input of a family of tables."""


def _order(item: tuple[str, Table]) -> tuple[int, int]:
    paper, *kind, number = item[0].split("-")
    place = int(number.rstrip(string.ascii_lowercase)) + (100 if kind else 0)
    return ["dcpt", "dynamics", "autoscale"].index(paper), place


_MODULES = (fits, usages, near_zero, dynamics, autoscale)
TABLES: dict[str, Table] = dict(sorted((item for module in _MODULES for item in module.TABLES.items()), key=_order))
"""Name -> table: PAPER-NUMBER as the paper counts its tables, PAPER-figure-NUMBER for the numbers of a figure."""
