"""Variable projection: the coefficients are solved for, so that only the exponents are searched.

Golub & Pereyra 1973 with Kaufman's 1975 Jacobian, non-negative coefficients, and rows divided by the loss, so
that the sum of squares stands for that of log residuals.
"""

import functools

import numpy as np
from scipy.linalg.lapack import dgeqrf, dorgqr  # pyright: ignore[reportAttributeAccessIssue]
from scipy.optimize import nnls

from fitting.solver.bounded_step import bounded_step
from fitting.solver.problem import Problem

CANDIDATES = 48
STARTS = 6
AGREEMENT = 5
"""Descents that end at the least cost, after which no more are made."""
SAME = 1e-5
BESIDE = 0.1
"""Within this of a known end, in cost and in each coordinate, a descent leads there."""
EXACT = 1e-24
"""A cost at which the points are met: of several such ends, as where a law has no points to spare, the first counts."""


def starting_points(problem: Problem, rng: np.random.Generator) -> list[np.ndarray]:
    """The distinct least-squares optima theta, best first, that some of the better of many random psi lead to."""
    projected = _Projected(problem)
    if not problem.nonlinear:
        return [projected.solve(np.zeros(0))]
    low = np.array([p.coordinate(p.start[0]) for p in problem.nonlinear])
    high = np.array([p.coordinate(p.start[1]) for p in problem.nonlinear])
    candidates = rng.uniform(low, high, (CANDIDATES, len(low)))
    costs = np.array([np.sum(projected.residual(z) ** 2) for z in candidates])
    ends: list[tuple[np.ndarray, float]] = []
    for i in _apart((candidates - low) / np.where(high > low, high - low, 1.0), costs):
        ends.append(_descend(projected, np.clip(candidates[i], problem.lower, problem.upper), ends))
        least = min(cost for _, cost in ends)
        # Found so often from far apart, it is the valley that is looked for.
        if sum(cost <= least * (1 + SAME) for _, cost in ends) == AGREEMENT:
            break
    optima: list[np.ndarray] = []
    known = 0.0
    for z, cost in sorted(ends, key=lambda end: end[1]):
        if not optima or cost > known * (1 + SAME):
            optima.append(np.concatenate([projected.solve(z), z]))
            known = cost
    return optima


def _apart(places: np.ndarray, costs: np.ndarray) -> list[int]:
    """The best of the candidates, and those of the better half that are farthest from all chosen before.

    The few best are neighbours more often than not, and lead to one valley even where another is deeper.
    """
    better = np.argsort(costs)[: len(costs) // 2]
    chosen = [int(better[0])]
    while len(chosen) < STARTS:
        apart = np.min([np.linalg.norm(places[better] - places[i], axis=1) for i in chosen], axis=0)
        if not apart.any():
            break
        chosen.append(int(better[np.argmax(apart)]))
    return chosen


def _descend(
    projected: "_Projected", z: np.ndarray, known: list[tuple[np.ndarray, float]], most: int = 60
) -> tuple[np.ndarray, float]:
    """Where Levenberg & Marquardt's descent from z ends, and the sum of squares there; a known end, once beside it.

    The damping is the same in all coordinates, as these are of order one: scaled by what is felt of each, a shape
    that is hardly felt yet would be thrown to its bound. It follows the gain (Nielsen 1999).
    """
    lower, upper = projected.problem.lower, projected.problem.upper
    residual, cost, bend, last = projected.residual(z), np.inf, np.zeros((len(z), len(z))), None
    damping, faster, stalled, even = 1e-2, 2.0, 0, np.eye(len(z))
    for _ in range(most):
        jacobian = projected.jacobian(z)
        gradient, square, cost = jacobian.T @ residual, jacobian.T @ jacobian, residual @ residual
        if last is not None:
            moved, before = z - last[0], last[1].T @ residual
            bend = _bent(bend, moved, gradient - last[2], gradient - before)
        last = z, jacobian, gradient
        reached, scale = cost, np.diag(square).max()
        while damping < 1e8:
            hessian = square + bend
            step = bounded_step(hessian + damping * scale * even, gradient, lower - z, upper - z)
            if step is not None:
                trial = np.clip(z + step, lower, upper)
                step = trial - z
                there = projected.residual(trial)
                promised = -(2 * gradient + hessian @ step) @ step
                gain = (cost - there @ there) / promised if promised > 0 else float(there @ there < cost)
                if gain > 0.01:
                    z, residual, reached = trial, there, there @ there
                    damping = max(damping * np.clip(1 - (2 * gain - 1) ** 3, 1 / 3, 2), 1e-10)
                    faster = 2.0
                    break
            if bend.any():
                bend = np.zeros_like(bend)
            else:
                damping, faster = damping * faster, faster * 2
        stalled = stalled + 1 if cost - reached <= 1e-8 * cost else 0
        cost = reached
        if stalled == 2 or damping >= 1e8:
            break
        for end, least in known:
            if least <= cost <= least * (1 + BESIDE) and np.abs(z - end).max() < BESIDE:
                return end, least
    return z, max(float(cost), EXACT)


def _bent(bend: np.ndarray, moved: np.ndarray, change: np.ndarray, turned: np.ndarray) -> np.ndarray:
    """What J'J lacks of the Hessian, by how the gradient changed (q,) and what of this J's turning did.

    Source: the secant of NL2SOL (Dennis, Gay & Welsch 1981).
    """
    along = change @ moved
    if along <= 1e-8 * np.linalg.norm(change) * np.linalg.norm(moved):
        return bend
    felt = abs(moved @ bend @ moved)
    bend = bend * min(1.0, abs(moved @ turned) / felt) if felt > 0 else bend
    rest = turned - bend @ moved
    both = np.outer(rest, change)
    return bend + (both + both.T) / along - (rest @ moved) / along**2 * np.outer(change, change)


@functools.cache
def _upper(rows: int, columns: int) -> np.ndarray:
    return np.triu(np.ones((rows, columns)))


class _Projected:
    """Residual and Jacobian of the projected problem; remembers the last z, as both are asked there."""

    def __init__(self, problem: Problem):
        self.problem = problem
        self.rows = np.sqrt(problem.weights) / problem.loss
        self.at: bytes | None = None

    def solve(self, z: np.ndarray) -> np.ndarray:
        """The best amounts u >= 0 of the generators at z."""
        if z.tobytes() != self.at:
            self.at = z.tobytes()
            offset, columns = self.problem.columns(z)
            self.matrix = columns * self.rows[:, None]
            self.right = (self.problem.loss - offset) * self.rows
            both = np.concatenate([self.matrix, self.right[:, None]], axis=1)
            triangle = dgeqrf(both)[0][: both.shape[1]] * _upper(min(both.shape), both.shape[1])
            self.u = nnls(triangle[:, :-1], triangle[:, -1])[0] if columns.shape[1] else np.zeros(0)
        return self.u

    def residual(self, z: np.ndarray) -> np.ndarray:
        u = self.solve(z)
        return self.matrix @ u - self.right

    def jacobian(self, z: np.ndarray) -> np.ndarray:
        residual = self.residual(z)
        at = residual / self.rows + self.problem.loss
        slopes = self.problem.slopes(z, self.u, at) * self.rows[:, None]
        factors, tau, _, _ = dgeqrf(self.matrix[:, self.u > 0])
        used = dorgqr(factors[:, : len(tau)], tau)[0]
        return slopes - used @ (used.T @ slopes)
