"""goal=limited-data: the domain ratio at which few tokens of the domain, each read once, give the least loss on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pipeline.answers.law_goal import LawGoal
from pipeline.question.goal import finite_above, shown, tokens_per_step
from pipeline.question.schema import Question

if TYPE_CHECKING:
    from pipeline.answers.confirm import Place
    from pipeline.answers.solvers import Asked, Found
    from pipeline.study.artifacts import ConfirmationRow, Outcome, Recommendation


class LimitedDataGoal(LawGoal):
    """Usage 2 of the D-CPT Law."""

    folder = "limited-data"
    chooses_run = True
    design_question = "limited_data"
    keys = ("domain_tokens", "most_tokens")

    def problems(self, question: Question) -> Iterator[str]:
        goal, step = question.goal, tokens_per_step(question)
        if not finite_above(goal.domain_tokens, step - 1):
            value = f"goal.domain_tokens: {shown(goal.domain_tokens)} with goal.kind=limited-data"
            yield f"{value}; allowed: tokens of the domain to be read once, a step's {step:,} or more, like 5e9"
        elif goal.most_tokens is not None and not finite_above(goal.most_tokens, goal.domain_tokens or 0):
            allowed = f"null, or above {goal.domain_tokens:g}, goal.domain_tokens"
            yield f"goal.most_tokens: {goal.most_tokens:g}; allowed: {allowed}"

    def solve(self, asked: Asked) -> Found:
        from pipeline.answers.solvers import of_few_tokens

        return of_few_tokens(asked)

    def places(self, question: Question, recommendation: Recommendation) -> list[Place]:
        from pipeline.answers.confirm import Place, ratios
        from pipeline.answers.solvers import limited_steps

        model, tried = recommendation.target.model, filter(None, ratios(question, recommendation))
        return [Place(model, ratio, limited_steps(question, ratio)) for ratio in tried]

    def outcome(self, question: Question, recommendation: Recommendation, rows: list[ConfirmationRow]) -> Outcome:
        from pipeline.answers.outcome import minimum_outcome

        return minimum_outcome(question, rows, "domain_ratio", (recommendation.low, recommendation.high))

    def constraint(self, question: Question) -> str:
        from pipeline.report.number_format import quantity

        return f"It reads {quantity(question.goal.domain_tokens or 0)} tokens of {question.corpora.domain}, each once."


GOAL = LimitedDataGoal()
