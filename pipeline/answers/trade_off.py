"""goal=trade-off: the largest domain ratio at which the general loss stays within the tolerance."""

from __future__ import annotations

from pipeline.answers.law_goal import LawGoal
from pipeline.question.schema import Question


class TradeOffGoal(LawGoal):
    """Usage 1 of the D-CPT Law."""

    def constraint(self, question: Question) -> str:
        return f"The loss on {question.corpora.general} may rise by {100 * question.goal.tolerance:.3g}%."


GOAL = TradeOffGoal()
