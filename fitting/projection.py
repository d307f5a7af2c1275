"""Variable projection: the coefficients are solved for, so that only the exponents are searched.

Golub & Pereyra 1973 with Kaufman's 1975 Jacobian, non-negative coefficients, and rows divided by the loss, so
that the sum of squares stands for that of log residuals.
"""

import numpy as np
from scipy.optimize import least_squares, nnls

from fitting.problem import Problem

CANDIDATES = 48
STARTS = 5
AGREEMENT = 3
"""Descents that end at the least cost, after which no more are made."""
SAME = 1e-5


def starting_points(problem: Problem, rng: np.random.Generator) -> list[np.ndarray]:
    """The distinct least-squares optima theta, best first, that the best of many random psi lead to."""
    if not problem.nonlinear:
        return [_Projected(problem).solve(np.zeros(0))]
    low = np.array([p.coordinate(p.start[0]) for p in problem.nonlinear])
    high = np.array([p.coordinate(p.start[1]) for p in problem.nonlinear])
    candidates = rng.uniform(low, high, (CANDIDATES, len(low)))
    projected = _Projected(problem)
    promising = np.argsort([np.sum(projected.residual(z) ** 2) for z in candidates])[:STARTS]
    ends = []
    for i in promising:
        ends.append(_descend(problem, candidates[i]))
        least = min(end.cost for end in ends)
        # Found three times from far apart, it is the valley that is looked for.
        if sum(end.cost <= least * (1 + SAME) for end in ends) == AGREEMENT:
            break
    optima: list[np.ndarray] = []
    cost = 0.0
    for found in sorted(ends, key=lambda end: end.cost):
        if not optima or found.cost > cost * (1 + SAME):
            optima.append(np.concatenate([projected.solve(found.x), found.x]))
            cost = found.cost
    return optima


def _descend(problem: Problem, z: np.ndarray):
    projected = _Projected(problem)
    inside = np.clip(z, problem.lower + 1e-9, problem.upper - 1e-9)
    return least_squares(
        projected.residual,
        inside,
        jac=projected.jacobian,  # pyright: ignore[reportArgumentType]
        bounds=(problem.lower, problem.upper),
        xtol=1e-6,
        ftol=1e-8,
        gtol=1e-12,
        max_nfev=60,
    )


class _Projected:
    """Residual and Jacobian of the projected problem; remembers the last z, as both are asked there."""

    def __init__(self, problem: Problem):
        self.problem = problem
        self.rows = np.sqrt(problem.weights) / problem.loss
        self.z = np.array([])

    def solve(self, z: np.ndarray) -> np.ndarray:
        """The best amounts u >= 0 of the generators at z."""
        if not np.array_equal(z, self.z):
            self.z = z.copy()
            offset, columns = self.problem.columns(z)
            self.matrix = columns * self.rows[:, None]
            self.right = (self.problem.loss - offset) * self.rows
            triangle = np.asarray(np.linalg.qr(np.column_stack([self.matrix, self.right]), mode="r"))
            self.u = nnls(triangle[:, :-1], triangle[:, -1])[0] if columns.shape[1] else np.zeros(0)
        return self.u

    def residual(self, z: np.ndarray) -> np.ndarray:
        u = self.solve(z)
        return self.matrix @ u - self.right

    def jacobian(self, z: np.ndarray) -> np.ndarray:
        residual = self.residual(z)
        at = residual / self.rows + self.problem.loss
        slopes = self.problem.slopes(z, self.u, at) * self.rows[:, None]
        used, _ = np.linalg.qr(self.matrix[:, self.u > 0])
        return slopes - used @ (used.T @ slopes)
