"""goal=compute: the model with the least domain loss after a continual phase of so many FLOPs."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.answers.law_goal import LawGoal
from pipeline.question.goal import finite_above, shown, tokens_per_step
from pipeline.question.schema import Question

LEAST_FLOPS = 1e9
"""As `fitting.compute_optimal` has it, which would load scipy."""


def compute_steps(question: Question, N: float) -> int:
    """Steps of a run of `goal.flops` with N billions of non-embedding parameters: C = 6 N D."""
    assert question.goal.flops is not None
    return max(1, round(question.goal.flops / (6e9 * N * tokens_per_step(question))))


class ComputeGoal(LawGoal):
    """Usage 3 of the D-CPT Law."""

    folder = "compute"
    chooses_run = True

    def problems(self, question: Question) -> Iterator[str]:
        flops = question.goal.flops
        if not finite_above(flops, LEAST_FLOPS - 1):
            value = f"goal.flops: {shown(flops)} with goal.kind=compute"
            yield f"{value}; allowed: {LEAST_FLOPS:g} or more, operations of the phase, like 5e19"
        if len({*question.ladder, question.model.name}) < 2:
            yield "goal.kind: 'compute' with one model; allowed: two or more, ladder=[...]"

    def constraint(self, question: Question) -> str:
        return f"The continual phase may take {question.goal.flops or 0:.3g} FLOPs."


GOAL = ComputeGoal()
