"""A run whose mixture changes along the schedule: its identity, its losses, and resuming at every place."""

import dataclasses
import signal

import pytest

from tests.training.runs import attempt, points_of, train_run, trained
from training.checkpoints import states
from training.checkpoints.states import resumable_state
from training.evaluation_steps import EvaluationPolicy
from training.schedule import Piece
from training.spec import Initial, MixturePhase, RunSpec, SpecError

CHANGES = (6, 12)
"""Steps after which the mixture of `changing` changes; states are saved after every third step."""


@pytest.fixture(scope="module")
def changing(spec: RunSpec) -> RunSpec:
    """Twenty steps on three mixtures, evaluated after each."""
    ratios = [{"general": "0", "code": "1"}, {"general": "1/2", "code": "1/2"}]
    return dataclasses.replace(
        spec,
        schedule=(Piece("constant", 1e-3),),
        evaluation=EvaluationPolicy("dense", every=1),
        phases=tuple(MixturePhase(step * spec.global_batch, mixture) for step, mixture in zip(CHANGES, ratios)),
    )


@pytest.fixture(scope="module")
def whole(changing, manifest, tmp_path_factory):
    """Folder of that run, which nobody disturbed, with all its states."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        # A run that is done keeps none.
        patch.setattr(states, "drop_states", lambda *_: None)
        return trained(changing, manifest, folder, keep_last=100, kept_states=(9,))


def test_losses_are_those_of_one_mixture_up_to_the_change(changing, manifest, whole, tmp_path) -> None:
    plain = points_of(trained(dataclasses.replace(changing, phases=()), manifest, tmp_path))
    own = points_of(whole)
    same = [one == other for one, other in zip(own, plain, strict=True)]
    per_step = len(changing.corpora)
    assert same == [True] * (CHANGES[0] + 1) * per_step + [False] * (changing.steps - CHANGES[0]) * per_step


def test_killed_in_each_phase_and_at_each_change_the_bytes_are_the_same(changing, manifest, whole, tmp_path) -> None:
    # Killed before the points of a step are written; the newest state is that of the third, sixth, ... step before.
    for step, state in ((5, 3), (7, 6), (10, 9), (13, 12), (16, 15)):
        first = max(state - 3, 0)
        assert attempt(changing, tmp_path, manifest, die_at=("points", step - first + 1)) == -signal.SIGKILL
        newest = resumable_state(changing, tmp_path)
        assert newest is not None
        assert newest.name == f"step-{state}"
        assert points_of(tmp_path)[-1]["step"] == step - 1
    assert attempt(changing, tmp_path, manifest) == 0
    assert (tmp_path / "points.jsonl").read_bytes() == (whole / "points.jsonl").read_bytes()


def test_a_branch_reads_on_in_the_phases_of_its_trunk(changing, manifest, whole, tmp_path) -> None:
    branch = dataclasses.replace(
        changing,
        initial=Initial("run", run=changing.hash, step=9, moments=True),
        steps=changing.steps - 9,
        learning_rate_before=1e-3,
        first_sequence=9 * changing.global_batch,
    )
    assert [(first, end) for first, end, _ in branch.mixtures] == [(0, 24), (24, 48), (48, 80)]
    short = dataclasses.replace(branch, steps=1)
    assert [(first, end) for first, end, _ in short.mixtures] == [(0, 24), (24, 40), (40, 40)]
    losses = [point["loss"] for point in points_of(trained(branch, manifest, tmp_path, start=whole / "resume/step-9"))]
    assert losses == [point["loss"] for point in points_of(whole)][9 * len(changing.corpora) :]


def test_a_reweighted_run_has_one_mixture(proxy, changing, manifest, reference, tmp_path) -> None:
    both = dataclasses.replace(proxy, phases=changing.phases)
    with pytest.raises(SpecError, match="phases: 2 in a run with reweighting; allowed: one mixture"):
        train_run(both, tmp_path, manifest, reference=reference)
