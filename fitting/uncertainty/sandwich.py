"""Covariance of the parameters to first order, with the errors of a run correlated.

Huber's sandwich with the runs as clusters. A fit follows its points, so residuals are too small: they are first divided
by one minus their leverage, as a block (CR3, Bell & McCaffrey 2002).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from scipy.special import erf

from fitting.solver.derivatives import slopes_of
from fitting.solver.problem import Problem

LARGEST_LEVERAGE = 0.95


@dataclass(frozen=True, eq=False)
class Sandwich:
    """A fit to first order.

    `fitted`, `errors` (n,): the fitted loss, its residuals with their leverage undone. `leverage` (runs,): effective
    number of parameters that each run determines; it sums to the number identifiable. `bread` (p, p): inverse of the
    objective's Hessian; `covariance` (p, p): that of theta. `influence` (runs, p): change of theta by a common error of
    each run.
    """

    fitted: np.ndarray
    errors: np.ndarray
    leverage: np.ndarray
    bread: np.ndarray
    covariance: np.ndarray
    influence: np.ndarray

    def variances(self, slope: np.ndarray) -> tuple[float, float]:
        """For a number with this derivative (p,) in theta: its variance by the bread alone, and by the sandwich."""
        return float(slope @ self.bread @ slope), float(slope @ self.covariance @ slope)

    def freedom(self, slope: np.ndarray) -> float:
        """Degrees of freedom of that variance: how many runs it rests on (Satterthwaite; errors common to a run)."""
        parts = (self.influence @ slope) ** 2
        return float(parts.sum() ** 2 / (parts**2).sum()) if parts.any() else 1.0


def sandwich(problem: Problem, theta: np.ndarray, runs: np.ndarray) -> Sandwich:
    """The covariance of theta at the optimum, ignoring bounds. `runs` (n,) numbers the run of each point."""
    delta = problem.delta
    at, jacobian = _loss_and_jacobian(problem, theta)
    errors = -problem.residuals(at)
    root = np.sqrt(problem.point_weights)
    weighted = jacobian * root[:, None]
    size = np.linalg.norm(weighted, axis=0)
    active = np.flatnonzero(size > 0)
    # Of fewer points than parameters the triangle is wide.
    triangle = np.linalg.qr(weighted[:, active] / size[active], mode="r")
    _, singular, right = np.linalg.svd(triangle, full_matrices=False)
    strong = singular > 1e-8 * singular[0] if len(singular) else np.zeros(0, dtype=bool)
    # d theta = back @ d (coordinates along left)
    back = np.zeros((len(theta), int(strong.sum())))
    back[active] = (right[strong].T / singular[strong]) / size[active][:, None]
    left = weighted @ back
    bread = np.linalg.pinv((left.T * _curvature(errors, delta)) @ left, rcond=1e-8, hermitian=True)

    count = int(runs.max()) + 1
    held, scores, common = np.zeros(count), np.zeros((count, left.shape[1])), np.zeros((count, left.shape[1]))
    for run, rows in enumerate(rows_by_run(runs)):
        directions, cosines, _ = np.linalg.svd(left[rows], full_matrices=False)
        held[run] = np.sum(cosines**2)
        leverage = np.minimum(cosines**2, LARGEST_LEVERAGE)
        growth = directions @ ((1 / (1 - leverage) - 1) * (directions.T @ (root[rows] * errors[rows])))
        errors[rows] += np.divide(growth, root[rows], out=np.zeros(len(rows)), where=root[rows] > 0)
        common[run] = left[rows].T @ root[rows]
        scores[run] = left[rows].T @ (root[rows] * np.clip(errors[rows], -delta, delta))
    return Sandwich(
        fitted=at,
        errors=errors,
        leverage=held,
        bread=back @ bread @ back.T,
        covariance=back @ bread @ (scores.T @ scores) @ bread @ back.T,
        influence=common @ bread @ back.T,
    )


def prior_shares(problem: Problem, theta: np.ndarray, names: Sequence[str]) -> dict[str, float]:
    """Name -> the part of what is known about a parameter that the prior gives, 0 to 1; empty without a prior.

    By the Gauss-Newton Hessian of the objective: of the inverse variance of the parameter, what the prior adds.
    """
    if not problem.prior:
        return {}
    at, jacobian = _loss_and_jacobian(problem, theta)
    curvature = problem.point_weights * _curvature(-problem.residuals(at), problem.delta)
    precision = problem.prior_at(theta)[2]
    # Scaled by the prior, so that the inverse exists whatever the points leave free.
    scale = np.sqrt(precision)
    inverse = np.linalg.inv((jacobian / scale).T * curvature @ (jacobian / scale) + np.eye(len(theta)))
    shares, numbers = {}, np.array([problem.names.index(name) for name in names], dtype=int)
    for name, slope in zip(names, slopes_of(problem, numbers, theta) / scale):
        change = inverse @ slope
        shares[name] = float(change @ change / (slope @ change)) if slope.any() else 1.0
    return shares


def _loss_and_jacobian(problem: Problem, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The loss (n,) at theta, and the derivatives (n, p) of the residuals."""
    m = len(theta) - len(problem.nonlinear)
    u, z = theta[:m], theta[m:]
    offset, columns = problem.columns(z)
    at = offset + columns @ u
    return at, np.hstack([columns, problem.slopes(z, u, at)]) / np.reshape(problem.unit(at), (-1, 1))


def rows_by_run(runs: np.ndarray) -> list[np.ndarray]:
    """The rows of each run, in one pass."""
    return np.split(np.argsort(runs, kind="stable"), np.cumsum(np.bincount(runs))[:-1])


def _curvature(errors: np.ndarray, delta: float) -> np.ndarray:
    """Second derivative (n,) of each point's Huber loss, smoothed (Powell 1991).

    Point by point, since the size of the errors varies over the points.
    """
    scale = 1.4826 * float(np.median(np.abs(errors)))
    root = sqrt(2) * max(1.06 * scale * len(errors) ** -0.2, delta * 1e-3)
    return (erf((delta - errors) / root) + erf((delta + errors) / root)) / 2
