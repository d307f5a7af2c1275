"""Minimum of a function around its least value on a grid, and where curves on a grid leave a limit."""

from collections.abc import Callable

import numpy as np
import pandas as pd
from scipy.optimize import minimize_scalar

from fitting.fitted import Fit
from fitting.law_average import LawAverage


def minimum_along(
    fit: Fit | LawAverage, frame_at: Callable[[np.ndarray], pd.DataFrame], grid: np.ndarray
) -> tuple[float, int, np.ndarray]:
    """Where a fit has its least loss along a grid, as `grid_minimum`, and where (draws,) its refits have it."""
    curve = fit.predict(frame_at(grid))
    best, end = grid_minimum(lambda x: float(fit.predict(frame_at(np.array([x])))[0]), grid, curve)
    curves = fit.predict_draws(frame_at(grid)) if len(fit.draws) else np.zeros((0, len(grid)))
    return best, end, parabola_minima(grid, curves)


def last_within(grid: np.ndarray, curves: np.ndarray, caps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where curves (n, grid) leave their caps (n, k) for good.

    The last place (n, k) that is within, between two points of the grid along a straight line, and the point (n, k)
    before it; NaN and -1 where there is none.
    """
    # The least loss at each point and all above rises along the grid, so that it can be searched.
    least = np.fmin.accumulate(curves[:, ::-1], axis=1)[:, ::-1]
    last = np.array([np.searchsorted(row, cap, "right") - 1 for row, cap in zip(least, caps, strict=True)])
    before, rows = np.maximum(last, 0), np.arange(len(curves))[:, None]
    after = np.minimum(before + 1, len(grid) - 1)
    rise = curves[rows, after] - curves[rows, before]
    part = np.divide(caps - curves[rows, before], rise, out=np.zeros(caps.shape), where=rise > 0)
    return np.where(last < 0, np.nan, grid[before] + part * (grid[after] - grid[before])), last


def largest_within(grid: np.ndarray, curves: np.ndarray, cap: float) -> np.ndarray:
    """The last place (n,) at which each curve (n, grid) is within the cap, as `last_within`; NaN: none."""
    return last_within(grid, curves, np.full((len(curves), 1), cap))[0][:, 0]


def grid_minimum(loss: Callable[[float], float], grid: np.ndarray, curve: np.ndarray) -> tuple[float, int]:
    """The minimiser of a function, searched around its least value on the grid (n,), and its position.

    Position: -1 and 1 for the first and the last point of the grid, 0 inside.

    >>> grid = np.linspace(0, 1, 11)
    >>> round(grid_minimum(lambda x: (x - 0.33) ** 2, grid, (grid - 0.33) ** 2)[0], 6)
    0.33
    """
    best = int(np.argmin(curve))
    if best in (0, len(grid) - 1):
        return float(grid[best]), 1 if best else -1
    bounds = (float(grid[best - 1]), float(grid[best + 1]))
    result = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-10})
    return float(result.x), 0  # pyright: ignore[reportAttributeAccessIssue]


def parabola_minima(grid: np.ndarray, curves: np.ndarray) -> np.ndarray:
    """Minimiser of each curve (draws, grid), by the parabola through its lowest point and its two neighbours."""
    at = np.argmin(curves, axis=1) if len(curves) else np.zeros(0, dtype=int)
    middle = np.clip(at, 1, len(grid) - 2)
    rows = np.arange(len(curves))
    x0, x1, x2 = grid[middle - 1], grid[middle], grid[middle + 1]
    left = (curves[rows, middle] - curves[rows, middle - 1]) / (x1 - x0)
    curvature = ((curves[rows, middle + 1] - curves[rows, middle]) / (x2 - x1) - left) / (x2 - x0)
    vertex = (x0 + x1) / 2 - np.divide(left, 2 * curvature, out=np.zeros(len(at)), where=curvature > 0)
    inside = (at == middle) & (curvature > 0)
    return np.where(inside, np.clip(vertex, x0, x2), grid[at])
