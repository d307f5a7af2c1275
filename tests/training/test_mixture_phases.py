"""A mixture that changes along the schedule: the order of sequences, identity, and resuming at every place."""

import dataclasses
import json
import math
import signal
from fractions import Fraction
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.runs import attempt, points_of, train_run, trained
from training.checkpoints import states
from training.checkpoints.states import resumable_state
from training.evaluation_steps import EvaluationPolicy
from training.sampling import Sampler
from training.schedule import Piece
from training.spec import Initial, MixturePhase, RunSpec, SpecError

NAMES = "abcde"
CHANGES = (6, 12)
"""Steps after which the mixture of `changing` changes; states are saved after every third step."""

# Of each phase: its length, and the parts of up to five corpora.
phases = st.lists(
    st.tuples(st.integers(1, 300), st.lists(st.integers(0, 1000), min_size=1, max_size=5).filter(any)),
    min_size=1,
    max_size=5,
)


def mixture_of(parts: list[int]) -> dict[str, Fraction]:
    return {name: Fraction(part, sum(parts)) for name, part in zip(NAMES, parts)}


@settings(deadline=None, max_examples=60)
@given(phases, st.integers(0, 10**12), st.integers(0, 9))
def test_ratios_hold_in_every_prefix_of_each_phase_and_corpora_are_read_on(drawn, first, seed) -> None:
    # The first phase is longer by `first`: later ones are as exact far out.
    lengths = [first + drawn[0][0], *(length for length, _ in drawn[1:])]
    mixtures = [mixture_of(parts) for _, parts in drawn]
    starts = [0, *accumulate(lengths)]
    windows = dict.fromkeys(NAMES, 37)
    sampler = Sampler(mixtures[0], windows, seed, list(zip(starts[1:], mixtures[1:])))
    for number, (mixture, length) in enumerate(zip(mixtures, lengths)):
        start = starts[number] + (first if number == 0 else 0)
        end = starts[number] + length
        corpus, position, epoch = sampler.sample(np.arange(start, end))
        assert not set(corpus) - {sampler.corpora.index(name) for name in mixture if mixture[name]}
        before, after = sampler.counts(starts[number]), sampler.counts(end)
        bound = 1 if len(mixture) == 2 else math.log2(len(mixture)) + 1
        for place, name in enumerate(sampler.corpora):
            here = corpus == place
            rank = sampler.counts(start)[name]
            # Relative to `rank`, since float64 has no digits left far out.
            due = float(before[name] + (start - starts[number]) * mixture.get(name, 0) - rank)
            read, more = np.cumsum(here), np.arange(1, end - start + 1) * float(mixture.get(name, 0))
            assert np.abs(read - due - more).max() <= bound + 1e-9
            assert after[name] == rank + read[-1]
            # The k-th sequence of a corpus is that of a run on the corpus alone.
            alone = Sampler({name: 1}, windows, seed).sample(rank + np.arange(read[-1]))
            np.testing.assert_array_equal(position[here], alone[1])
            np.testing.assert_array_equal(epoch[here], alone[2])
        assert sum(after.values()) == end


def test_one_call_may_span_phases_in_any_order() -> None:
    sampler = Sampler({"a": 1}, {"a": 50, "b": 50}, 3, [(20_000, {"a": "1/2", "b": "1/2"}), (33_000, {"b": 1})])
    whole = np.stack(sampler.sample(np.arange(40_000)))
    order = np.random.default_rng(0).permutation(40_000)
    np.testing.assert_array_equal(np.stack(sampler.sample(order)), whole[:, order])
    assert sampler.counts(40_000) == {"a": 26_500, "b": 13_500}


@pytest.mark.parametrize(
    ("later", "message"),
    [
        ([(8, {"b": "1/2"})], "mixture: its ratios sum to 0.5; allowed: 1"),
        ([(8, {"c": 1})], "mixture.c: its ratio is 1 and it has 0 windows"),
        ([(8, {"b": 1}), (8, {"a": 1})], "mixture: a phase at sequence 8; allowed: above 8"),
        ([(0, {"b": 1})], "mixture: a phase at sequence 0; allowed: above 0"),
    ],
)
def test_mistakes_in_later_phases_are_named(later, message) -> None:
    with pytest.raises(ValueError, match=message):
        Sampler({"a": 1}, {"a": 9, "b": 9}, 0, later)


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


def test_phases_have_a_name_of_their_own(changing, spec) -> None:
    assert RunSpec.from_dict(json.loads(json.dumps(changing.to_dict()))) == changing
    assert "phases" not in spec.to_dict()
    first, second = changing.phases
    others = [
        (),
        (first,),
        (dataclasses.replace(first, first_sequence=20), second),
        (dataclasses.replace(first, mixture={"general": "1/3", "code": "2/3"}), second),
    ]
    assert len({changing.hash, *(dataclasses.replace(changing, phases=other).hash for other in others)}) == 5
    assert [(first, end) for first, end, _ in changing.mixtures] == [(0, 24), (24, 48), (48, 80)]


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
