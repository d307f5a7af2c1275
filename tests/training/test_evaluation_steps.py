"""Evaluation steps: the paper's counts, the ends always there, mistakes named."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.evaluation_steps import POLICIES, EvaluationPolicy, evaluation_steps

LONG = 200_000


@pytest.mark.parametrize(
    ("policy", "steps", "expected"),
    [
        (EvaluationPolicy("dense"), LONG, [*range(0, LONG + 1, 1000)]),
        (EvaluationPolicy("sparse"), LONG, [*range(0, LONG + 1, 5000)]),
        (EvaluationPolicy("sectional"), LONG, [*range(0, 120_001, 4000), *range(128_000, LONG + 1, 8000)]),
        # Densities e^-1/2, e^-1, e^-3/2 sum to .607, .974, 1.198: the third passes 1.
        (EvaluationPolicy("decay", every=1, decay=0.5), 4, [0, 3, 4]),
        (EvaluationPolicy("decay", 7, 0.0), 100, [*range(0, 100, 7), 100]),
        (EvaluationPolicy("explicit", steps=(30, 10, 10)), 40, [0, 10, 30, 40]),
    ],
)
def test_steps_of_each_policy(policy, steps, expected):
    assert evaluation_steps(policy, steps) == expected


def test_decay_gives_48_points_by_the_deterministic_rule():
    steps = evaluation_steps(EvaluationPolicy("decay", decay=0.02), LONG)
    assert len(set(steps) - {0, LONG}) == 48
    assert LONG not in evaluation_steps(EvaluationPolicy("decay", decay=0.02), LONG + 1000)
    assert all(step % 1000 == 0 for step in steps)
    gaps = np.diff(steps[1:-1])
    assert gaps[-5:].mean() > 10 * gaps[:5].mean()


def test_bernoulli_is_a_draw_by_seed_whose_shorter_runs_agree():
    draws = [evaluation_steps(EvaluationPolicy("decay", bernoulli=True, seed=seed), LONG) for seed in range(60)]
    counts = np.array([len(set(steps) - {0, LONG}) for steps in draws])
    assert abs(counts.mean() - 48.6) < 3
    assert 3 < counts.std() < 8
    assert draws[0] != draws[1]
    short = evaluation_steps(EvaluationPolicy("decay", bernoulli=True, seed=3), 50_000)
    assert set(short) - {50_000} == {step for step in draws[3] if step < 50_000}


@settings(deadline=None)
@given(st.sampled_from(POLICIES), st.integers(1, 50), st.integers(0, 2000), st.booleans())
def test_rising_unique_and_with_both_ends(policy, every, steps, bernoulli):
    taken = evaluation_steps(EvaluationPolicy(policy, every, bernoulli=bernoulli), steps)
    assert taken == sorted(set(taken))
    assert taken[0] == 0
    assert taken[-1] == steps
    assert all(type(step) is int for step in taken)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (EvaluationPolicy("often"), r"evaluation\.policy: 'often' is not a policy; allowed: dense, sparse"),
        (EvaluationPolicy(every=0), r"evaluation\.every: 0"),
        (EvaluationPolicy("decay", decay=-1.0), r"evaluation\.decay: -1\.0"),
        (EvaluationPolicy("decay", decay=float("nan")), r"evaluation\.decay: nan"),
        (EvaluationPolicy("explicit", steps=(5, 11)), r"evaluation\.steps: 11 is not in the run; allowed: 0 to 10"),
    ],
)
def test_mistakes_are_named(policy, message):
    with pytest.raises(ValueError, match=message):
        evaluation_steps(policy, 10)
    with pytest.raises(ValueError, match="steps: -1"):
        evaluation_steps(EvaluationPolicy(), -1)
