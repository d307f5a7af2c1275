"""Whether an optimum is where it was predicted: runs there and around it, several seeds each.

Seeds are blocks: a seed is the same order of text at every place, so that places are compared within it, and the noise
that is left over has (places - 1)(seeds - 1) degrees of freedom. All comparisons of a call hold together, by
Bonferroni, since which place looks best is not known before (Hsu, 1984, on comparisons with the best).
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from fitting.answers.answer import Estimate
from fitting.points import TAILS, PointsError


@dataclass(frozen=True)
class AroundOptimum:
    """The answer of `around_optimum`.

    `difference`: loss at the predicted optimum minus the least of the others, with its interval; below 0 it is the best
    of all. `other`: which of the others is least. `among_best`: of each place, whether it may be the best of all.
    `sd`: noise of a run beside others of its seed. Of one seed interval and sd are NaN, and any place may be the best.
    """

    difference: Estimate
    other: int
    among_best: tuple[bool, ...]
    sd: float


def around_optimum(losses: np.ndarray, at: int) -> AroundOptimum:
    """How a predicted optimum did beside its neighbours.

    Parameters: `losses` (places, seeds), nats per token; `at`, the row of the predicted optimum. With a probability
    of 90% the place which is best in truth is `among_best`.

    Raises PointsError for fewer than two places or losses that are not finite.

    >>> found = around_optimum(np.array([[2.02, 2.04], [2.0, 2.02], [2.01, 2.03]]), 1)
    >>> round(found.difference.value, 3), found.among_best
    (-0.01, (False, True, False))
    """
    losses = np.asarray(losses, dtype=float)
    if losses.ndim != 2 or len(losses) < 2 or not np.isfinite(losses).all():
        raise PointsError("losses must be finite, (places, seeds), of two places or more")
    means, (places, seeds) = losses.mean(axis=1), losses.shape
    # Of one seed nothing is known to be worse.
    sd, half, allowed = np.nan, np.nan, np.inf
    if seeds > 1:
        free = (places - 1) * (seeds - 1)
        left = losses - losses.mean(axis=1, keepdims=True) - losses.mean(axis=0, keepdims=True) + losses.mean()
        sd = float(np.sqrt((left**2).sum() / free))
        each = 2 * TAILS[0] / (places - 1)
        half = allowed = float(stdtrit(free, 1 - each / 2) * sd * np.sqrt(2 / seeds))
    others = np.delete(np.arange(len(means)), at)
    other = int(others[np.argmin(means[others])])
    difference = float(means[at] - means[other])
    among = tuple(bool(mean - np.delete(means, i).min() <= allowed) for i, mean in enumerate(means))
    # The largest of all bounds is that beside the least of the others, as all are as wide.
    return AroundOptimum(Estimate(difference, difference - half, difference + half), other, among, sd)


def mean_of_seeds(values: np.ndarray) -> Estimate:
    """Mean and Student's t interval of the values (seeds,); NaN for ends where there is one.

    >>> mean_of_seeds(np.array([1.0, 1.0, 1.0]))
    Estimate(value=1.0, low=1.0, high=1.0)
    """
    values = np.asarray(values, dtype=float)
    mean, seeds = float(values.mean()), len(values)
    half = float(stdtrit(seeds - 1, TAILS[1]) * values.std(ddof=1) / np.sqrt(seeds)) if seeds > 1 else np.nan
    return Estimate(mean, mean - half, mean + half)


def crossing(x: np.ndarray, curves: np.ndarray, threshold: float) -> Estimate | None:
    """Where measured curves first exceed a threshold, along straight lines between the places, seed by seed.

    Parameters: `x` (places,), rising; `curves` (places, seeds). None where a seed does not cross between two places.

    >>> crossing(np.array([0.0, 1.0]), np.array([[0.0], [2.0]]), 0.5).value
    0.25
    """
    found = []
    for curve in np.asarray(curves, dtype=float).T:
        above = np.flatnonzero(curve > threshold)
        if not len(above) or above[0] == 0:
            return None
        end = above[0]
        part = (threshold - curve[end - 1]) / (curve[end] - curve[end - 1])
        found.append(x[end - 1] + part * (x[end] - x[end - 1]))
    return mean_of_seeds(np.array(found))
