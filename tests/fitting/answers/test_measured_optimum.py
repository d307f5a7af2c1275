"""Statements on where an optimum is, against draws whose truth is known."""

import numpy as np
import pytest

from fitting import PointsError
from fitting.answers.measured_optimum import around_optimum, crossing, mean_of_seeds

DRAWS = 800


def _drawn(truth: np.ndarray, seeds: int, rng: np.random.Generator) -> np.ndarray:
    """Losses (places, seeds) whose seeds shift all places alike, and by more than a run's own noise."""
    return truth[:, None] + 0.02 * rng.standard_normal(seeds) + 0.005 * rng.standard_normal((len(truth), seeds))


@pytest.mark.parametrize("seeds", [2, 4])
def test_the_interval_and_the_set_of_the_best_hold_the_truth(seeds: int) -> None:
    rng = np.random.default_rng(0)
    truth = np.array([2.02, 2.0, 2.003, 2.004, 2.03])
    held = kept = 0
    for _ in range(DRAWS):
        at = int(rng.integers(len(truth)))
        found = around_optimum(_drawn(truth, seeds, rng), at)
        held += found.difference.low <= truth[at] - np.delete(truth, at).min() <= found.difference.high
        kept += found.among_best[int(truth.argmin())]
    # 90% is asked of both; Bonferroni and a best that is not known before give more.
    assert 0.88 < held / DRAWS < 0.99
    assert kept / DRAWS > 0.88


def test_of_one_seed_nothing_is_told() -> None:
    found = around_optimum(np.array([[2.0], [2.5]]), 1)
    assert found.difference.value == 0.5
    assert np.isnan(found.difference.low)
    assert found.among_best == (True, True)
    assert np.isnan(mean_of_seeds(np.array([1.0])).low)


def test_the_interval_of_a_crossing_holds_the_truth() -> None:
    rng, x = np.random.default_rng(3), np.array([0.2, 0.4, 0.6, 0.8])
    held = [
        found is not None and found.low <= 0.5 <= found.high
        for found in (crossing(x, _drawn(0.5 * x, 3, rng), 0.25) for _ in range(DRAWS))
    ]
    assert 0.85 < np.mean(held) < 0.95


def test_no_crossing_where_a_seed_does_not_cross() -> None:
    x = np.array([0.0, 1.0])
    assert crossing(x, np.array([[0.0, 0.3], [1.0, 0.4]]), 0.5) is None
    assert crossing(x, np.array([[0.6, 0.0], [1.0, 1.0]]), 0.5) is None


def test_mistakes() -> None:
    for losses in ([[2.0, 2.0]], [2.0, 2.1], [[2.0], [np.nan]]):
        with pytest.raises(PointsError, match="two places"):
            around_optimum(np.array(losses), 0)
