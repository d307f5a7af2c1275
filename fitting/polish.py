"""The paper's objective, to its minimum: sum of Huber(1e-3) of log residuals over all parameters at once.

A projected Newton method with a Hessian between two exact ones: that of the Huber loss (points within delta
only) and that of the quadratic which lies above it (iteratively reweighted least squares), which is safe from
afar. The second also serves as the damping, so no scale has to be chosen.
"""

import numpy as np

from fitting.problem import Problem

DELTA = 1e-3
"""Hoffmann et al. 2022, eq. 3; Que et al. 2024, app. E.3."""


def huber(residuals: np.ndarray) -> np.ndarray:
    """Huber loss at delta 1e-3: quadratic inside, linear outside."""
    size = np.abs(residuals)
    return np.where(size <= DELTA, 0.5 * size**2, DELTA * (size - 0.5 * DELTA))


def polish(problem: Problem, theta: np.ndarray, tolerance: float = 1e-9) -> tuple[np.ndarray, float]:
    """The (theta, objective) that the descent from theta ends at."""
    theta, objective = _descend(problem, theta, tolerance)
    for _ in range(5):
        awake = _wake(problem, theta)
        if awake is None:
            break
        theta, objective = _descend(problem, awake, tolerance)
    return theta, objective


def _descend(problem: Problem, theta: np.ndarray, tolerance: float) -> tuple[np.ndarray, float]:
    m = len(theta) - len(problem.nonlinear)
    lower = np.concatenate([np.zeros(m), problem.lower])
    upper = np.concatenate([np.full(m, np.inf), problem.upper])
    weights = problem.weights
    objective, at, columns, residuals = _evaluate(problem, theta)
    damping, stalled = 1e-4, 0
    for _ in range(500):
        jacobian = np.hstack([columns, problem.slopes(theta[m:], theta[:m], at)]) / at[:, None]
        size = np.abs(residuals)
        gradient = jacobian.T @ (weights * np.clip(residuals, -DELTA, DELTA))
        above = (jacobian.T * (weights * DELTA / np.maximum(size, DELTA))) @ jacobian
        close = size <= DELTA
        newton = (jacobian[close].T * weights[close]) @ jacobian[close]
        before = objective
        while damping < 1e8:
            hessian = newton + np.sqrt(damping) * above + damping * np.diag(np.diag(above))
            trial = np.clip(theta + _step(hessian, gradient, lower - theta, upper - theta), lower, upper)
            found = _evaluate(problem, trial)
            if found[0] < objective:
                theta, (objective, at, columns, residuals) = trial, found
                damping = max(damping / 30, 1e-14)
                break
            damping *= 5
        stalled = stalled + 1 if before - objective <= tolerance * objective else 0
        if stalled == 2 or damping >= 1e8:
            break
    return theta, objective


def _evaluate(problem: Problem, theta: np.ndarray):
    """Objective, loss (n,), columns (n, m), log residuals (n,); infinite where a loss is not positive."""
    m = len(theta) - len(problem.nonlinear)
    offset, columns = problem.columns(theta[m:])
    at = offset + columns @ theta[:m]
    if not np.all(at > 0):
        return np.inf, at, columns, at
    residuals = np.log(at) - np.log(problem.loss)
    return float(problem.weights @ huber(residuals)), at, columns, residuals


def _wake(problem: Problem, theta: np.ndarray) -> np.ndarray | None:
    """A theta as good from which there is a way down that theta hides, if any.

    When a coefficient is 0, the exponents of its column are nowhere felt and stay where chance put them; with
    others the column might help.
    """
    m = len(theta) - len(problem.nonlinear)
    if np.all(theta[:m] > 0):
        return None
    _, at, _, residuals = _evaluate(problem, theta)
    pull = problem.weights * np.clip(residuals, -DELTA, DELTA) / at
    asleep = np.flatnonzero(~problem.slopes(theta[m:], theta[:m], at).any(axis=0))
    for j in asleep:
        for z in np.linspace(problem.lower[j], problem.upper[j], 9):
            moved = theta.copy()
            moved[m + j] = z
            gradient = pull @ problem.columns(moved[m:])[1]
            if np.any(gradient[theta[:m] == 0] < -1e-6 * np.abs(pull).sum()):
                return moved
    return None


def _step(hessian: np.ndarray, gradient: np.ndarray, down: np.ndarray, up: np.ndarray) -> np.ndarray:
    """The minimiser of the quadratic model in down <= step <= up, but for releasing a bound once it is held.

    Clipping an unbounded step instead would zigzag wherever a bound is active: coefficients are strongly
    correlated.
    """
    scale = np.sqrt(np.where(np.diag(hessian) > 0, np.diag(hessian), 1.0))
    hessian = hessian / np.outer(scale, scale) + 1e-12 * np.eye(len(gradient))
    gradient, down, up = gradient / scale, down * scale, up * scale
    step = np.zeros(len(gradient))
    held = (down >= 0) & (gradient > 0) | (up <= 0) & (gradient < 0)
    while not held.all():
        rest = gradient[~held] + hessian[np.ix_(~held, held)] @ step[held]
        step[~held] = -np.linalg.solve(hessian[np.ix_(~held, ~held)], rest)
        outside = ~held & ((step < down) | (step > up))
        if not outside.any():
            break
        step = np.clip(step, down, up)
        held |= outside
    return step / scale
