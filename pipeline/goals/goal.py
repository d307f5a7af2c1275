"""What a goal is: its keys, its runs, its fit, its answer, its confirmation. Methods return artifacts, print nothing.

CONTRIBUTING.md has the steps that add one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from pipeline.question.design import designable
from pipeline.question.messages import ConfigError
from pipeline.question.schema import Question
from pipeline.study.artifacts import Artifact, Recommendation
from pipeline.study.context import Context
from pipeline.study.folder import PlannedRun

Log = Callable[[str], object]
"""Receives a line of progress."""


@dataclass(frozen=True)
class FitSummary:
    """What a fit came to, for a person."""

    held_out: pd.DataFrame | None = None
    """Predictions of held-out points; None: nothing is held out."""
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Stage:
    """Cost of a stage: its purpose, the number of its runs, and their training tokens."""

    name: str
    runs: int
    tokens: int


@dataclass(frozen=True)
class PlanNotes:
    """What a plan will come to beside the runs that are known."""

    asked: Sequence[str] = ()
    """The run that the question is about, and what its answer costs against it."""
    lines: Sequence[str] = ()
    stages: Sequence[Stage] = ()
    """The cost of each stage of a search, with a last row for all; empty: no stages."""
    more: bool = False
    """Whether losses of the runs decide on further runs for the fit, if any."""


class Goal(ABC):
    """What depends on the goal of a question.

    Methods raise StudyError where runs, fits or answers are missing or of another question, and ConfigError, with a
    line for each mistake, where a corpus is too short for runs.
    """

    chooses_run: bool = False
    """Whether the model or the length of the recommended run is part of the answer."""
    keys: tuple[str, ...] = ()
    """Keys of the goal that a confirmation must have in common with its recommendation."""

    def is_staged(self, question: Question) -> bool:
        """Whether results of runs decide on further runs."""
        return False

    def problems(self, question: Question) -> Iterator[str]:
        """A line for each mistake in the keys that only this goal reads."""
        return iter(())

    @abstractmethod
    def runs(self, context: Context) -> list[PlannedRun]:
        """The runs that the fit reads, as far as they are known, in the order to start them."""

    def plan_notes(self, context: Context, runs: Sequence[PlannedRun]) -> PlanNotes:
        """What `cptlaw plan` says above and below the cost of the runs that are known."""
        return PlanNotes()

    def collect_stage(self, context: Context, log: Log) -> str:
        """Collect the results that decide on the runs of the next stage; returns a line about them, or nothing."""
        return ""

    def add_round(self, context: Context) -> str:
        """Choose further runs that sharpen an answer, whatever limits the question has for them.

        Returns:
            A line about them; empty where the runs chosen before are not done, or not answered with yet.

        Raises:
            ConfigError: the goal has no such runs.
        """
        kind = context.question.goal.kind
        raise ConfigError([f"goal.kind: {kind!r} cannot be refined; allowed: {designable()}"])

    @abstractmethod
    def fit(self, context: Context, log: Log) -> FitSummary:
        """Fit what the recommendation reads, and write it into the study."""

    @abstractmethod
    def recommend(self, context: Context, log: Log) -> Artifact:
        """Write recommendation.json."""

    def what_would_sharpen(self, context: Context, answer: Artifact, log: Log) -> Iterator[str]:
        """Lines on the runs that would sharpen an answer that is too wide."""
        return iter(())

    def outdated(self, context: Context, answer: Recommendation) -> str:
        """Why an answer is not of the question and the points as they are now; empty: it is."""
        return ""

    def too_wide(self, question: Question, answer: Recommendation) -> str:
        """That a prediction is too wide to say whether the answer keeps what was asked; empty: it is not."""
        return ""

    @abstractmethod
    def confirmation_runs(self, context: Context) -> list[PlannedRun]:
        """The runs that test the recommendation."""

    def why_these(self, context: Context, runs: Sequence[PlannedRun]) -> Iterator[str]:
        """Why several runs test one answer; nothing where one does, or it is plain."""
        return iter(())

    def imported_runs(self, context: Context) -> list[PlannedRun]:
        """The runs that test the recommendation where they were trained elsewhere."""
        kind = context.question.goal.kind
        raise ConfigError([f"goal.kind: {kind!r} asks for runs of its own; this study was imported"])

    @abstractmethod
    def confirm(self, context: Context, runs: list[PlannedRun]) -> Artifact:
        """Compare finished confirmation runs with the recommendation, and write confirmation.json."""

    @abstractmethod
    def constraint(self, question: Question) -> str:
        """What the goal asks for, as a sentence of the report."""
