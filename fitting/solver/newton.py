"""The paper's objective, to its minimum: sum of Huber(1e-3) of log residuals over all parameters at once.

A projected Newton method with a Hessian between two: that of the Huber loss (points within delta only) and that of
the quadratic which lies above it (iteratively reweighted least squares), which is safe from afar. The second also
serves as the damping, so no scale has to be chosen. Both are of Gauss & Newton's kind, blind to how the model itself
bends; along a flat valley this is most of the Hessian, and so it is added, computed anew wherever a step did not gain
what it promised.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fitting.solver.bounded_step import bounded_step
from fitting.solver.curvature import curvature
from fitting.solver.problem import DELTA, Problem

SETTLED = 0.9
"""Share of its promise that a step must gain, or the coefficients are settled before it is judged."""
TRUSTED = (0.75, 1.25)
"""Gain over promise between which the bend of the model is not computed anew."""
LOOSE = 1e-6
"""Tolerance from which a descent that seems to stall is believed at once."""


@dataclass(frozen=True)
class Pull:
    """A spring on one number: strength / 2 (value(theta) - target)^2 is added to the objective."""

    value: Callable[[np.ndarray], float]
    target: float
    strength: float


def huber(residuals: np.ndarray, delta: float = DELTA) -> np.ndarray:
    """Huber loss: quadratic up to delta, linear beyond."""
    clipped = np.clip(residuals, -delta, delta)
    return clipped * (residuals - clipped / 2)


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
    m = len(theta) - len(problem.nonlinear)
    lower = np.concatenate([np.zeros(m), problem.lower])
    upper = np.concatenate([np.full(m, np.inf), problem.upper])
    here = _evaluate(problem, theta, pull)
    bend, trusted = np.zeros((len(theta), len(theta))), True
    damping, stalled = 1e-4, 0
    for _ in range(most):
        slopes = problem.slopes(theta[m:], theta[:m], here.loss)
        rows = np.concatenate([here.columns.T, slopes.T]) / here.loss
        gradient = rows @ here.pulls
        newton, above = _squares(problem, rows, here.residuals)
        if pull is not None:
            away, slope = pull.value(theta) - pull.target, gradient_of(pull.value, theta, lower, upper)
            gradient = gradient + pull.strength * away * slope
            newton = newton + pull.strength * np.outer(slope, slope)
            above = above + pull.strength * np.outer(slope, slope)
        before, predicted, fresh, refused = here.objective, 0.0, False, False
        while damping < 1e8:
            if not trusted:
                bend = curvature(problem, theta, here.pulls / here.loss, here.columns, slopes)
                bend -= (rows * here.pulls) @ rows.T
                fresh = trusted = True
            hessian = newton + bend
            damped = hessian + np.sqrt(damping) * above + np.diag(damping * np.diag(above))
            step = bounded_step(damped, gradient, lower - theta, upper - theta)
            if step is not None:
                trial = np.clip(theta + step, lower, upper)
                step = trial - theta
                predicted = -(gradient + hessian @ step / 2) @ step
                found = _evaluate(problem, trial, pull)
                if m and pull is None and not before - found.objective >= SETTLED * predicted:
                    trial, found = _settle(problem, trial, found)
                if found.objective < before:
                    theta, here = trial, found
                    # After a refusal the next step is likely refused at once if the damping is let go altogether.
                    damping = max(damping / (3 if refused else 30), 1e-14)
                    break
            if fresh:
                damping *= 5
                refused = True
            trusted = fresh
        gain = before - here.objective
        small = gain <= tolerance * here.objective
        stalled = stalled + 1 if small else 0
        if (stalled >= 2 and (fresh or tolerance >= LOOSE)) or damping >= 1e8:
            break
        # The end is not believed before the bend is known there: without it a descent that zigzags seems to stall.
        trusted = TRUSTED[0] * predicted <= gain <= TRUSTED[1] * predicted and not (small and tolerance < LOOSE)
    return theta, here.objective if pull is None else _evaluate(problem, theta, None).objective


@dataclass(frozen=True, eq=False)
class _Here:
    """Objective, loss (n,), columns (n, m), log residuals (n,), and these clipped and weighted, at one theta."""

    objective: float
    loss: np.ndarray
    columns: np.ndarray
    residuals: np.ndarray
    pulls: np.ndarray


def _evaluate(problem: Problem, theta: np.ndarray, pull: Pull | None) -> _Here:
    """What is at theta; the objective is infinite where a loss is not positive."""
    m = len(theta) - len(problem.nonlinear)
    offset, columns = problem.columns(theta[m:])
    loss = offset + columns @ theta[:m]
    if not np.all(loss > 0):
        return _Here(np.inf, loss, columns, loss, loss)
    residuals = np.log(loss) - problem.log_loss
    clipped = np.clip(residuals, -problem.delta, problem.delta)
    pulls = problem.weights * clipped
    objective = float(pulls @ (residuals - clipped / 2))
    if pull is not None:
        objective += pull.strength / 2 * (pull.value(theta) - pull.target) ** 2
    return _Here(objective, loss, columns, residuals, pulls)


def _squares(problem: Problem, rows: np.ndarray, residuals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The Hessian (p, p) without bend of the Huber loss, and that of the quadratic above it; rows (p, n)."""
    size = np.abs(residuals)
    close = problem.weights * (size <= problem.delta)
    beyond = problem.weights * problem.delta / np.maximum(size, problem.delta) - close
    newton = (rows * close) @ rows.T
    return newton, newton + (rows * beyond) @ rows.T


def _settle(problem: Problem, theta: np.ndarray, here: _Here) -> tuple[np.ndarray, _Here]:
    """A few steps of the coefficients alone, the shapes held: in a curved valley a joint step leaves them behind.

    This is what variable projection does in one go, where the loss is not a sum of squares.
    """
    m = here.columns.shape[1]
    for _ in range(3 if np.isfinite(here.objective) else 0):
        rows = here.columns.T / here.loss
        newton, above = _squares(problem, rows, here.residuals)
        step = bounded_step(0.9 * newton + 0.1 * above, rows @ here.pulls, -theta[:m], np.full(m, np.inf))
        if step is None:
            break
        moved = np.concatenate([np.maximum(theta[:m] + step, 0.0), theta[m:]])
        tried = _evaluate(problem, moved, None)
        if not tried.objective < here.objective:
            break
        theta, here = moved, tried
    return theta, here


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


def _wake(problem: Problem, theta: np.ndarray) -> np.ndarray | None:
    """A theta as good from which there is a way down that theta hides, if any.

    When a coefficient is 0, the exponents of its column are nowhere felt and stay where chance put them; with
    others the column might help.
    """
    m = len(theta) - len(problem.nonlinear)
    if np.all(theta[:m] > 0):
        return None
    here = _evaluate(problem, theta, None)
    pull = here.pulls / here.loss
    asleep = np.flatnonzero(~problem.slopes(theta[m:], theta[:m], here.loss).any(axis=0))
    for j in asleep:
        for z in np.linspace(problem.lower[j], problem.upper[j], 9):
            moved = theta.copy()
            moved[m + j] = z
            gradient = pull @ problem.columns(moved[m:])[1]
            if np.any(gradient[theta[:m] == 0] < -1e-6 * np.abs(pull).sum()):
                return moved
    return None
