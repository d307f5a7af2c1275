"""Repeated tokens count as fewer, and how many fewer comes back from losses."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize_scalar

import fitting
from fitting import PointsError, effective_tokens, with_repetition
from tests.fitting.synthetic import TRUE, grid

UNIQUE, PASSES = 0.6, 12.0


def repeated_points(noise: float) -> pd.DataFrame:
    """D-CPT losses of a domain of 0.6 billion tokens, read up to 44 times, beside endless general text."""
    points = grid(ratios=(0.1, 0.25, 0.5, 0.75, 1.0), evaluations=8, every=25_000)
    seen = with_repetition(points, UNIQUE, passes=PASSES)
    columns = {name: seen[name].to_numpy() for name in ("N", "D", "r")}
    errors = noise * np.random.default_rng(0).standard_normal(len(points))
    return points.assign(loss=fitting.LAWS["dcpt"].loss(columns, TRUE["dcpt"]) * np.exp(errors))


def fitted(points: pd.DataFrame, passes: float) -> fitting.Fit:
    return fitting.fit(with_repetition(points, UNIQUE, passes=passes), "dcpt", bootstrap=0)


def test_the_first_pass_counts_in_full_and_later_ones_less():
    tokens = np.array([0.0, 0.3, 0.6, 1.2, 6.0, 600.0])
    seen = effective_tokens(tokens, UNIQUE, PASSES)
    np.testing.assert_array_equal(seen[:3], tokens[:3])
    assert (np.diff(seen) > 0).all()
    assert (seen[3:] < tokens[3:]).all()
    assert seen[-1] == pytest.approx(UNIQUE * (1 + PASSES), rel=1e-9)
    second = effective_tokens(1.2, UNIQUE, PASSES) - UNIQUE
    assert second == pytest.approx(UNIQUE * PASSES * (1 - np.exp(-1 / PASSES)))


def test_each_corpus_has_its_own_text():
    points = pd.DataFrame({"D": [4.0, 4.0], "r": [0.25, 0.25]})
    seen = with_repetition(points, unique=np.array([1.0, 0.2]), unique_rest=0.5)
    own, rest = effective_tokens([1.0, 1.0], [1.0, 0.2]), effective_tokens(3.0, 0.5)
    np.testing.assert_allclose(seen["D"], own + rest)
    np.testing.assert_allclose(seen["r"] * seen["D"], own)


def test_the_passes_come_back_from_losses():
    points = repeated_points(noise=0.002)
    best = minimize_scalar(lambda log: fitted(points, np.exp(log)).objective, bounds=np.log([2, 100]), method="bounded")
    passes = float(np.exp(best.x))  # pyright: ignore[reportAttributeAccessIssue]
    assert passes == pytest.approx(PASSES, rel=0.1)
    assert fitted(points, passes).objective < 0.6 * fitting.fit(points, "dcpt", bootstrap=0).objective
    assert fitted(repeated_points(noise=0.0), PASSES).params == pytest.approx(TRUE["dcpt"], rel=0.02)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: effective_tokens(1.0, 0.0), "unique = 0 must be above 0"),
        (lambda: effective_tokens(-1.0, 1.0), "tokens = -1 must be 0 or more"),
        (lambda: effective_tokens(1.0, 1.0, passes=0.0), "passes = 0 must be above 0"),
        (lambda: with_repetition(pd.DataFrame({"D": [1.0]}), 1.0), "missing column: r"),
        (lambda: with_repetition(pd.DataFrame({"D": [1.0], "r": [1.5]}), 1.0), "r = 1.5 .* is not allowed"),
    ],
)
def test_what_cannot_be_is_one_line(call, words):
    with pytest.raises(PointsError, match=words) as error:
        call()
    assert "\n" not in str(error.value)
