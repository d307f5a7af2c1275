"""The records that the catalogue holds: a table of a paper, what it is made from, and what the paper prints."""

import functools
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from pipeline.papers.verdict import Statement, judge
from pipeline.question.schema import Question
from pipeline.study.collect import points_of, read_points
from pipeline.study.folder import Study, StudyError
from training.durable import FileError, read_file


@dataclass(frozen=True)
class PaperStudy:
    """A study that tables are made from; without runs it still has the files that are read."""

    study: Study
    question: Question
    log: Callable[[str], object] = lambda line: None
    """Receives one line per finished step."""

    @functools.cached_property
    def points(self) -> pd.DataFrame:
        """points.parquet, or the file of tables.points, as `pipeline.study.collect` writes it; else a StudyError."""
        file = self.question.tables.points
        return points_of(Path(file)) if file else read_points(self.study)


@dataclass(frozen=True)
class StudyReader:
    """The input of a family of tables."""

    experiment: str
    """File of conf/experiment whose study has it."""
    fallback: str = field(default="", kw_only=True)
    """Another experiment, for machines without the texts of the first."""
    applies: Callable[[Question], bool]
    """Whether a finished study of this question has the input."""
    read: Callable[[PaperStudy], Any]
    """Read the input as `PaperTable.make` takes it. Raises StudyError, with the remedy, where it is missing."""
    summary: Callable[[PaperStudy], str] = lambda source: ""
    """Describe the input in sentences for the head of tables.md."""
    verbs: tuple[str, ...] = ("collect",)
    """Verbs after train that produce it, as tables.run=true calls them, with overrides: "confirm
    corpora.domain=law"."""


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper, or the numbers behind one of its figures."""

    title: str
    file: str
    """The paper's numbers, a CSV file in the folder of tables.papers; empty: the paper prints none."""
    make: Callable[[Any], pd.DataFrame]
    """Compute our numbers from the input: columns `keys` and value, NaN: none. attrs["note"] may hold a sentence on the
    method, attrs["verdict"] the verdict and its reason. Raises PointsError where the input does not allow it."""
    keys: tuple[str, ...]
    """Columns that name a cell; the common rule compares the first, forms of the law, for example."""
    reads: str = "six"
    """Name of its input in READINGS."""
    across: tuple[str, ...] = ("corpus", "metric")
    """Keys whose values are columns when it is shown; the values of the others are rows."""
    states: tuple[Statement, ...] = ()
    """What the paper states of the subjects (`pipeline.papers.verdict`)."""
    level: float | None = None
    """R2 that the paper states of those that it calls better; None: it states none."""
    prints: Callable[[pd.DataFrame], pd.DataFrame] | None = None
    """Convert the paper's file, with its `columns`, to columns `keys` and value; None: it has them."""
    columns: tuple[str, ...] = ()
    """What `prints` reads of the paper's file."""
    judge: Callable[[pd.DataFrame], tuple[str, str]] | None = None
    """Return verdict and reason from the cells (`keys`, paper, ours; NaN: no number); None: the common rule,
    `pipeline.papers.verdict.judge`, by what the paper states."""

    @property
    def file_columns(self) -> tuple[str, ...]:
        """The columns that the paper's file must have."""
        return self.columns or (*self.keys, "value")


def judged(table: PaperTable, cells: pd.DataFrame) -> tuple[str, str]:
    """Verdict and reason of a table's cells (`keys`, paper, ours), by its own rule or the common one."""
    return table.judge(cells) if table.judge else judge(cells, table.keys[0], table.states, table.level)


def paper_numbers(folder: Path | None, table: PaperTable) -> pd.DataFrame | None:
    """The numbers of a table as the paper prints them, if any: its keys and `value`.

    StudyError: its file is no CSV table or lacks a column; a value of the wrong type, an empty key, a cell twice.
    """
    if folder is None or not table.file:
        return None
    path = folder / table.file
    try:
        rows = pd.read_csv(io.BytesIO(read_file(path)))
    except FileNotFoundError:
        return None
    except FileError as error:
        raise StudyError(str(error)) from None
    except ValueError as error:
        raise StudyError(f"{path}: not a CSV table ({str(error).splitlines()[0]})") from None
    if missing := [name for name in table.file_columns if name not in rows.columns]:
        raise StudyError(f"{path}: no column {', '.join(missing)}; it needs {', '.join(table.file_columns)}")
    try:
        numbers = (table.prints(rows) if table.prints else rows)[[*table.keys, "value"]].astype({"value": float})
    except (ValueError, TypeError, AttributeError) as error:
        raise StudyError(f"{path}: a value of the wrong type ({error})") from None
    if lacking := [key for key in table.keys if numbers[key].isna().any()]:
        raise StudyError(f"{path}: a row without {lacking[0]}")
    if (twice := numbers.duplicated([*table.keys])).any():
        raise StudyError(f"{path}: two rows for {', '.join(map(str, numbers.loc[twice, [*table.keys]].iloc[0]))}")
    return numbers
