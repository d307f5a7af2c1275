"""What a question can ask for: one interface, and the registry of the goals that implement it.

A new goal is a module with a `GOAL`, and a line in `GOALS`; CONTRIBUTING.md has the steps.
"""

from __future__ import annotations

import importlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline.question.messages import ConfigError
from pipeline.question.schema import Question

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import RenderableType

    from pipeline.study.folder import PlannedRun, Study
    from training.corpora.manifest import Manifest

GOALS = {
    "trade-off": "pipeline.answers.trade_off",
    "limited-data": "pipeline.answers.limited_data",
    "compute": "pipeline.answers.compute",
    "weights": "pipeline.mixture_weights.goal",
}
"""goal.kind -> module whose `GOAL` implements it. A module is imported when a question of its kind is read."""

Log = Callable[[str], object]
"""Receives a line of progress."""


@dataclass(frozen=True)
class Output:
    """What a step of a goal prints."""

    shown: Sequence[RenderableType]
    """Tables, and lines of plain text, in the order to print them."""
    answered: bool = True
    """False: there is no answer, and the verb fails."""


@dataclass(frozen=True)
class TrackedAnswer:
    """An answer as wandb gets it."""

    page: str
    """HTML of the report."""
    figures: Mapping[str, dict[str, Any]]
    """Name -> Plotly figure: data and layout."""
    columns: Sequence[str]
    """Of `rows`."""
    rows: Sequence[Sequence[object]]
    """Predicted beside measured losses of the confirmation runs."""
    summary: dict[str, Any]
    """Numbers of the recommendation and of the confirmation, for wandb's run summary."""


class Goal(ABC):
    """What depends on the goal of a question. Modules of goals import what is heavy inside their methods."""

    folder: str = ""
    """Folder of its recommendation, confirmation and report, where a study may have the answers of several goals."""
    many_domains: bool = False
    """Whether one answer weighs all corpora; otherwise an answer is a ratio of one domain beside general text."""
    design_question: str = ""
    """Name of its question in `fitting.design`; empty: its runs cannot be chosen by what they are expected to teach."""
    chooses_run: bool = False
    """Whether the model or the length of the recommended run is part of the answer."""

    def answer_folder(self, question: Question) -> str:
        """`folder`, below that of the domain where a study has several, below answers/ where it has one."""
        return self.folder if question.corpora.domains or not self.folder else f"answers/{self.folder}"

    def staged(self, question: Question) -> bool:
        """Whether results of runs decide on further runs."""
        return False

    @abstractmethod
    def problems(self, question: Question) -> Iterator[str]:
        """A line for each mistake in the keys that only this goal reads."""

    def steps(self, question: Question, phase: str) -> int:
        """Steps of a phase (pretrain or continual), to check its schedule for."""
        return getattr(question, phase).steps

    @abstractmethod
    def runs(self, question: Question, study: Study, manifest: Manifest, precision: str) -> list[PlannedRun]:
        """The runs that the fit reads, as far as they are known, in the order to start them.

        Raises:
            ConfigError: a corpus too short for them; a line for each.
        """

    def cost_notes(
        self, question: Question, study: Study, manifest: Manifest, precision: str
    ) -> Sequence[RenderableType]:
        """What `cptlaw plan` prints below the cost of the runs that are known."""
        return []

    def collect_stage(self, question: Question, study: Study, log: Log) -> str:
        """Collect the results that decide on the runs of the next stage, where a question is staged.

        Returns:
            A line about what they decided; empty where nothing is to say.
        """
        return ""

    def add_round(self, question: Question, study: Study) -> str:
        """Choose further runs that sharpen an answer, whatever limits the question has for them.

        Returns:
            A line about them; empty where the runs chosen before are not done, or not answered with yet.

        Raises:
            ConfigError: the goal has no such runs.
        """
        raise ConfigError([f"goal.kind: {question.goal.kind!r} cannot be refined; allowed: {designable()}"])

    def answer_line(self, question: Question, study: Study) -> str:
        """The answer of recommendation.json in a few words; empty without one."""
        return ""

    @abstractmethod
    def fit(self, question: Question, study: Study, log: Log) -> Output:
        """Fit what the recommendation reads, and write it into the study.

        Raises:
            StudyError: nothing is collected, or a law cannot be fitted.
        """

    @abstractmethod
    def recommend(self, question: Question, study: Study, log: Log) -> Output:
        """Write recommendation.json.

        Raises:
            StudyError: runs or fits are missing.
        """

    @abstractmethod
    def confirmation_runs(
        self, question: Question, study: Study, manifest: Manifest, precision: str
    ) -> list[PlannedRun]:
        """The runs that test the recommendation.

        Raises:
            StudyError: no recommendation, or one of another question.
            ConfigError: a corpus too short for them; a line for each.
        """

    def imported_runs(self, question: Question, study: Study) -> list[PlannedRun]:
        """The runs that test the recommendation where they were trained elsewhere; raises as `confirmation_runs`."""
        raise ConfigError([f"goal.kind: {question.goal.kind!r} asks for runs of its own; this study was imported"])

    @abstractmethod
    def confirm(self, question: Question, study: Study, runs: list[PlannedRun]) -> Output:
        """Compare finished confirmation runs with the recommendation, and write confirmation.json.

        Raises:
            StudyError: a run has not ended.
        """

    @abstractmethod
    def answer(self, question: Question, study: Study) -> Output:
        """Recommendation and confirmation, as `cptlaw quickstart` prints them at its end."""

    @abstractmethod
    def report(self, question: Question, study: Study) -> list[Path]:
        """Write report.html; the page of this answer first, then those that link to it."""

    def tracked_answer(self, question: Question, study: Study) -> TrackedAnswer | None:
        """The current answer for wandb; None where wandb gets only the runs.

        Raises:
            StudyError: a file of the study that cannot be read.
        """
        return None

    @abstractmethod
    def constraint(self, question: Question) -> str:
        """What the goal asks for, as a sentence of the report."""


