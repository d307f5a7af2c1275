"""All tables that can be made, and their inputs. A new table is a function and an entry in its file's TABLES."""

import os
import string
from pathlib import Path

from pipeline.papers import autoscale
from pipeline.papers.dcpt import fits, near_zero, points, usages
from pipeline.papers.dynamics import tables as dynamics
from pipeline.papers.table import PaperTable, StudyReader
from pipeline.question.messages import ConfigError

PAPERS_VARIABLE = "CPTLAW_PAPER_TABLES"
"""Environment variable: the folder of the papers' numbers where tables.papers is not given."""
FILES_HINT = "cptlaw tables --help tables.papers lists its files"

READINGS: dict[str, StudyReader] = {
    **{"six": points.READING, "weights": autoscale.READING, **dynamics.READINGS, **usages.READINGS},
    "near-zero": near_zero.READING,
}
"""Name -> the input of a family of tables."""


def _order(item: tuple[str, PaperTable]) -> tuple[int, int]:
    paper, *kind, number = item[0].split("-")
    place = int(number.rstrip(string.ascii_lowercase)) + (100 if kind else 0)
    return ["dcpt", "dynamics", "autoscale"].index(paper), place


_MODULES = (fits, usages, near_zero, dynamics, autoscale)
TABLES: dict[str, PaperTable] = dict(sorted((item for one in _MODULES for item in one.TABLES.items()), key=_order))
"""Name -> table: PAPER-NUMBER as the paper counts its tables, PAPER-figure-NUMBER for the numbers of a figure."""
FILES: dict[str, tuple[str, ...]] = {table.file: table.file_columns for table in TABLES.values() if table.file}
"""File in the folder of tables.papers -> the columns that are read of it."""


def paper_folder(given: str | None) -> Path | None:
    """The folder of the papers' numbers, or None where no name is given; ConfigError where it has none of `FILES`."""
    name = given or os.environ.get(PAPERS_VARIABLE)
    if not name:
        return None
    folder, key = Path(name), "tables.papers" if given else PAPERS_VARIABLE
    if not folder.is_dir():
        raise ConfigError([f"{key}: {name!r} is not a folder; {FILES_HINT}"])
    if not any((folder / file).exists() for file in FILES):
        raise ConfigError([f"{key}: {name!r} has none of the papers' files; {FILES_HINT}"])
    return folder
