"""The paper's objective, to its minimum: sum of Huber(1e-3) of log residuals over all parameters at once.

A projected Newton method with a Hessian between two exact ones: that of the Huber loss (points within delta
only) and that of the quadratic which lies above it (iteratively reweighted least squares), which is safe from
afar. The second also serves as the damping, so no scale has to be chosen.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fitting.problem import DELTA, Problem


@dataclass(frozen=True)
class Pull:
    """A spring on one number: strength / 2 (value(theta) - target)^2 is added to the objective."""

    value: Callable[[np.ndarray], float]
    target: float
    strength: float


def huber(residuals: np.ndarray, delta: float = DELTA) -> np.ndarray:
    """Huber loss: quadratic up to delta, linear beyond."""
    size = np.abs(residuals)
    return np.where(size <= delta, 0.5 * size**2, delta * (size - 0.5 * delta))


def polish(
    problem: Problem, theta: np.ndarray, tolerance: float = 1e-9, pull: Pull | None = None, most: int = 500
) -> tuple[np.ndarray, float]:
    """The (theta, objective) that the descent from theta ends at; the objective is without the pull.

    `most`: steps, for those who need not see the end of a valley that is all but flat.
    """
    theta, objective = _descend(problem, theta, tolerance, pull, most)
    for _ in range(5):
        awake = _wake(problem, theta)
        if awake is None:
            break
        theta, objective = _descend(problem, awake, tolerance, pull, most)
    return theta, objective


def _descend(
    problem: Problem, theta: np.ndarray, tolerance: float, pull: Pull | None, most: int
) -> tuple[np.ndarray, float]:
    m, delta = len(theta) - len(problem.nonlinear), problem.delta
    lower = np.concatenate([np.zeros(m), problem.lower])
    upper = np.concatenate([np.full(m, np.inf), problem.upper])
    weights = problem.weights
    objective, at, columns, residuals = _evaluate(problem, theta, pull)
    damping, stalled = 1e-4, 0
    for _ in range(most):
        jacobian = np.hstack([columns, problem.slopes(theta[m:], theta[:m], at)]) / at[:, None]
        size = np.abs(residuals)
        gradient = jacobian.T @ (weights * np.clip(residuals, -delta, delta))
        above = (jacobian.T * (weights * delta / np.maximum(size, delta))) @ jacobian
        close = size <= delta
        newton = (jacobian[close].T * weights[close]) @ jacobian[close]
        if pull is not None:
            away, slope = pull.value(theta) - pull.target, gradient_of(pull.value, theta, lower, upper)
            gradient = gradient + pull.strength * away * slope
            newton = newton + pull.strength * np.outer(slope, slope)
            above = above + pull.strength * np.outer(slope, slope)
        before, refused = objective, 0
        while damping < 1e8:
            hessian = newton + np.sqrt(damping) * above + damping * np.diag(np.diag(above))
            trial = np.clip(theta + _step(hessian, gradient, lower - theta, upper - theta), lower, upper)
            found = _evaluate(problem, trial, pull)
            if m and pull is None and not found[0] < objective and np.isfinite(found[0]):
                trial, found = _settle(problem, trial, found)
            if found[0] < objective:
                theta, (objective, at, columns, residuals) = trial, found
                # After a refusal the next step is likely refused at once if the damping is let go altogether.
                damping = max(damping / (3 if refused else 30), 1e-14)
                break
            damping *= 5
            refused += 1
        stalled = stalled + 1 if before - objective <= tolerance * objective else 0
        if stalled == 2 or damping >= 1e8:
            break
    if pull is not None:
        objective = _evaluate(problem, theta, None)[0]
    return theta, objective


def _settle(problem: Problem, theta: np.ndarray, found: tuple) -> tuple[np.ndarray, tuple]:
    """One step of the coefficients alone, the shapes held: in a curved valley a joint step leaves them behind.

    This is what variable projection does in one go, where the loss is not a sum of squares.
    """
    objective, at, columns, residuals = found
    m, delta, weights = columns.shape[1], problem.delta, problem.weights
    scaled = columns / at[:, None]
    size = np.abs(residuals)
    gradient = scaled.T @ (weights * np.clip(residuals, -delta, delta))
    hessian = (scaled.T * (weights * delta / np.maximum(size, delta))) @ scaled
    moved = theta.copy()
    moved[:m] = np.maximum(theta[:m] + _step(hessian, gradient, -theta[:m], np.full(m, np.inf)), 0.0)
    tried = _evaluate(problem, moved, None)
    return (moved, tried) if tried[0] < objective else (theta, found)


def gradient_of(
    value: Callable[[np.ndarray], float], theta: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> np.ndarray:
    """Derivative (p,) of a number in theta, by differences that stay within the bounds."""
    here, slope = value(theta), np.empty(len(theta))
    for j in range(len(theta)):
        step = 1e-6 * max(1.0, abs(theta[j]))
        step = step if theta[j] + step <= upper[j] else -step
        moved = theta.copy()
        moved[j] += step
        slope[j] = (value(moved) - here) / step
    return slope


def _evaluate(problem: Problem, theta: np.ndarray, pull: Pull | None):
    """Objective, loss (n,), columns (n, m), log residuals (n,); infinite where a loss is not positive."""
    m = len(theta) - len(problem.nonlinear)
    offset, columns = problem.columns(theta[m:])
    at = offset + columns @ theta[:m]
    if not np.all(at > 0):
        return np.inf, at, columns, at
    residuals = np.log(at) - np.log(problem.loss)
    objective = float(problem.weights @ huber(residuals, problem.delta))
    if pull is not None:
        objective += pull.strength / 2 * (pull.value(theta) - pull.target) ** 2
    return objective, at, columns, residuals


def _wake(problem: Problem, theta: np.ndarray) -> np.ndarray | None:
    """A theta as good from which there is a way down that theta hides, if any.

    When a coefficient is 0, the exponents of its column are nowhere felt and stay where chance put them; with
    others the column might help.
    """
    m = len(theta) - len(problem.nonlinear)
    if np.all(theta[:m] > 0):
        return None
    _, at, _, residuals = _evaluate(problem, theta, None)
    pull = problem.weights * np.clip(residuals, -problem.delta, problem.delta) / at
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
