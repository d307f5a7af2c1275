"""Steps of a run whose weights or states are kept; apart from `runs`, since a worker waits for this module."""

from collections.abc import Sequence

from pipeline.question.design import extended_at
from pipeline.question.schema import Question
from pipeline.study.folder import PlannedRun
from training.evaluation_steps import evaluation_steps


def kept_steps(question: Question, run: PlannedRun, plan: Sequence[PlannedRun]) -> tuple[list[int], list[int]]:
    """(steps whose weights are kept, the last one included; steps whose full states are kept for branches).

    They are the steps of the question's checkpoint policy, those that other runs of the plan start from, and the one
    from which a longer run may be chosen to continue it.
    """
    phase = question.pretrain if run.role == "pretrain" else question.continual
    is_branch = run.spec.initial.moments
    policy_steps = set() if is_branch else set(evaluation_steps(phase.checkpoints, run.spec.steps))
    starts = [other.spec.initial for other in plan if other.parent == run.spec.hash]
    weights = policy_steps | {start.step for start in starts if not start.moments} | {run.spec.steps}
    states = {start.step for start in starts if start.moments}
    if run.spec.phase == "continual" and not run.variant:
        behind = run.spec.first_sequence // run.spec.global_batch
        at = extended_at(question, behind + run.spec.steps)
        states |= {at - behind} if at else set()
    return sorted(weights - {0}), sorted(states)
