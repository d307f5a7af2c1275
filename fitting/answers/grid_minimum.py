"""Where a curve that is known on a grid is lowest."""

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize_scalar


def least(loss: Callable[[float], float], grid: np.ndarray, curve: np.ndarray) -> tuple[float, int]:
    """Where a function is least, searched around its lowest value on the grid (n,); and that place: -1, 0 or 1.

    -1 and 1: the first and the last point of the grid, 0: inside.

    >>> grid = np.linspace(0, 1, 11)
    >>> round(least(lambda x: (x - 0.33) ** 2, grid, (grid - 0.33) ** 2)[0], 6)
    0.33
    """
    best = int(np.argmin(curve))
    if best in (0, len(grid) - 1):
        return float(grid[best]), 1 if best else -1
    bounds = (float(grid[best - 1]), float(grid[best + 1]))
    found = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-10})
    return float(found.x), 0  # pyright: ignore[reportAttributeAccessIssue]


def lowest(grid: np.ndarray, curves: np.ndarray) -> np.ndarray:
    """Where each curve (draws, grid) is lowest, by the parabola through its lowest point and the two beside it."""
    at = np.argmin(curves, axis=1) if len(curves) else np.zeros(0, dtype=int)
    middle = np.clip(at, 1, len(grid) - 2)
    rows = np.arange(len(curves))
    x0, x1, x2 = grid[middle - 1], grid[middle], grid[middle + 1]
    left = (curves[rows, middle] - curves[rows, middle - 1]) / (x1 - x0)
    bend = ((curves[rows, middle + 1] - curves[rows, middle]) / (x2 - x1) - left) / (x2 - x0)
    vertex = (x0 + x1) / 2 - np.divide(left, 2 * bend, out=np.zeros(len(at)), where=bend > 0)
    inside = (at == middle) & (bend > 0)
    return np.where(inside, np.clip(vertex, x0, x2), grid[at])
