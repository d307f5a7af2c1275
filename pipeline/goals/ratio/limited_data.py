"""goal=limited-data: the domain ratio at which few tokens of the domain, each read once, give the least loss on it."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.goals.ratio.confirm import Place, ratios
from pipeline.goals.ratio.law_goal import LawGoal
from pipeline.goals.ratio.outcome import minimum_outcome
from pipeline.goals.ratio.solvers import AnsweringLaws, Solution, limited_steps, of_few_tokens
from pipeline.question.messages import finite_above, shown
from pipeline.question.schema import Question
from pipeline.study.artifacts import ConfirmationRow, Outcome, Recommendation
from pipeline.study.number_format import quantity


class LimitedDataGoal(LawGoal):
    """Usage 2 of the D-CPT Law."""

    chooses_run = True
    keys = ("domain_tokens", "most_tokens")

    def problems(self, question: Question) -> Iterator[str]:
        goal, step = question.goal, question.tokens_per_step()
        if not finite_above(goal.domain_tokens, step - 1):
            value = f"goal.domain_tokens: {shown(goal.domain_tokens)} with goal.kind=limited-data"
            yield f"{value}; allowed: tokens of the domain to be read once, a step's {step:,} or more, like 5e9"
        elif goal.most_tokens is not None and not finite_above(goal.most_tokens, goal.domain_tokens or 0):
            allowed = f"null, or above {goal.domain_tokens:g}, goal.domain_tokens"
            yield f"goal.most_tokens: {goal.most_tokens:g}; allowed: {allowed}"

    def solve(self, laws: AnsweringLaws) -> Solution:
        return of_few_tokens(laws)

    def places(self, question: Question, recommendation: Recommendation) -> list[Place]:

        model, tried = recommendation.target.model, filter(None, ratios(question, recommendation))
        return [Place(model, ratio, limited_steps(question, ratio)) for ratio in tried]

    def outcome(self, question: Question, recommendation: Recommendation, rows: list[ConfirmationRow]) -> Outcome:
        return minimum_outcome(question, rows, "domain_ratio", (recommendation.low, recommendation.high))

    def constraint(self, question: Question) -> str:
        return f"It reads {quantity(question.goal.domain_tokens or 0)} tokens of {question.corpora.domain}, each once."
