"""Several decay branches of one run, and several transfer points of one pre-training."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pipeline.cli import main as cli
from pipeline.goals.registry import read_question
from pipeline.plan.cost import costs, variant_note
from pipeline.plan.kept_steps import kept_steps
from pipeline.plan.runs import branch_run, estimate, planned_runs, starting_order
from pipeline.question.messages import ConfigError
from pipeline.study.collect import collect, read_points, schedules
from pipeline.study.folder import Study
from tests.pipeline.small import small_words, write_losses
from training.parameters import model_size
from training.schedule import learning_rates

DECAY = "{step: STEP, steps: 10, schedule: {pieces: [{shape: linear, end: 0.1}]}}"
QUESTION = [
    *("experiment=quickstart", "mixture=ratios", "ladder=[qwen2-0.05m]", "model=qwen2-0.05m"),
    *("mixture.domain_ratio=[0.5]", "mixture.replicates=1", "pretrain.steps=40", "target.steps=60"),
    *("schedule@pretrain.schedule=constant", "schedule@target.schedule=constant", "transfer_steps=[20,40]"),
    f"pretrain.branches=[{DECAY.replace('STEP', '20')},{DECAY.replace('STEP', '40')}]",
    f"continual.branches=[{DECAY.replace('STEP', '15')}]",
]


@pytest.fixture
def plan():
    question = read_question(QUESTION)
    return planned_runs(estimate(question))


def test_each_step_of_a_trunk_is_planned_once_and_parents_come_first(plan) -> None:
    assert len(plan) == 1 + 2 + 2 + 2
    known: set[str] = set()
    for run in plan:
        assert run.parent is None or run.parent in known
        known.add(run.spec.hash)
    (pretraining,) = (run for run in plan if run.role == "pretrain" and not run.parent)
    decays = [run for run in plan if run.role == "pretrain" and run.parent]
    assert [run.spec.initial.step for run in decays] == [20, 40]
    assert all(run.spec.initial.moments and run.spec.corpora == pretraining.spec.corpora for run in decays)
    batch = pretraining.spec.global_batch
    assert [run.spec.first_sequence for run in decays] == [20 * batch, 40 * batch]
    starts = {run.start for run in plan if run.role == "fit" and not run.spec.initial.moments}
    assert starts == {f"runs/{pretraining.name}/checkpoints/step-{step}" for step in (20, 40)}


def test_a_branch_of_a_branch_comes_after_it(plan) -> None:
    question = read_question(QUESTION)
    phase, branch = question.continual, question.continual.branches[0]
    parent = next(run for run in plan if run.role == "fit" and run.spec.initial.moments)
    longer = replace(branch, step=5, steps=20)
    child = branch_run(parent, phase, longer, question.evaluation_budget)
    assert child.spec.tokens > parent.spec.tokens
    hashes = [run.spec.hash for run in starting_order([child, *plan])]
    assert hashes.index(parent.spec.hash) < hashes.index(child.spec.hash)


def test_areas_of_a_branch_include_its_trunk(plan) -> None:
    whole = schedules(plan)
    peak = 3e-3
    decay = next(run for run in plan if run.role == "pretrain" and run.spec.initial.step == 20 and run.parent)
    rates = learning_rates(decay.spec.schedule, 10, peak)
    np.testing.assert_array_equal(whole[decay.name].rates, np.concatenate([np.full(20, peak), rates]))
    assert rates[-1] == pytest.approx(peak / 10)
    branch = next(run for run in plan if run.role == "fit" and run.spec.initial.moments)
    trunk = next(run for run in plan if run.spec.hash == branch.parent)
    np.testing.assert_array_equal(whole[branch.name].rates[:15], whole[trunk.name].rates[:15])
    assert len(whole[branch.name].rates) == 25
    assert len(whole[branch.name].pretrain) == trunk.spec.initial.step


def test_points_of_a_branch_count_from_the_start_of_its_phase(plan, tmp_path: Path) -> None:
    study = Study(tmp_path)
    study.write_plan(plan)
    for number, run in enumerate(plan):
        losses = ((step, corpus, 3.0 + number / 10 + step / 1000) for step in (0, 10) for corpus in run.spec.corpora)
        write_losses(study, run, losses)
    table = collect(study, "general")
    branch = next(run for run in plan if run.role == "fit" and run.spec.initial.moments)
    trunk = next(run for run in plan if run.spec.hash == branch.parent)
    rows = table[(table.run == branch.name) & (table.corpus == "code")]
    assert rows["step"].tolist() == [15, 25]
    assert rows["tokens"].tolist() == [15 * branch.spec.tokens_per_step, 25 * branch.spec.tokens_per_step]
    before = table[(table.run == trunk.name) & (table.corpus == "code") & (table.step == 0)]["loss"].item()
    assert (rows["loss_before"] == before).all()
    assert (rows["rho"] == 0).all()
    assert not pd.isna(rows["s1_pretrain"]).any()


def test_checkpoints_for_other_runs_are_kept_and_counted() -> None:
    question = read_question([*QUESTION, "continual.checkpoints.policy=explicit", "continual.checkpoints.steps=[5]"])
    plan = planned_runs(estimate(question))
    kept = {run.name: kept_steps(question, run, plan) for run in plan}
    trunk = next(run for run in plan if run.role == "pretrain" and not run.parent)
    assert kept[trunk.name] == ([20, 40], [20, 40])
    fits = [run for run in plan if run.role == "fit" and not run.spec.initial.moments]
    assert all(kept[run.name] == ([5, 30], [15]) for run in fits)
    branches = [run for run in plan if run.spec.initial.moments]
    assert all(kept[run.name] == ([10], []) for run in branches)

    weights = 4 * model_size(trunk.spec.model, trunk.spec.sequence_length).total
    (pretraining, fitting) = costs(plan, None, question)
    # Kept weights and kept states of the trunk and its two decays, and three states of one run while it trains.
    assert 0 < pretraining.disk - weights * ((2 + 2 * 3) + 2 + 9) < 100_000
    assert 0 < fitting.disk - weights * (2 * (2 + 3) + 2 + 9) < 100_000


def test_phases_may_change_batch_length_and_rope_base() -> None:
    changed = ["target.sequence_length=64", "target.global_batch=8", "continual.rope_theta=500000"]
    question = read_question([*QUESTION, *changed])
    plan = planned_runs(estimate(question))
    pretraining, continual = (next(run.spec for run in plan if run.role == role) for role in ("pretrain", "fit"))
    assert (pretraining.sequence_length, continual.sequence_length) == (128, 64)
    assert continual.tokens_per_step == 8 * 64
    assert continual.model["rope_theta"] == 500000
    assert "rope_theta" not in pretraining.model


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("transfer_steps=[50]", "transfer_steps: 50; allowed: 1 to pretrain.steps, 40"),
        (f"pretrain.branches=[{DECAY.replace('STEP', '41')}]", "pretrain.branches[0].step: 41; allowed: 1 to"),
        (f"pretrain.branches=[{DECAY.replace('STEP', '4').replace('linear', 'line')}]", "schedule[0].shape: 'line'"),
        ("objective.kind=masked", "objective.kind: 'masked' with qwen2-0.05m; allowed: causal"),
        ("boundaries=paragraphs", "boundaries: 'paragraphs'; allowed: none, documents"),
        ("mixture.replicate_at=[0.5,0.7]", "mixture.replicate_at: 0.7; allowed: one of"),
    ],
)
def test_a_mistake_names_the_key(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_question([*QUESTION, override])
    assert message in str(caught.value)


@pytest.mark.slow
def test_trunks_branches_and_transfer_points_train_end_to_end(texts: Path, tmp_path: Path) -> None:
    words = small_words(
        *(texts, tmp_path),
        *("model=qwen2-0.05m", "mixture.domain_ratio=[0.5]", "pretrain.steps=12", "transfer_steps=[6,12]"),
        *("schedule@pretrain.schedule=constant", "schedule@target.schedule=constant"),
        "pretrain.branches=[{step: 6, steps: 4, schedule: {pieces: [{shape: linear, end: 0.1}]}}]",
        "continual.branches=[{step: 24, steps: 4, schedule: {pieces: [{shape: linear, end: 0.1}]}}]",
        without=("model=", "continual.checkpoints", "pretrain.steps"),
    )
    for verb in ("prepare", "train", "collect"):
        assert cli.run([verb, *words]) == 0, verb
    study = Study(tmp_path / "studies" / "small")
    assert {study.state(planned) for planned in study.read_plan()} == {"done"}
    table = read_points(study)
    branches = table[table["run"].str.contains("branch24")]
    trunks = table[table["run"].str.contains("from6-24|from12-24") & ~table["run"].str.contains("branch")]
    assert branches["step"].min() == 24
    assert branches["step"].max() == 28
    # A branch begins exactly at its trunk's last loss.
    ends = trunks[trunks["step"] == 24].set_index(["s1_pretrain", "corpus"])["loss"]
    begins = branches[branches["step"] == 24].set_index(["s1_pretrain", "corpus"])["loss"]
    assert len(begins) == 4
    assert (begins.sort_index() == ends.sort_index()).all()


def test_a_variant_that_trains_nothing_of_its_own_is_named() -> None:
    same = "variants.same={continual: {steps: 300}}"
    words = ["experiment=quickstart", "mixture=ratios", "variants.short={continual: {steps: 60}}"]
    named, none = (
        variant_note(planned_runs(estimate(one)), one) for one in map(read_question, ([*words, same], words))
    )
    assert named.startswith("variants: nothing is trained for same: each run is one of")
    assert none == ""
