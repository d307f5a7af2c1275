"""Steps at which a run keeps its weights or its full state for other runs."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.question.schema import Question
from pipeline.study.folder import PlannedRun
from training.evaluation_steps import evaluation_steps


def kept_steps(question: Question, run: PlannedRun, plan: Sequence[PlannedRun]) -> tuple[list[int], list[int]]:
    """(steps whose weights are kept, the last one included; steps whose full states are kept for branches).

    They are the steps of the question's checkpoint policy, and those that other runs of the plan start from.
    """
    phase = question.pretrain if run.role == "pretrain" else question.continual
    is_branch = run.spec.initial.moments
    policy_steps = set() if is_branch else set(evaluation_steps(phase.checkpoints, run.spec.steps))
    starts = [other.spec.initial for other in plan if other.parent == run.spec.hash]
    weights = policy_steps | {start.step for start in starts if not start.moments} | {run.spec.steps}
    return sorted(weights - {0}), sorted({start.step for start in starts if start.moments})
