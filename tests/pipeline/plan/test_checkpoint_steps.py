"""What runs keep for others, and its bytes in the plan's price."""

from __future__ import annotations

from pipeline.plan.checkpoint_steps import kept_steps
from pipeline.plan.cost import costs
from pipeline.plan.runs import placeholder_manifest, planned_runs
from pipeline.question.loading import read_question
from tests.pipeline.plan.test_branches import QUESTION
from training.parameters import model_size


def test_what_others_start_from_is_kept_and_counted() -> None:
    question = read_question([*QUESTION, "continual.checkpoints.policy=explicit", "continual.checkpoints.steps=[5]"])
    plan = planned_runs(question, placeholder_manifest(question), "fp32")
    kept = {run.name: kept_steps(question, run, plan) for run in plan}
    trunk = next(run for run in plan if run.role == "pretrain" and not run.parent)
    assert kept[trunk.name] == ([20, 40], [20, 40])
    fits = [run for run in plan if run.role == "fit" and not run.spec.initial.moments]
    assert all(kept[run.name] == ([5, 30], [15]) for run in fits)
    branches = [run for run in plan if run.spec.initial.moments]
    assert all(kept[run.name] == ([10], []) for run in branches)

    weights = 4 * model_size(trunk.spec.model, trunk.spec.sequence_length).total
    (pretraining, fitting) = costs(plan, None, question)
    # Kept weights and kept states of the trunk and its two decays, and three states of each while it runs.
    assert 0 < pretraining.disk - weights * ((2 + 2 * 3) + 2 + 3 * 9) < 100_000
    assert 0 < fitting.disk - weights * (2 * (2 + 3) + 2 + 4 * 9) < 100_000
