"""What the goals that ask fitted laws have in common: trade-off, limited data, compute."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Iterator
from functools import partial

from fitting import PointsError
from pipeline.goals.active.rounds import (
    design_runs,
    is_answered,
    learn_from_confirmation,
    most_telling,
    next_round,
    plan_lines,
)
from pipeline.goals.goal import FitSummary, Goal, Log, PlanNotes
from pipeline.goals.ratio.confirm import Place, compare, confirmation_plan, imported_runs
from pipeline.goals.ratio.recommend import recommend
from pipeline.goals.ratio.solvers import AnsweringLaws, Solution
from pipeline.question.design import is_active
from pipeline.question.messages import ConfigError
from pipeline.question.phases import describe_phases
from pipeline.question.schema import Question
from pipeline.question.variants import variants
from pipeline.study.artifacts import Artifact, Confirmation, ConfirmationRow, Outcome, Recommendation
from pipeline.study.collect import collect
from pipeline.study.context import Context
from pipeline.study.fits import back_test, first_mixture, fit_all, trust
from pipeline.study.folder import IMPORTED, PlannedRun, StudyError


class LawGoal(Goal):
    """A domain ratio beside general text, by laws fitted to the losses of both."""

    keys: tuple[str, ...] = ()
    """Keys of the goal that a confirmation must have in common with its recommendation."""

    @abstractmethod
    def solve(self, laws: AnsweringLaws) -> Solution:
        """The answer by these laws."""

    @abstractmethod
    def places(self, question: Question, recommendation: Recommendation) -> list[Place]:
        """The confirmation runs without their seeds; the recommended run first."""

    @abstractmethod
    def outcome(self, question: Question, recommendation: Recommendation, rows: list[ConfirmationRow]) -> Outcome:
        """Whether confirmation runs confirm the recommended optimum."""

    def runs(self, context: Context) -> list[PlannedRun]:
        return design_runs(context)

    def is_staged(self, question: Question) -> bool:
        return is_active(question)

    def plan_notes(self, context: Context) -> PlanNotes:
        question = context.question
        places: dict[str, list[str]] = {}
        for name, _, part in variants(question):
            if part.continual.phases:
                line = describe_phases(part.continual, part.corpora)
                places.setdefault(line, []).append(name and f"variants.{name}")
        notes = [line if "" in names else f"{', '.join(names)}: {line}" for line, names in places.items()]
        if question.continual.phases:
            notes.append(
                "the laws know runs of one mixture: fit reads each run up to its first change, recommend needs "
                "continual.phases=[]"
            )
            return PlanNotes(notes)
        return PlanNotes([*notes, *(plan_lines(context) if is_active(question) else [])])

    def collect_stage(self, context: Context, log: Log) -> str:
        if not is_active(context.question):
            return ""
        found = next_round(context, recommended=partial(self._recommended, context, log))
        return found.line() if found else ""

    def _recommended(self, context: Context, log: Log) -> tuple[float, float] | None:
        """The recommended ratio and the half-width of its interval, by fits to all points so far."""
        log("the tolerance seems to be reached; fitting the laws to all points, to see what cptlaw recommend says")
        try:
            collect(context.study, context.question.corpora.general)
            self.fit(context.fresh(), log)
            content = self.recommend(context.fresh(), log)
        except (StudyError, PointsError):
            return None  # Too few points for a law: more runs are needed.
        if content.mixture is None or content.low is None or content.high is None:
            return None
        if not any(row.split == "ratio" for row in content.held_out):
            return None  # The law is not tested at a ratio that it was not fitted to: more ratios are needed.
        return content.mixture[context.question.corpora.domain], (content.high - content.low) / 2

    def add_round(self, context: Context) -> str:
        if not context.question.goal_kind.design_question:
            return super().add_round(context)
        _refuse_phases(context.question)
        if not is_answered(context):
            return ""
        learned = learn_from_confirmation(context)
        found = next_round(context, more=True)
        lines = [f"{len(learned)} confirmation runs are points for the fit now"] if learned else []
        return "\n".join([*lines, *([found.line()] if found else [])])

    def fit(self, context: Context, log: Log) -> FitSummary:
        own = context.points[context.points["role"] == "fit"]
        if later := len(own) - len(first_mixture(own)):
            log(
                f"left out of every fit: {later} of {len(own)} points, measured after the mixture of their run had "
                "changed (mixture_phase 2 or more); the laws know runs of one mixture"
            )
        study, question, points, rates = context.study, context.question, context.points, context.schedules
        fits = fit_all(study, question, points, rates, log)
        tested = back_test(study, question.with_laws(fits), points, rates)
        return FitSummary(tested, trust(tested))

    def recommend(self, context: Context, log: Log) -> Recommendation:
        _refuse_phases(context.question)
        return recommend(context, self.solve)

    def what_would_sharpen(self, context: Context, answer: Artifact, log: Log) -> Iterator[str]:
        question = context.question
        assert isinstance(answer, Recommendation)
        if not question.goal_kind.design_question or answer.low is None or answer.high is None:
            return
        half_width, asked = (answer.high - answer.low) / 2, question.design.tolerance
        if half_width <= asked:
            return
        if question.model.path == IMPORTED:
            yield f"half-width {half_width:.3f}: import more runs, best near this ratio and length"
            return
        runs = ""
        # Which they are takes seconds to say.
        if not answer.identified and context.is_prepared:
            log("asking which runs would say where the optimum is")
            with contextlib.suppress(PointsError):
                runs = most_telling(context)
        line = (
            f"half-width {half_width:.3f}, design.tolerance {asked:g}: cptlaw refine trains what should narrow it most"
        )
        yield f"{line}: {runs}" if runs else line

    def confirmation_runs(self, context: Context) -> list[PlannedRun]:
        _refuse_phases(context.question)
        return confirmation_plan(context, self.keys, self.places)

    def imported_runs(self, context: Context) -> list[PlannedRun]:
        return imported_runs(context, self.keys)

    def confirm(self, context: Context, runs: list[PlannedRun]) -> Confirmation:
        collect(context.study, context.question.corpora.general)
        return compare(context.fresh(), runs, self.outcome)


def _refuse_phases(question: Question) -> None:
    if question.continual.phases:
        raise ConfigError(
            [
                f"continual.phases: {len(question.continual.phases)}, but the laws know runs of one mixture; "
                "allowed: continual.phases=[], with the phases in a variant"
            ]
        )
