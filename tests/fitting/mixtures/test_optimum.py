"""The mixture of least predicted loss: planted optima, bounds, limits, trees."""

import numpy as np
import pytest

import fitting

T = np.array([[-3.0, 0.5, 0.2, 0.0], [0.3, -2.0, 0.0, 0.4], [0.0, 0.2, -4.0, 0.1], [0.1, 0.0, 0.3, -2.5]])
K = np.array([1.5, 1.0, 2.0, 0.8])


def losses(weights: np.ndarray) -> np.ndarray:
    """Four losses (4, n) as data mixing laws have them."""
    return K[:, None] * np.exp(T @ weights.T) + 2


def mean(weights: np.ndarray) -> np.ndarray:
    return losses(weights).mean(axis=0)


def slope(weights: np.ndarray) -> np.ndarray:
    return (T.T @ (losses(weights[None])[:, 0] - 2)) / 4


def grid(parts: int = 60) -> np.ndarray:
    """All mixtures of four in whole parts."""
    counts = np.indices((parts + 1,) * 3).reshape(3, -1).T
    counts = counts[counts.sum(axis=1) <= parts]
    return np.column_stack([counts, parts - counts.sum(axis=1)]) / parts


def test_at_a_free_optimum_every_domain_gains_the_same_from_a_token_more():
    found = fitting.mixture_optimum(mean, np.ones(4))
    assert found.weights.sum() == pytest.approx(1)
    assert found.weights.min() > 0.01
    assert slope(found.weights) == pytest.approx(np.full(4, slope(found.weights)[0]), abs=1e-5)
    assert found.loss <= mean(grid()).min() + 1e-9
    assert found.status.code == "inside"
    assert not found.at_high.any()


def test_largest_shares_hold():
    free = fitting.mixture_optimum(mean, np.ones(4)).weights
    high = np.array([free[0] / 2, 1.0, free[2] * 0.9, 1.0])
    found = fitting.mixture_optimum(mean, np.ones(4), high=high)
    assert found.weights[[0, 2]] == pytest.approx(high[[0, 2]])
    assert found.at_high.tolist() == [True, False, True, False]
    inside = grid()[(grid() <= high + 1e-9).all(axis=1)]
    assert found.loss <= mean(inside).min() + 1e-9


def test_a_limit_binds_where_the_free_optimum_breaks_it():
    free = fitting.mixture_optimum(mean, np.ones(4))
    cap = losses(free.weights[None])[1, 0] - 0.1

    def over(weights: np.ndarray) -> np.ndarray:
        return losses(weights)[1] - cap

    found = fitting.mixture_optimum(mean, np.ones(4), limit=over)
    assert found.status.code == "limited"
    assert over(found.weights[None])[0] == pytest.approx(0, abs=1e-6)
    allowed = grid()[over(grid()) <= 0]
    assert free.loss < found.loss <= mean(allowed).min() + 1e-9
    # From elsewhere, and from a start that breaks the limit, the same end.
    again = fitting.mixture_optimum(mean, np.ones(4), limit=over, start=free.weights)
    assert again.weights == pytest.approx(found.weights, abs=1e-4)


def test_a_limit_that_no_mixture_keeps_is_told_with_the_nearest():
    found = fitting.mixture_optimum(mean, np.ones(4), limit=lambda w: losses(w)[1] - 2.1)
    least = losses(np.eye(4))[1, 1] - 2.1
    assert found.status.code == "infeasible"
    assert found.weights == pytest.approx([0, 1, 0, 0], abs=1e-6)
    assert found.excess == pytest.approx(least)


def test_a_limit_that_few_mixtures_keep_is_found():
    corner = losses(np.eye(4)[1:2])[1, 0]
    found = fitting.mixture_optimum(mean, np.ones(4), limit=lambda w: losses(w)[1] - corner - 1e-4)
    assert found.status.code != "infeasible"
    assert 0.999 < found.weights[1] < 1


def test_the_better_of_two_local_minima_is_taken():
    deep, shallow = np.array([0.8, 0.1, 0.1]), np.array([0.1, 0.1, 0.8])

    def two_minima(weights: np.ndarray) -> np.ndarray:
        near = [np.exp(-40 * ((weights - at) ** 2).sum(axis=1)) for at in (deep, shallow)]
        return 1 - near[0] - 0.8 * near[1]

    assert fitting.mixture_optimum(two_minima, np.ones(3)).weights == pytest.approx(deep, abs=1e-3)


def test_a_minimum_without_a_domain_is_found_beside_one_with_all():
    best = np.array([0.3, 0.3, 0.2, 0.2])

    def loss(weights: np.ndarray) -> np.ndarray:
        return 10 * ((weights - best) ** 2).sum(axis=1) - 0.55 * np.exp(-weights[:, 3] / 0.02)

    found = fitting.mixture_optimum(loss, np.ones(4))
    assert found.weights == pytest.approx([1.1 / 3, 1.1 / 3, 0.8 / 3, 0], abs=1e-4)
    assert found.loss == pytest.approx(10 * (0.2**2 + 0.2**2 / 3) - 0.55, abs=1e-6)


def test_trees_are_searched_by_the_mean_of_the_best():
    target = np.array([0.5, 0.3, 0.2])

    def steps(weights: np.ndarray) -> np.ndarray:
        return np.round(((weights - target) ** 2).sum(axis=1), 3)

    found = fitting.mixture_optimum(steps, np.ones(3), smooth=False)
    assert found.weights == pytest.approx(target, abs=0.02)
    capped = fitting.mixture_optimum(steps, np.ones(3), smooth=False, high=[0.3, 1, 1], limit=lambda w: w[:, 2] - 0.25)
    assert capped.weights[0] <= 0.3 + 1e-12
    assert capped.weights[2] <= 0.25 + 1e-12
    assert capped.weights == pytest.approx([0.3, 0.45, 0.25], abs=0.02)


def test_refusals():
    with pytest.raises(fitting.PointsError, match="not a finite number"):
        fitting.mixture_optimum(lambda w: np.full(len(w), np.nan), np.ones(3))
    with pytest.raises(fitting.PointsError, match="within the bounds"):
        fitting.mixture_optimum(mean, np.ones(4), high=[0.2, 0.2, 0.2, 0.2])
