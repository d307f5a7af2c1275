"""Curves y = (x + a)^-b + c through the runs of many domains at once.

Two curves often fit three runs exactly: one with a small b and c near 0, by which the tokens of one domain would
remove nearly the whole loss, and one with a large b, which levels off soon. They differ little between the runs. Where
both fit equally well the second is taken, as in the tables of the paper.
"""

import numpy as np

from fitting.laws import LAWS

A, B = (next(p for p in LAWS["ddo"].parameters if p.name == name) for name in ("a", "b"))
SMALLEST_B = 1e-6
GRID_A = np.concatenate([[0.0], np.geomspace(0.02, 100.0, 40)])
GRID_B = np.geomspace(1e-4, B.high, 60)


def fit_curves(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Least-squares a, b, c, each (…), of curves through y (…, k) at x (k,); a, b >= 0.

    b is 0 where y does not fall from the smallest x to the largest, or not above rounding.
    """
    rows = y.reshape(-1, len(x))
    middle = rows - rows.mean(axis=1, keepdims=True)
    grid_a, grid_b = (values.ravel() for values in np.meshgrid(GRID_A, GRID_B, indexing="ij"))
    curves = (x + grid_a[:, None]) ** -grid_b[:, None]
    curves -= curves.mean(axis=1, keepdims=True)
    cost = (curves**2).sum(axis=1) - 2 * middle @ curves.T
    # On this line b does not change the slope at x = 1: it separates the two families.
    steep = grid_b * np.log1p(grid_a) > 1
    ends = []
    for family in (steep, ~steep):
        start = np.flatnonzero(family)[np.argmin(cost[:, family], axis=1)]
        ends.append(_descend(x, middle, grid_a[start], grid_b[start]))
    (a, b, steep_cost), (gentle_a, gentle_b, gentle_cost) = ends
    drop = rows[:, np.argmin(x)] - rows[:, np.argmax(x)]
    worse = steep_cost > gentle_cost * (1 + 1e-6) + (1e-6 * drop) ** 2
    flat = drop <= 1e-9
    a = np.where(flat, 0.0, np.where(worse, gentle_a, a))
    b = np.where(flat, 0.0, np.where(worse, gentle_b, b))
    c = (rows - (x + a[:, None]) ** -b[:, None]).mean(axis=1)
    shape = y.shape[:-1]
    return a.reshape(shape), b.reshape(shape), c.reshape(shape)


def _descend(x: np.ndarray, middle: np.ndarray, a: np.ndarray, b: np.ndarray):
    """Levenberg-Marquardt in (a, log b) on all rows side by side: a, b and cost, each (rows,)."""
    z = np.log(b)
    damping = np.full(len(a), 1e-3)
    cost, residual, of_a, of_z = _linear(x, middle, a, z)
    for _ in range(300):
        gradient_a, gradient_z = (of_a * residual).sum(axis=1), (of_z * residual).sum(axis=1)
        aa, zz, az = (of_a**2).sum(axis=1), (of_z**2).sum(axis=1), (of_a * of_z).sum(axis=1)
        # At a = 0 with descent towards a < 0, only b moves.
        held = (a <= A.low) & (gradient_a > 0)
        gradient_a, az = np.where(held, 0.0, gradient_a), np.where(held, 0.0, az)
        aa, zz = aa * (1 + damping) + 1e-300, zz * (1 + damping) + 1e-300
        det = aa * zz - az**2
        det = np.where(det > 0, det, np.inf)
        next_a = np.clip(a - (zz * gradient_a - az * gradient_z) / det, A.low, A.high)
        next_z = np.clip(
            z - np.clip((aa * gradient_z - az * gradient_a) / det, -2, 2), np.log(SMALLEST_B), np.log(B.high)
        )
        found = _linear(x, middle, next_a, next_z)
        better = found[0] < cost
        gain = np.where(better, cost - found[0], 0.0)
        a, z = np.where(better, next_a, a), np.where(better, next_z, z)
        cost = np.where(better, found[0], cost)
        residual, of_a, of_z = (
            np.where(better[:, None], new, old) for new, old in zip(found[1:], (residual, of_a, of_z), strict=True)
        )
        damping = np.where(better, np.maximum(damping / 10, 1e-12), np.minimum(damping * 4, 1e12))
        if np.all((gain <= 1e-12 * cost) & (damping > 1e6) | (cost < 1e-28)):
            break
    return a, np.exp(z), cost


def _linear(x: np.ndarray, middle: np.ndarray, a: np.ndarray, z: np.ndarray):
    """Cost (rows,), residuals (rows, k) and their derivatives in a and log b; c is projected out."""
    b, base = np.exp(z)[:, None], x + a[:, None]
    value = base**-b
    of_a, of_z = -b * value / base, -b * value * np.log(base)
    residual, of_a, of_z = (part - part.mean(axis=1, keepdims=True) for part in (value, of_a, of_z))
    residual = residual - middle
    return (residual**2).sum(axis=1), residual, of_a, of_z
