"""Random mixtures of several domains, for runs and for searches."""

import numpy as np
from numpy.typing import ArrayLike

from fitting.points import PointsError

CONCENTRATION = (0.1, 5.0)
"""That of RegMix: from almost one domain alone to almost any mixture."""
GRAIN = 200
"""Weights are multiples of 1 / GRAIN: a run has them exactly, and none is negligible."""
BATCH = 64
TRIES = 200
"""Batches after which the search for further mixtures stops."""


def dirichlet_mixtures(
    base: ArrayLike,
    count: int,
    *,
    seed: int = 0,
    concentration: tuple[float, float] = CONCENTRATION,
    high: ArrayLike | None = None,
) -> np.ndarray:
    """Different random mixtures (count, m) around base weights; a larger count begins with those of a smaller one.

    Each is drawn from a Dirichlet distribution whose mean is the base and whose concentration is drawn anew, evenly by
    its logarithm; what a domain has above its largest weight goes to the others in proportion to their room.

    Parameters: `base` (m,), 0 or more, made to sum to 1; a domain at 0 stays there. `concentration`, (low, high) of the
    sum of the Dirichlet's parameters: far below m almost all of a mixture is one domain, far above it is the base.
    `high` (m,), largest weights, None for 1. Raises PointsError for
    impossible numbers, largest weights that do not reach 1, and when there are not as many different mixtures.

    Source: Liu et al. 2024 (RegMix), arXiv:2407.01492, sec. 3.1, which rejects what is above the largest weight.

    >>> dirichlet_mixtures([0.5, 0.25, 0.25], 2, concentration=(3, 3)).sum(axis=1).tolist()
    [1.0, 1.0]
    """
    prior, top = checked_bounds(base, high)
    ends = np.asarray(concentration, dtype=float)
    if ends.shape != (2,) or not np.isfinite(ends).all() or not 0 < ends[0] <= ends[1]:
        raise PointsError(f"concentration = {concentration} must be two numbers, 0 < low <= high")
    most = np.where(prior > 0, np.floor(top * GRAIN + 1e-9), 0.0)
    if most.sum() < GRAIN:
        raise PointsError(f"high: largest weights sum to {most.sum() / GRAIN:g}, below 1: no mixture is within them")
    rng, found = np.random.default_rng(seed), {}
    for _ in range(TRIES):
        drawn = within(draws(prior, BATCH, rng, (ends[0], ends[1])), most / GRAIN)
        for whole in _whole(drawn):
            found.setdefault(whole.tobytes(), whole)
        if len(found) >= count:
            return np.array(list(found.values())[:count]).reshape(count, len(prior)) / GRAIN
    raise PointsError(
        f"count = {count}: only {len(found)} different mixtures were found; ask for fewer, or spread them"
    )


def draws(prior: np.ndarray, count: int, rng: np.random.Generator, concentration: tuple[float, float]) -> np.ndarray:
    """Dirichlet mixtures (count, m), the concentration of each even by its logarithm."""
    low, high = np.log(concentration)
    alpha = np.exp(rng.uniform(low, high, (count, 1))) * prior
    # In logarithms: gamma variates of a small shape are all 0 in floating point.
    with np.errstate(divide="ignore"):
        logs = np.log(rng.standard_gamma(alpha + 1)) + np.log(rng.random(alpha.shape)) / alpha
    parts = np.exp(logs - logs.max(axis=1, keepdims=True))
    return parts / parts.sum(axis=1, keepdims=True)


def within(weights: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Mixtures (n, m) of weights up to `high`: what is cut off goes to the others by their room."""
    inside = np.minimum(weights, high)
    room = high - inside
    total = room.sum(axis=1, keepdims=True)
    part = np.divide(room, total, out=np.zeros_like(room), where=total > 0)
    return inside + (1 - inside.sum(axis=1, keepdims=True)).clip(0.0) * part


def checked_bounds(base: ArrayLike, high: ArrayLike | None) -> tuple[np.ndarray, np.ndarray]:
    """(base summing to 1, high), each (m,). Raises PointsError."""
    prior = np.asarray(base, dtype=float)
    if prior.ndim != 1 or len(prior) < 2 or not np.isfinite(prior).all() or (prior < 0).any() or not prior.sum() > 0:
        raise PointsError("base must be two or more weights, one a domain, 0 or more and not all 0")
    top = np.ones_like(prior) if high is None else np.asarray(high, dtype=float)
    if top.shape != prior.shape or not np.isfinite(top).all() or (top < 0).any():
        raise PointsError(f"high must be {len(prior)} weights, one a domain, 0 or more")
    top = np.minimum(top, 1.0)
    if top.sum() < 1 - 1e-9:
        raise PointsError(f"no mixture is within the bounds: high sums to {top.sum():g}")
    return prior / prior.sum(), top


def _whole(weights: np.ndarray) -> np.ndarray:
    """Weights (n, m) as whole numbers of grains that sum to `GRAIN`: the largest remainders are rounded up."""
    parts = weights * GRAIN
    whole = np.floor(parts + 1e-9)
    lacking = np.rint(GRAIN - whole.sum(axis=1)).astype(int)
    order = np.argsort(-(parts - whole), axis=1, kind="stable")
    rank = np.argsort(order, axis=1)
    return whole + (rank < lacking[:, None])
