"""The mixture of several domains at which a predicted loss is least, within bounds and under a limit."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize

from fitting.answers.answer import Status
from fitting.mixtures.random_mixtures import checked_bounds, draws, within
from fitting.points import PointsError

Predict = Callable[[np.ndarray], np.ndarray]
"""Weights (n, m) -> a number for each (n,)."""
CONCENTRATIONS = (0.5, 10.0)
"""Concentrations of the random mixtures: from one or two domains (in all) to near the base (a domain)."""
STARTS = 5
WITHOUT = 200
"""Random mixtures without one domain, of each domain."""
BEST = 100
STEP = 1e-6
TOUCHES = 1e-4
SLACK = 1e-6
"""Part of the limit that rounding may add."""


@dataclass(frozen=True, eq=False)
class MixtureOptimum:
    """The answer of `mixture_optimum`, for m domains.

    `weights` (m,), sum 1; `loss`, predicted there. `status`: "limited" where the limit binds; "infeasible" where no
    mixture keeps it, and weights are those that exceed it least, by `excess`. `at_low`, `at_high` (m,): the domains at
    a bound.
    """

    weights: np.ndarray
    loss: float
    excess: float
    status: Status
    at_low: np.ndarray
    at_high: np.ndarray


def mixture_optimum(
    loss: Predict,
    base: ArrayLike,
    *,
    high: ArrayLike | None = None,
    limit: Predict | None = None,
    smooth: bool = True,
    start: ArrayLike | None = None,
    samples: int | None = None,
    seed: int = 0,
) -> MixtureOptimum:
    """The mixture weights of least loss within bounds and, where a limit is given, with limit(weights) <= 0.

    Evaluates random mixtures; then, for a smooth loss, descends from the best of them, and from the best without each
    domain (sequential least squares programming), which reaches the optimum of a convex loss under a convex limit from
    any start; for trees, whose loss has steps, it takes the mean of the BEST.

    Parameters: `loss`, weights (n, m) -> (n,); `base` (m,), around which mixtures are drawn, equal weights say; `high`
    (m,), largest weights, None for 1; `limit`, weights (n, m) -> (n,); `smooth`, False for
    trees; `start` (m,), for a smooth loss: the only start of the descent; `samples`, number of random mixtures, None
    for 2,000, or 100,000 for trees.

    Raises PointsError for bounds that no mixture is within, and a loss that is not finite.

    Source: the mean of the best of many draws, Liu et al. 2024 (RegMix), arXiv:2407.01492, sec. 3.3.

    >>> found = mixture_optimum(lambda w: ((w - [0.7, 0.2, 0.1]) ** 2).sum(axis=1), [1, 1, 1], high=[0.5, 1, 1])
    >>> found.weights.round(3).tolist(), found.at_high.tolist()
    ([0.5, 0.3, 0.2], [True, False, False])
    """
    prior, top = checked_bounds(base, high)
    rng, m = np.random.default_rng(seed), len(prior)
    count = samples or (2_000 if smooth else 100_000)
    if start is not None and smooth:
        cloud = within(np.asarray(start, dtype=float)[None], top)
    else:
        drawn = draws(np.maximum(prior, 1e-3 / m), count, rng, (CONCENTRATIONS[0], CONCENTRATIONS[1] * m))
        cloud = np.vstack([prior, drawn])
        if smooth:
            # A law may let the loss fall where a domain is left out, beside a minimum with all of them.
            without = np.maximum(drawn[:WITHOUT], 1e-9) * (1 - np.eye(m))[:, None]
            cloud = np.vstack([cloud, *(without / without.sum(axis=2, keepdims=True))])
        cloud = within(cloud, top)
    values, over = _finite(loss, cloud), _over(limit, cloud)

    if not smooth:
        kept = np.flatnonzero(over <= 0)
        kept = kept if len(kept) else np.argsort(over, kind="stable")[:BEST]
        chosen = kept[np.argsort(values[kept], kind="stable")[:BEST]]
        weights = cloud[chosen].mean(axis=0)
        if _over(limit, weights[None])[0] > max(0.0, over[chosen].min()):
            weights = cloud[chosen[0]]
        return _answer(loss, limit, weights, top, limited=bool((over > 0).any()) and limit is not None)

    order = np.lexsort([values, np.maximum(over, 0.0)])
    faces = (order - count - 1) // WITHOUT
    starts = [*order[:STARTS], *(order[faces == j][0] for j in range(m) if (faces == j).any())]
    ends = [cloud[order[0]], *(_descend(loss, limit, cloud[i], top) for i in starts)]
    if limit is not None and (_over(limit, np.array(ends)) > SLACK).all():
        # Perhaps no mixture keeps the limit: descend to the one nearest to it, and on from there.
        nearest = _descend(limit, None, cloud[np.argmin(over)], top)
        if _over(limit, nearest[None])[0] > SLACK:
            return _answer(loss, limit, nearest, top, limited=True)
        ends = [nearest, _descend(loss, limit, nearest, top)]
    feasible = np.array(ends)[_over(limit, np.array(ends)) <= SLACK]
    weights = feasible[np.argmin(_finite(loss, feasible))]
    return _answer(loss, limit, weights, top, limited=_over(limit, weights[None])[0] > -TOUCHES)


def _answer(loss, limit, weights, high, limited: bool) -> MixtureOptimum:
    excess = float(_over(limit, weights[None])[0])
    status = Status("inside", "nothing: the optimum lies inside the limit")
    if excess > SLACK:
        status = Status("infeasible", f"no mixture keeps the limit: the least excess is {excess:.4g}")
    elif limited:
        status = Status("limited", "the limit binds")
    return MixtureOptimum(
        weights=weights,
        loss=float(_finite(loss, weights[None])[0]),
        excess=excess,
        status=status,
        at_low=weights <= TOUCHES,
        at_high=(weights >= high - TOUCHES) & (high < 1),
    )


def _descend(loss: Predict, limit: Predict | None, start: np.ndarray, high: np.ndarray) -> np.ndarray:
    scale = max(abs(float(_finite(loss, start[None])[0])), 1e-9)
    constraints: list[dict] = [{"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda w: np.ones_like(w)}]
    if limit is not None:
        constraints.append(
            {
                "type": "ineq",
                "fun": lambda w: -float(limit(np.clip(w, 0.0, high)[None])[0]),
                "jac": lambda w: -_gradient(limit, np.clip(w, 0.0, high)),
            }
        )
    # SLSQP leaves its bounds by rounding, where a law may have no value.
    found = minimize(
        lambda w: float(loss(np.clip(w, 0.0, high)[None])[0]) / scale,
        start,
        jac=lambda w: _gradient(loss, np.clip(w, 0.0, high)) / scale,
        bounds=[(0.0, most) for most in high],
        constraints=constraints,
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 200},
    )
    # Bounds and sum hold up to rounding only.
    end = np.clip(found.x, 0.0, high)
    rest = 1 - end.sum()
    room = high - end if rest > 0 else end
    end = end + rest * room / max(float(room.sum()), 1e-300)
    return end if np.isfinite(end).all() else start


def _gradient(predict: Predict, w: np.ndarray) -> np.ndarray:
    """Derivatives (m,), by differences that stay in [0, 1]."""
    low, high = np.maximum(w - STEP, 0.0), np.minimum(w + STEP, 1.0)
    rows = np.repeat(w[None], 2 * len(w), axis=0)
    diagonal = np.arange(len(w))
    rows[diagonal, diagonal], rows[len(w) + diagonal, diagonal] = high, low
    values = predict(rows)
    return (values[: len(w)] - values[len(w) :]) / (high - low)


def _over(limit: Predict | None, weights: np.ndarray) -> np.ndarray:
    return np.full(len(weights), -np.inf) if limit is None else np.asarray(limit(weights), dtype=float)


def _finite(loss: Predict, weights: np.ndarray) -> np.ndarray:
    values = np.asarray(loss(weights), dtype=float)
    if values.shape != (len(weights),) or not np.isfinite(values).all():
        raise PointsError("the predicted loss of a mixture is not a finite number: its fit cannot be used")
    return values
