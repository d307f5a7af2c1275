"""goal=trade-off: the largest domain ratio at which the general loss stays within the tolerance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.answers.law_goal import LawGoal
from pipeline.question.schema import Question

if TYPE_CHECKING:
    from pipeline.answers.confirm import Place
    from pipeline.answers.solvers import Asked, Found
    from pipeline.study.artifacts import ConfirmationRow, Outcome, Recommendation


class TradeOffGoal(LawGoal):
    """Usage 1 of the D-CPT Law."""

    design_question = "trade_off"
    keys = ("tolerance",)

    def solve(self, asked: Asked) -> Found:
        from pipeline.answers.solvers import within_tolerance

        return within_tolerance(asked)

    def places(self, question: Question, recommendation: Recommendation) -> list[Place]:
        from pipeline.answers.confirm import Place, ratios
        from pipeline.question.design import target_steps

        steps = target_steps(question)
        return [Place(recommendation.target.model, ratio, steps) for ratio in ratios(question, recommendation)]

    def outcome(self, question: Question, recommendation: Recommendation, rows: list[ConfirmationRow]) -> Outcome:
        from pipeline.answers.outcome import tolerance_outcome

        return tolerance_outcome(question, recommendation, rows)

    def constraint(self, question: Question) -> str:
        tolerance = 100 * question.goal.tolerance
        asked = f"has to fall by {-tolerance:.3g}%" if tolerance < 0 else f"may rise by {tolerance:.3g}%"
        return f"The loss on {question.corpora.general} {asked}."


GOAL = TradeOffGoal()
