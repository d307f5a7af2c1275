"""Variable projection: linear coefficients are solved for, so that only exponents are searched.

Golub & Pereyra 1973 with Kaufman's 1975 Jacobian, non-negative coefficients, and rows divided by the loss, so
that the sum of squares stands for that of log residuals.
"""

import functools

import numpy as np
from scipy.linalg.lapack import dgeqrf, dorgqr  # pyright: ignore[reportAttributeAccessIssue]
from scipy.optimize import lsq_linear, nnls
from scipy.spatial import KDTree

from fitting.solver.bounded_step import bounded_step
from fitting.solver.problem import Problem

CANDIDATES = 48
STARTS = 6
RANDOM_CANDIDATES = 512
NEIGHBOURS = 8
AGREEMENT = 5
"""Number of descents to the least cost after which the search stops."""
SAME = 1e-5
BESIDE = 0.1
"""A descent stops within this distance of a known minimum, in relative cost and in each coordinate."""
EXACT = 1e-24
"""A cost that is rounding error: of several minima at it, as with as many parameters as points, the first is taken."""


def starting_points(problem: Problem, rng: np.random.Generator) -> tuple[list[np.ndarray], bool]:
    """Distinct least-squares optima theta, best first, reached from random psi, and whether most led to the best."""
    projected = _Projected(problem)
    if not problem.nonlinear:
        return [projected.solve(np.zeros(0))], True
    low = np.array([p.coordinate(p.start[0]) for p in problem.nonlinear])
    high = np.array([p.coordinate(p.start[1]) for p in problem.nonlinear])
    candidates = rng.uniform(low, high, (CANDIDATES, len(low)))
    costs = np.array([np.sum(projected.residual(z) ** 2) for z in candidates])
    ends: list[tuple[np.ndarray, float]] = []
    agreed = False
    for i in _apart((candidates - low) / np.where(high > low, high - low, 1.0), costs):
        ends.append(_descend(projected, np.clip(candidates[i], problem.lower, problem.upper), ends))
        least = min(cost for _, cost in ends)
        # Reached so often from distant starts, it is taken for the global minimum.
        agreed = sum(cost <= least * (1 + SAME) for _, cost in ends) == AGREEMENT
        if agreed:
            break
    optima: list[np.ndarray] = []
    known = 0.0
    for z, cost in sorted(ends, key=lambda end: end[1]):
        if not optima or cost > known * (1 + SAME):
            optima.append(np.concatenate([projected.solve(z), z]))
            known = cost
    return optima, agreed


def lowest_candidates(problem: Problem, rng: np.random.Generator) -> list[np.ndarray]:
    """theta at random psi of which each has a smaller least-squares cost than its nearest neighbours.

    One least-squares minimum may lie among several minima of the Huber loss, which descents from here find.
    """
    projected = _Projected(problem)
    low, high = (np.array([p.coordinate(p.start[side]) for p in problem.nonlinear]) for side in (0, 1))
    candidates = np.clip(rng.uniform(low, high, (RANDOM_CANDIDATES, len(low))), problem.lower, problem.upper)
    costs = np.array([np.sum(projected.residual(z) ** 2) for z in candidates])
    apart = candidates / np.where(high > low, high - low, 1.0)
    _, near = KDTree(apart).query(apart, NEIGHBOURS + 1)
    lowest = candidates[costs <= costs[near].min(axis=1)]
    return [np.concatenate([projected.solve(z), z]) for z in lowest]


