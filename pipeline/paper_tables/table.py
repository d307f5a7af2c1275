"""What a table is, and what it is made from: the two records that `pipeline.paper_tables.catalogue` holds."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from pipeline.question.schema import Question
from pipeline.study.folder import Study


@dataclass(frozen=True)
class Source:
    """A study that tables are made from."""

    study: Study
    """Its folder; one that is kept without its runs has study.yaml, points.parquet and what else is read."""
    question: Question
    """What it asks, `tables` included."""
    log: Callable[[str], object] = lambda line: None
    """Is given a line for each thing done."""

    @functools.cached_property
    def points(self) -> pd.DataFrame:
        """points.parquet, or the file of tables.points, as `pipeline.study.collect` writes it.

        Raises:
            StudyError: it is missing.
        """
        from pipeline.study.collect import points_of, read_points

        given = self.question.tables.points
        return points_of(Path(given)) if given else read_points(self.study)


@dataclass(frozen=True)
class Reading:
    """What a family of tables is made from."""

    experiment: str
    """File of conf/experiment whose study has it."""
    otherwise: str = field(default="", kw_only=True)
    """Another one, where the texts of the first are not on the machine."""
    of: Callable[[Question], bool]
    """Whether a study of this question has it once it is done."""
    read: Callable[[Source], Any]
    """It, as `Table.make` takes it. Raises StudyError where it is missing: the line says what to do."""
    said: Callable[[Source], str] = lambda source: ""
    """Sentences on it, for the head of tables.md."""
    verbs: tuple[str, ...] = ("collect",)
    """Verbs after train that bring it about, as tables.run=true calls them; overrides may follow: "confirm
    corpora.domain=law"."""


@dataclass(frozen=True)
class Table:
    """A table of a paper, or the facts behind one of its figures."""

    title: str
    """What it shows."""
    file: str
    """The paper's numbers, a CSV file in the folder of tables.papers; empty: it prints none."""
    make: Callable[[Any], pd.DataFrame]
    """From what was read to our numbers: columns `keys` and value, NaN: none; attrs["note"] may hold a sentence on how
    they came about, attrs["verdict"] verdict and why, where neither follows from the cells. Raises PointsError where
    what was read does not allow it, and says why."""
    keys: tuple[str, ...]
    """Columns that name a cell."""
    subject: str
    """The one of them that competes: forms of the law, say."""
    reads: str = "six"
    """What it is made from, a name of READINGS."""
    across: tuple[str, ...] = ("corpus", "metric")
    """Keys whose values stand side by side when it is shown; the others have a row each."""
    alike: bool = False
    """Whether the paper's message is that all of the subject do alike (`pipeline.paper_tables.verdict`)."""
    prints: Callable[[pd.DataFrame], pd.DataFrame] | None = None
    """From the paper's file as it is to columns `keys` and value; None: it has them already."""
    judge: Callable[[pd.DataFrame], tuple[str, str]] | None = None
    """From the cells (`keys`, paper, ours; NaN: no number) to verdict and why, a sentence; None: as
    `pipeline.paper_tables.verdict.judge` does, for which lower is better, R2 excepted."""
