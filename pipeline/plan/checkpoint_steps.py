"""What a run keeps for others: weights after some steps, states that branches go on from."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.question.schema import Question
from pipeline.study.folder import PlannedRun
from training.evaluation_steps import evaluation_steps


def kept_steps(question: Question, run: PlannedRun, plan: Sequence[PlannedRun]) -> tuple[list[int], list[int]]:
    """Steps whose weights are kept, the last of the run among them, and steps whose whole states are.

    They are those that the question asks for and those that other runs of the plan start from.
    """
    phase = question.pretrain if run.role == "pretrain" else question.continual
    asked = set() if run.spec.initial.moments else set(evaluation_steps(phase.checkpoints, run.spec.steps))
    starts = [other.spec.initial for other in plan if other.parent == run.spec.hash]
    weights = asked | {start.step for start in starts if not start.moments} | {run.spec.steps}
    return sorted(weights - {0}), sorted({start.step for start in starts if start.moments})
