"""How much wider an interval is, the farther the target lies beyond the fitted tokens, sizes and ratios.

The horizon h is the target's tokens over the longest that was fitted at its size: between two sizes, by a line between
their longest runs on logarithms (`reach`), so that a small model is not taken to be fitted as far as a large one. The
half-width of a 90% interval of the log loss is

    sqrt( (s (log h)^POWER)^2 + (SIZE log n)^2 + (RATIO (log q)^POWER)^2 + residuals^2 + FLOOR^2 ),
    s^2 = (STRENGTH PRIOR^2 + sum_k min(growth_k, MOST PRIOR)^2) / (STRENGTH + k)

with n the target's size over the largest fitted one, or the smallest one over it, and q = (the smallest fitted ratio
+ NO_RATIO) / (the target's ratio + NO_RATIO) where that is above 1. growth_k is the root mean square of
error / (log h)^POWER of what follows one rolling origin of the points themselves: these update a prior, which counts as
STRENGTH origins. The prior was learned on the points of docs/results/horizon-split.csv with the set "learn" (12
sources, each with the same weight, 2026-11-26, `python -m docs.studies.horizon_errors`); docs/performance.md has the
coverage there and on the set "apart", which had no part in it. SIZE: chinchilla fitted to the smaller sizes of Kempner,
Marin and Chinchilla errs by .022 log n on 2 to 64 times the largest size (90% quantile of all; .017 to .031 of each,
`python -m docs.studies.horizon_growth sizes`). Smaller sizes are taken to be as far. RATIO: laws fitted without the
smallest ratios of the same set err so much below them, beside their disagreement (`... ratios`); above the largest
ratio they err as at held-out ones. Growth with the peak is not known.
"""

from collections.abc import Sequence
from math import log, sqrt

import numpy as np

PRIOR = {"law": 0.045, "average": 0.016, "curve": 0.017}
"""Half-width over (log h)^POWER of one law, of an average beside its disagreement, and of `fitting.average`."""
TRIED = {"transfer-open-saturating": (0.015, 3.0)}
"""Law -> the same of itself, and the horizon up to which it was tried (docs/base-model.md, "Which law holds?")."""
POWER = 1.5
STRENGTH = 2
MOST = 3.0
"""How many times the prior an origin may count: a short one says little of how far it is wrong."""
SIZE = 0.0225
"""Half-width over the logarithm of the size beyond the fitted ones."""
RATIO = {"law": 0.035, "average": 0.02, "curve": 0.02}
"""Half-width over (log q)^POWER of one law, and of an average."""
NO_RATIO = 0.01
"""Ratio that a corpus which is not in a mixture counts as."""
FLOOR = 0.002
"""Log error that no point was predicted without."""
NEAREST = 1.3
"""Horizon that a nearer one counts as; errors nearer than that say little of growth."""
BEYOND = 1 + 1e-6
"""Horizon from which tokens are beyond those fitted."""
Reach = list[tuple[float, float]]
"""(N, the largest D of that size), as far as no line between two others lies above; by N."""


def reach(N: np.ndarray, D: np.ndarray) -> Reach:
    """The longest runs of points (n,) by size.

    >>> reach(np.array([1.0, 1.0, 2.0, 4.0]), np.array([4.0, 16.0, 2.0, 4.0]))
    [(1.0, 16.0), (4.0, 4.0)]
    """
    corners: Reach = []
    positive = (N > 0) & (D > 0)
    sizes = N[positive]
    for size in np.unique(sizes):
        corners.append((float(size), float(D[positive][sizes == size].max())))
        while len(corners) > 2:
            (a, before), (b, middle), (c, after) = (tuple(map(log, corner)) for corner in corners[-3:])
            if (middle - before) * (c - a) > (after - before) * (b - a):
                break
            del corners[-2]
    return corners


def horizons(corners: Reach, N: np.ndarray, D: np.ndarray) -> np.ndarray:
    """Tokens (n,) over the longest fitted at size N; beyond the fitted sizes over those of the nearest.

    >>> horizons([(1.0, 16.0), (4.0, 4.0)], np.array([1.0, 2.0, 8.0]), np.array([16.0, 16.0, 16.0])).round(3).tolist()
    [1.0, 2.0, 4.0]
    """
    sizes, longest = (np.log([corner[i] for corner in corners]) for i in (0, 1))
    return np.asarray(D) / np.exp(np.interp(np.log(N), sizes, longest))


def kind_of(law: str) -> str:
    """What `half_width` knows of one law.

    >>> kind_of("transfer-open-saturating"), kind_of("dcpt")
    ('transfer-open-saturating', 'law')
    """
    return law if law in TRIED else "law"


def below(smallest: float, r: np.ndarray, kind: str) -> np.ndarray:
    """Half-width (n,) by how far ratios (n,) lie below the smallest fitted one; `kind`, of `RATIO`, else that of a law.

    >>> below(0.1, np.array([0.0, 0.05, 0.1, 0.5]), "average").round(4).tolist()
    [0.0743, 0.0094, 0.0, 0.0]
    """
    return RATIO.get(kind, RATIO["law"]) * np.log(np.maximum((smallest + NO_RATIO) / (r + NO_RATIO), 1.0)) ** POWER


def growth_of(errors: np.ndarray, horizon: np.ndarray, origin: np.ndarray) -> list[float]:
    """The growth of log errors (n,) that follow rolling origins (n,) at some horizon (n,): a number an origin."""
    far = horizon > NEAREST
    rates = np.square(errors[far]) / np.log(horizon[far]) ** (2 * POWER)
    return [sqrt(float(rates[origin[far] == one].mean())) for one in np.unique(origin[far])]


def half_width(horizon: np.ndarray, growth: Sequence[float], residual: float, kind: str = "law") -> np.ndarray:
    """Half-width (n,) of the 90% interval of the log loss at a horizon (n,); `kind`, of `PRIOR` or of `kind_of`.

    >>> half_width(np.array([3.0, 3.1]), (), 0.0, "transfer-open-saturating").round(3).tolist()
    [0.017, 0.054]
    """
    near, limit = TRIED.get(kind, (0.0, 0.0))
    prior = np.where(horizon <= limit * BEYOND, near, PRIOR.get(kind, PRIOR["law"]))
    squares = STRENGTH * prior**2 + sum(np.minimum(one, MOST * prior) ** 2 for one in growth)
    scale = np.sqrt(squares / (STRENGTH + len(growth)))
    return np.sqrt((scale * np.log(np.maximum(horizon, NEAREST)) ** POWER) ** 2 + residual**2 + FLOOR**2)
