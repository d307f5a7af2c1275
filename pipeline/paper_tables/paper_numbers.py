"""The numbers that the papers print, from a folder of CSV files; none are kept here."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd

from pipeline.paper_tables.table import Table
from pipeline.question.loading import ConfigError
from pipeline.study.folder import StudyError

VARIABLE = "CPTLAW_PAPER_TABLES"
"""Of the environment: the folder, where tables.papers is not given."""


def paper_folder(given: str | None) -> Path | None:
    """The folder of the papers' numbers; None: there is none.

    Raises:
        ConfigError: one is named that does not exist.
    """
    name = given or os.environ.get(VARIABLE)
    if not name:
        return None
    if not Path(name).is_dir():
        key = "tables.papers" if given else VARIABLE
        raise ConfigError([f"{key}: {name!r} is no folder; give the one with dcpt_table01_effectiveness.csv"])
    return Path(name)


def printed(folder: Path | None, table: Table) -> pd.DataFrame | None:
    """The cells of a table as the paper prints them: its keys and `value`; None where there are none.

    Raises:
        StudyError: the file is there and lacks a column.
    """
    if folder is None or not table.file or not (folder / table.file).exists():
        return None
    rows = pd.read_csv(folder / table.file)
    if table.prints:
        rows = table.prints(rows)
    if lacking := [name for name in (*table.keys, "value") if name not in rows.columns]:
        raise StudyError(f"{folder / table.file}: no column {', '.join(lacking)}")
    return rows[[*table.keys, "value"]]
