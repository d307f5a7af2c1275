"""goal=compute: the model with the least domain loss after a continual phase of so many FLOPs."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.goals.ratio.confirm import Place
from pipeline.goals.ratio.law_goal import LawGoal
from pipeline.goals.ratio.outcome import minimum_outcome
from pipeline.goals.ratio.solvers import AnsweringLaws, Solution, of_compute
from pipeline.question.messages import finite_above, shown
from pipeline.question.schema import Question
from pipeline.study.artifacts import ConfirmationRow, Outcome, Recommendation

LEAST_FLOPS = 1e9
"""As `fitting.compute_optimal` has it, which would load scipy."""


class ComputeGoal(LawGoal):
    """Usage 3 of the D-CPT Law."""

    chooses_run = True
    keys = ("flops", "domain_ratio", "tolerance")

    def problems(self, question: Question) -> Iterator[str]:
        flops = question.goal.flops
        if not finite_above(flops, LEAST_FLOPS - 1):
            value = f"goal.flops: {shown(flops)} with goal.kind=compute"
            yield f"{value}; allowed: {LEAST_FLOPS:g} or more, operations of the phase, like 5e19"
        if len({*question.ladder, question.model.name}) < 2:
            yield "goal.kind: 'compute' with one model; allowed: two or more, ladder=[...]"

    def solve(self, laws: AnsweringLaws) -> Solution:
        return of_compute(laws)

    def places(self, question: Question, recommendation: Recommendation) -> list[Place]:
        places = [Place(row.model, round(row.domain_ratio, 3), row.steps) for row in recommendation.candidates]
        return sorted(places, key=lambda place: place.model != recommendation.target.model)

    def outcome(self, question: Question, recommendation: Recommendation, rows: list[ConfirmationRow]) -> Outcome:
        size = recommendation.optimum["N"]
        return minimum_outcome(question, rows, "N", (size.low, size.high))

    def constraint(self, question: Question) -> str:
        return f"The continual phase may take {question.goal.flops or 0:.3g} FLOPs."