def _apart(places: np.ndarray, costs: np.ndarray) -> list[int]:
    """The best of the candidates, and those of the better half that are farthest from all chosen before.

    The best candidates are often neighbours and lead to one local minimum even where another is lower.
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
    projected: "_Projected", z: np.ndarray, known: list[tuple[np.ndarray, float]], max_steps: int = 60
) -> tuple[np.ndarray, float]:
    """(z, sum of squares) of the minimum that Levenberg-Marquardt reaches from z, or of a known one close by.

    The damping is the same in all coordinates, which are of order one: scaled by the sensitivity to each, it would
    send an insensitive one to its bound. It follows the gain (Nielsen 1999).
    """
    lower, upper = projected.problem.lower, projected.problem.upper
    residual, cost, curvature, last = projected.residual(z), np.inf, np.zeros((len(z), len(z))), None
    damping, faster, stalled, even = 1e-2, 2.0, 0, np.eye(len(z))
    for _ in range(max_steps):
        jacobian = projected.jacobian(z)
        gradient, square, cost = jacobian.T @ residual, jacobian.T @ jacobian, residual @ residual
        if last is not None:
            moved, before = z - last[0], last[1].T @ residual
            curvature = _secant_update(curvature, moved, gradient - last[2], gradient - before)
        last = z, jacobian, gradient
        reached, scale = cost, np.diag(square).max()
        while damping < 1e8:
            hessian = square + curvature
            step = bounded_step(hessian + damping * scale * even, gradient, lower - z, upper - z)
            if step is not None:
                trial = np.clip(z + step, lower, upper)
                step = trial - z
                there = projected.residual(trial)
                predicted = -(2 * gradient + hessian @ step) @ step
                gain = (cost - there @ there) / predicted if predicted > 0 else float(there @ there < cost)
                if gain > 0.01:
                    z, residual, reached = trial, there, there @ there
                    damping = max(damping * np.clip(1 - (2 * gain - 1) ** 3, 1 / 3, 2), 1e-10)
                    faster = 2.0
                    break
            if curvature.any():
                curvature = np.zeros_like(curvature)
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


def _secant_update(
    curvature: np.ndarray, step: np.ndarray, gradient_change: np.ndarray, jacobian_change: np.ndarray
) -> np.ndarray:
    """Second-order part of the Hessian (q, q), which J'J lacks, updated after a step (q,).

    Parameters: the changes (q,) of the gradient and of its part that the change of J makes. Source: the secant of
    NL2SOL (Dennis, Gay & Welsch 1981).
    """
    along = gradient_change @ step
    if along <= 1e-8 * np.linalg.norm(gradient_change) * np.linalg.norm(step):
        return curvature
    size = abs(step @ curvature @ step)
    curvature = curvature * min(1.0, abs(step @ jacobian_change) / size) if size > 0 else curvature
    rest = jacobian_change - curvature @ step
    both = np.outer(rest, gradient_change)
    return curvature + (both + both.T) / along - (rest @ step) / along**2 * np.outer(gradient_change, gradient_change)


@functools.cache
def _upper(rows: int, columns: int) -> np.ndarray:
    return np.triu(np.ones((rows, columns)))


class _Projected:
    """Residual and Jacobian of the projected problem, cached for the last z."""

    def __init__(self, problem: Problem):
        self.problem = problem
        self.rows = np.sqrt(problem.point_weights) / problem.unit(problem.loss)
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
            limits = self.problem.limits(z)
            if not columns.shape[1]:
                self.u = np.zeros(0)
            elif np.isinf(limits).all():
                self.u = nnls(triangle[:, :-1], triangle[:, -1])[0]
            else:
                limits = np.maximum(limits, 1e-300)
                self.u = lsq_linear(triangle[:, :-1], triangle[:, -1], (0.0, limits), method="bvls").x
        return self.u

    def residual(self, z: np.ndarray) -> np.ndarray:
        u = self.solve(z)
        return self.matrix @ u - self.right

    def jacobian(self, z: np.ndarray) -> np.ndarray:
        residual = self.residual(z)
        at = residual / self.rows + self.problem.loss
        slopes = self.problem.slopes(z, self.u, at) * self.rows[:, None]
        inside = (self.u > 0) & (self.u < self.problem.limits(z))
        factors, tau, _, _ = dgeqrf(self.matrix[:, inside])
        used = dorgqr(factors[:, : len(tau)], tau)[0]
        return slopes - used @ (used.T @ slopes)
