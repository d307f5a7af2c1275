"""How far a law's prediction misses a new run, by what it was missed by on runs of the same kind that no fit saw.

Outside its points a law errs more than its residuals say, and by how much depends on the kind of extrapolation: to
ratios between those fitted, to more tokens, to a larger model, to both. The half-width of a 90% interval of the log
loss is, by the root mean squares of one law, or of the average of several, on one corpus,

    factor sqrt(held-out errors^2 + residuals^2 + FLOOR^2) student

`student` is how much wider an interval of Student's t with two degrees of freedom fewer than fitted runs is than that
of the normal: 1.8 at four runs, 1.1 at twelve. With 4, 6 and 9 runs drawn at random from 19 series of kept and public
runs, it makes intervals hold 93, 89 and 90% of the ends of the others, where without it they hold 83 to 86%. The
factors make them hold 90% of the points that were left out of these series (`python -m docs.studies.interval_coverage`,
also with `few`). That of an average is small: its interval also has what its laws disagree by. Laws that are nearly one
disagree by nothing, so its factor rises to that of one law with the part of their squared errors that they have in
common (the decomposition of Krogh & Vedelsby 1995).
"""

from collections.abc import Mapping
from math import log, sqrt

import numpy as np
from scipy.special import ndtri, stdtrit

FACTORS = {"ratio": 0.77, "tokens": 1.25, "size": 1.29, "size-and-tokens": 1.76}
"""Kind of extrapolation, as `fitting.folds` holds it out -> half-width of one law over the root of the squares."""
STAND_IN = 2.2
"""Times that factor, where errors of another kind stand for those of the target's."""
AVERAGE_FACTORS = {"ratio": 0.45, "tokens": 0.72, "size": 1.4, "size-and-tokens": 1.27}
"""The same of the average of several laws, whatever was held out, beside their disagreement (`fitting.law_average`)."""
IN_COMMON = 0.6
"""Part of the laws' squared errors from which the factor of an average rises (docs/performance.md)."""
FLOOR = 0.006
"""Log error that no run of these series was predicted without."""
NEXT = {
    "ratio": ("ratio", "tokens", "size", "size-and-tokens"),
    "tokens": ("tokens", "size-and-tokens", "size", "ratio"),
    "size": ("size", "size-and-tokens", "tokens", "ratio"),
    "size-and-tokens": ("size-and-tokens", "size", "tokens", "ratio"),
}
"""Kind -> the kinds of held-out errors that stand for it, the first that there are."""
FREEDOM = 4
"""Degrees of freedom of Student's t, whose tails are those of the errors of different series."""


def extrapolation(ranges: Mapping[str, tuple[float, float]], N: float, D: float) -> str:
    """The kind of a target by the fitted ranges of N and D; a smaller model, or fewer tokens, are as far outside.

    >>> extrapolation({"N": (0.1, 1.0), "D": (1.0, 8.0)}, N=1.0, D=16.0)
    'tokens'
    """
    outside = [
        name
        for name, value, column in (("size", N, "N"), ("tokens", D, "D"))
        if column in ranges and distance(ranges[column], value) > 0
    ]
    return "-and-".join(outside) or "ratio"


def distance(fitted: tuple[float, float], value: float) -> float:
    """How far a value is outside what was fitted, as a logarithm; 0 inside.

    >>> round(distance((1.0, 8.0), 16.0), 3)
    0.693
    """
    low, high = fitted
    if low * (1 - 1e-9) <= value <= high * (1 + 1e-9):
        return 0.0
    return abs(log(value / (high if value > high else low))) if value > 0 and low > 0 else 1.0


def average_factor(kind: str, in_common: float) -> float:
    """The factor of an average whose laws have a part of their squared errors in common, of 0 to 1.

    >>> [round(average_factor("ratio", part), 2) for part in (0.0, 0.6, 0.8, 1.0)]
    [0.45, 0.45, 0.63, 0.77]
    """
    alone, average = FACTORS[kind] ** 2, AVERAGE_FACTORS[kind] ** 2
    alike = max(in_common - IN_COMMON, 0.0) / (1 - IN_COMMON)
    return sqrt(average + alike * max(alone - average, 0.0))


def half_width(errors: np.ndarray, residual: float, factor: float, runs: int) -> float:
    """Half-width of the 90% interval of a log loss.

    `errors`: log errors (k,) of held-out predictions; `residual`: root mean square of the fit's own log residuals;
    `runs`: how many the fit has read.
    """
    student = float(stdtrit(max(runs - 2, 1), 0.95) / ndtri(0.95))
    return student * factor * sqrt(float(np.mean(np.square(errors))) + residual**2 + FLOOR**2)


def log_errors(half_width: float | np.ndarray, count: int = 199) -> np.ndarray:
    """Log errors (count,), or (n, count) of half-widths (n, 1) of 90%, that stand for a distribution of them.

    They are quantiles of Student's t.
    """
    quantiles = stdtrit(FREEDOM, (np.arange(count) + 0.5) / count)
    return half_width * quantiles / stdtrit(FREEDOM, 0.95)
