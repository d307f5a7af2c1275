"""goal=limited-data: the domain ratio at which few tokens of the domain, each read once, give the least loss on it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pipeline.answers.law_goal import LawGoal
from pipeline.question.goal import finite_above, shown, tokens_per_step
from pipeline.question.schema import Question

LONGEST = 20.0
"""How many times the domain's tokens a run may have, unless goal.most_tokens is given."""


def limited_steps(question: Question, domain_ratio: float) -> int:
    """Steps of a run that reads `goal.domain_tokens` at a domain ratio, and no token twice."""
    assert question.goal.domain_tokens is not None
    return max(1, math.floor(question.goal.domain_tokens / (domain_ratio * tokens_per_step(question))))


def most_tokens(question: Question) -> float:
    """Tokens of the longest run that may be recommended."""
    assert question.goal.domain_tokens is not None
    return question.goal.most_tokens or LONGEST * question.goal.domain_tokens


class LimitedDataGoal(LawGoal):
    """Usage 2 of the D-CPT Law."""

    folder = "limited-data"
    chooses_run = True

    def problems(self, question: Question) -> Iterator[str]:
        goal, step = question.goal, tokens_per_step(question)
        if not finite_above(goal.domain_tokens, step - 1):
            value = f"goal.domain_tokens: {shown(goal.domain_tokens)} with goal.kind=limited-data"
            yield f"{value}; allowed: tokens of the domain to be read once, a step's {step:,} or more, like 5e9"
        elif goal.most_tokens is not None and not finite_above(goal.most_tokens, goal.domain_tokens or 0):
            yield (
                f"goal.most_tokens: {goal.most_tokens:g}; allowed: null, or above {goal.domain_tokens:g}, "
                "goal.domain_tokens"
            )

    def constraint(self, question: Question) -> str:
        from pipeline.report.number_format import quantity

        return f"It reads {quantity(question.goal.domain_tokens or 0)} tokens of {question.corpora.domain}, each once."


GOAL = LimitedDataGoal()
