"""Branches go on as their trunk would have, and every objective trains through the same loop."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from tests.training.runs import masked, points_of, trained
from training.batches import training_batches
from training.evaluation_steps import EvaluationPolicy
from training.objectives import IGNORED
from training.schedule import Piece
from training.spec import Initial, SpecError


def losses(folder: Path) -> dict[tuple[int, str], float]:
    return {(point["step"], point["corpus"]): point["loss"] for point in points_of(folder)}


def test_a_branch_at_the_trunks_rate_is_the_trunk(spec, manifest, tmp_path):
    constant = dataclasses.replace(spec, schedule=(Piece("constant", 1e-3),))
    trunk = trained(constant, manifest, tmp_path / "trunk", kept_states=(8,), resume_every=5, keep_last=1)
    assert [state.name for state in (trunk / "resume").iterdir()] == ["step-8"]
    branch_spec = dataclasses.replace(
        constant,
        initial=Initial("run", run=constant.hash, step=8, moments=True),
        steps=spec.steps - 8,
        learning_rate_before=1e-3,
        first_sequence=8 * spec.global_batch,
        evaluation=EvaluationPolicy("explicit"),
    )
    branch = trained(branch_spec, manifest, tmp_path / "branch", start=trunk / "resume" / "step-8")
    last = (spec.steps, "general")
    assert losses(branch)[(spec.steps - 8, "general")] == losses(trunk)[last]
    # Without the moments it is another run.
    fresh = dataclasses.replace(branch_spec, initial=Initial("run", run=constant.hash, step=20))
    cold = trained(fresh, manifest, tmp_path / "cold", start=trunk / "checkpoints" / f"step-{spec.steps}")
    assert losses(cold)[(spec.steps - 8, "general")] != losses(trunk)[last]


def test_a_branch_without_its_state_is_refused(spec, manifest, tmp_path):
    lost = dataclasses.replace(spec, initial=Initial("run", run="ab", step=8, moments=True))
    with pytest.raises(SpecError, match="no complete state here; run its parent again"):
        trained(lost, manifest, tmp_path / "branch", start=tmp_path / "resume" / "step-8")


def test_a_masked_model_learns(spec, manifest, tmp_path):
    bert = masked(spec, manifest, schedule=(Piece("constant", 5e-3),), global_batch=8)
    measured = losses(trained(bert, manifest, tmp_path / "bert"))
    assert measured[(0, "general")] == pytest.approx(np.log(manifest.vocabulary), rel=0.05)
    assert measured[(20, "general")] < measured[(0, "general")] - 0.2
    # Micro-batches and the place in the run change no mask.
    halves = losses(trained(bert, manifest, tmp_path / "halves", micro_batch=4))
    assert halves[(20, "general")] == pytest.approx(measured[(20, "general")], abs=1e-5)
    stores = {corpus: manifest.store(corpus) for corpus in spec.corpora}
    whole = [batch.numpy() for batch in training_batches(stores, bert, 1)]
    later = dataclasses.replace(bert, first_sequence=8, steps=2)
    np.testing.assert_array_equal(next(training_batches(stores, later, 1)).numpy(), whole[1])
    assert ((whole[0][:, 1] != IGNORED).sum(1) == bert.objective.predictions(spec.sequence_length)).all()


def test_documents_of_a_sequence_can_be_kept_apart(spec, manifest, tmp_path):
    short = dataclasses.replace(spec, steps=1, evaluation=EvaluationPolicy(), sequence_length=63)
    across = losses(trained(short, manifest, tmp_path / "across"))
    within = losses(trained(dataclasses.replace(short, boundaries="documents"), manifest, tmp_path / "within"))
    assert across.keys() == within.keys()
    assert across != within
