"""goal=trade-off: the largest domain ratio at which the general loss stays within the tolerance."""

from __future__ import annotations

from pipeline.goals.ratio.confirm import Place, ratios
from pipeline.goals.ratio.law_goal import LawGoal
from pipeline.goals.ratio.outcome import tolerance_outcome
from pipeline.goals.ratio.solvers import AnsweringLaws, Solution, within_tolerance
from pipeline.question.design import target_steps
from pipeline.question.schema import Question
from pipeline.study.artifacts import ConfirmationRow, Outcome, Recommendation


class TradeOffGoal(LawGoal):
    """Usage 1 of the D-CPT Law."""

    keys = ("tolerance",)

    def solve(self, laws: AnsweringLaws) -> Solution:
        return within_tolerance(laws)

    def places(self, question: Question, recommendation: Recommendation) -> list[Place]:
        steps = target_steps(question)
        return [Place(recommendation.target.model, ratio, steps) for ratio in ratios(question, recommendation)]

    def outcome(self, question: Question, recommendation: Recommendation, rows: list[ConfirmationRow]) -> Outcome:
        return tolerance_outcome(question, recommendation, rows)

    def constraint(self, question: Question) -> str:
        tolerance = 100 * question.goal.tolerance
        asked = f"has to fall by {-tolerance:.3g}%" if tolerance < 0 else f"may rise by {tolerance:.3g}%"
        return f"The loss on {question.corpora.general} {asked}."
