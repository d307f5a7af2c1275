"""Tokens poured over domains until the next token of each lowers the loss by as much, or a bound holds it."""

import numpy as np
from scipy.optimize import root_scalar


def optimum(a: np.ndarray, b: np.ndarray, shares: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The x (m,) with least sum_j (x_j + a_j)^-b_j, sum_j shares_j x_j = 1 and low <= x <= high.

    Where x_j is inside its bounds, b_j (x_j + a_j)^-(b_j + 1) = mu shares_j; tokens fall as mu rises, so that mu is one
    root. What no other domain can take goes to those with b = 0, which are all filled to the same x.
    """
    felt = b > 0
    x = low.copy()
    if felt.any():
        start, power = np.log(b[felt] / shares[felt]), b[felt] + 1

        def inside(log_mu: float) -> np.ndarray:
            return np.clip(np.exp((start - log_mu) / power) - a[felt], low[felt], high[felt])

        rest = 1 - shares[~felt] @ low[~felt]
        all_high = float(np.min(start - power * np.log(high[felt] + a[felt]))) - 1
        all_low = float(np.max(start - power * np.log(np.maximum(low[felt] + a[felt], 1e-12)))) + 1
        x[felt] = high[felt]
        if shares[felt] @ high[felt] > rest:
            x[felt] = inside(_root(lambda log_mu: shares[felt] @ inside(log_mu) - rest, all_high, all_low))
    if not felt.all():
        rest = 1 - shares[felt] @ x[felt]
        level = _root(lambda v: shares[~felt] @ np.clip(v, low[~felt], high[~felt]) - rest, 0.0, float(high.max()))
        x[~felt] = np.clip(level, low[~felt], high[~felt])
    return x / (shares @ x)


def _root(value, left: float, right: float) -> float:
    """The root of a monotone function between two ends, the nearer end where rounding leaves none."""
    at_left, at_right = value(left), value(right)
    if at_left * at_right >= 0:
        return left if abs(at_left) <= abs(at_right) else right
    return float(root_scalar(value, bracket=(left, right), xtol=1e-13, rtol=1e-14, maxiter=500).root)