def goal_of(question: Question) -> Goal:
    """The implementation of a question's goal.

    Raises:
        KeyError: goal.kind is not in GOALS, which `goal_problems` reports.
    """
    return importlib.import_module(GOALS[question.goal.kind]).GOAL


def designable() -> str:
    """The goals that runs can be chosen for one after another, for a message."""
    return ", ".join(kind for kind, module in GOALS.items() if importlib.import_module(module).GOAL.design_question)


def goal_problems(question: Question) -> Iterator[str]:
    """A line for each key of the goal, and of its confirmation, with a value that is not allowed."""
    goal = question.goal
    if goal.kind not in GOALS:
        yield f"goal.kind: {goal.kind!r}; allowed: {', '.join(GOALS)}"
    if not -1 < goal.tolerance < 10:
        yield f"goal.tolerance: {goal.tolerance}; allowed: above -1, 0.03 is 3%, -0.03 a loss that falls by 3%"
    if goal.domain_ratio is not None and not 0 < goal.domain_ratio <= 1:
        yield f"goal.domain_ratio: {goal.domain_ratio}; allowed: above 0, up to 1, or null: goal.tolerance decides"
    for at in goal.change_at:
        if not 0 < at < 1:
            yield f"goal.change_at: {at}; allowed: parts of the run's steps, between 0 and 1, like [0.5, 0.8]"
    if goal.change_at and goal.kind != "trade-off":
        yield f"goal.change_at: {goal.change_at} with goal.kind={goal.kind}; allowed: goal.kind=trade-off, or []"
    if goal.change_at and "transfer-two-mixtures" not in question.law:
        laws = ",".join([*question.law, "transfer-two-mixtures"])
        yield f"goal.change_at: {goal.change_at} needs the law transfer-two-mixtures; allowed: law=[{laws}]"
    if goal.kind in GOALS:
        yield from goal_of(question).problems(question)
    for distance in question.confirm.around:
        if not 0 < abs(distance) < 1:
            yield f"confirm.around: {distance}; allowed: differences of the domain ratio, between -1 and 1 and not 0"


def steps_of(question: Question, phase: str) -> int:
    """Steps of a phase as the goal has them, and as the question has them where its kind does not exist."""
    return goal_of(question).steps(question, phase) if question.goal.kind in GOALS else getattr(question, phase).steps


def tokens_per_step(question: Question) -> int:
    """Tokens of a step of the continual phase."""
    phase = question.continual
    return phase.global_batch * (phase.sequence_length or question.sequence_length)


def finite_above(value: float | None, low: float) -> bool:
    """Whether a key has a finite value above `low`."""
    return value is not None and low < value < math.inf


def shown(value: float | None) -> str:
    """A number as a message of the preflight prints it."""
    return "null" if value is None else f"{value:g}"
