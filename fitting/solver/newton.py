"""Minimise the papers' objective, the sum of Huber(1e-3) of log residuals, and the prior, over all parameters at once.

A projected Newton method. Its Hessian lies between that of the Huber loss (points within delta only) and that of the
quadratic above it (iteratively reweighted least squares), which is safe far from the optimum and serves as the damping.
To both Gauss-Newton matrices the second derivatives of the law are added, which along a flat direction are most of the
Hessian; they are computed again wherever a step did not gain what the quadratic model predicted.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fitting.solver.bounded_step import bounded_step
from fitting.solver.problem import DELTA, STEP, Problem

MIN_GAIN = 0.9
"""Ratio of gain to prediction below which the coefficients are refined before the step is judged."""
TRUSTED = (0.75, 1.25)
"""Ratio of gain to prediction within which the law's second derivatives are kept."""
LONG_STEP = 1e-4
"""Forward differences of slopes that are differences themselves; `STEP` where they are exact."""
ROUNDING = 1e-15
"""Relative gain that is lost in the rounding of the objective."""
LOOSE = 1e-6
"""Tolerance from which a descent stops at the first sign of convergence."""


@dataclass(frozen=True)
class Penalty:
    """A quadratic penalty on one number: strength / 2 (value(theta) - target)^2 is added to the objective."""

    value: Callable[[np.ndarray], float]
    target: float
    strength: float


def huber(residuals: np.ndarray, delta: float = DELTA) -> np.ndarray:
    """Huber loss: quadratic up to delta, linear beyond."""
    clipped = np.clip(residuals, -delta, delta)
    return clipped * (residuals - clipped / 2)


def penalised(problem: Problem, theta: np.ndarray, penalty: Penalty) -> float:
    """The objective with the penalty; infinite where a loss is not positive."""
    return _evaluate(problem, theta, penalty).objective


def refine(
    problem: Problem, theta: np.ndarray, tolerance: float = 1e-9, penalty: Penalty | None = None, max_steps: int = 500
) -> tuple[np.ndarray, float]:
    """The (theta, objective) of the local minimum that a descent from theta reaches.

    The objective counts the problem's prior and not the penalty.
    """
    theta, objective = _descend(problem, theta, tolerance, penalty, max_steps)
    for _ in range(5):
        restart = _restart(problem, theta)
        if restart is None:
            break
        before = objective
        theta, objective = _descend(problem, restart, tolerance, penalty, max_steps)
        # It led back, as the next ones would, and a profile needs no more digits.
        if penalty is not None and abs(objective - before) <= tolerance * before:
            break
    return theta, objective


def _descend(
    problem: Problem, theta: np.ndarray, tolerance: float, penalty: Penalty | None, max_steps: int
) -> tuple[np.ndarray, float]:
    m = len(theta) - len(problem.nonlinear)
    lower = np.concatenate([np.zeros(m), problem.lower])
    state = _evaluate(problem, theta, penalty)
    curvature, trusted = np.zeros((len(theta), len(theta))), True
    damping, stalled = 1e-4, 0
    for _ in range(max_steps):
        slopes = problem.slopes(theta[m:], theta[:m], state.loss)
        upper = np.concatenate([problem.limits(theta[m:]), problem.upper])
        rows = np.concatenate([state.columns.T, slopes.T]) / problem.unit(state.loss)
        gradient = rows @ state.scores
        newton, majorant = _gauss_newton(problem, rows, state.residuals)
        _, pull, precision = problem.prior_at(theta)
        gradient = gradient + pull
        newton.flat[:: len(theta) + 1] += precision
        majorant.flat[:: len(theta) + 1] += precision
        if penalty is not None:
            distance, slope = penalty.value(theta) - penalty.target, gradient_of(penalty.value, theta, upper)
            gradient = gradient + penalty.strength * distance * slope
            newton = newton + penalty.strength * np.outer(slope, slope)
            majorant = majorant + penalty.strength * np.outer(slope, slope)
        before, predicted, fresh, refused = state.objective, 0.0, False, False
        while damping < 1e8:
            if not trusted:
                scores = state.scores / problem.unit(state.loss)
                curvature = second_derivatives(problem, theta, scores, state.columns, slopes)
                curvature -= 0.0 if problem.scale else (rows * state.scores) @ rows.T
                fresh = trusted = True
            hessian = newton + curvature
            damped = hessian + np.sqrt(damping) * majorant
            damped.flat[:: len(theta) + 1] += damping * majorant.diagonal()
            step = bounded_step(damped, gradient, lower - theta, upper - theta)
            if step is not None:
                trial = np.minimum(np.maximum(theta + step, lower), upper)
                trial[:m] = np.minimum(trial[:m], problem.limits(trial[m:]))
                step = trial - theta
                predicted = -(gradient + hessian @ step / 2) @ step
                if predicted <= ROUNDING * before:
                    # Nothing that could be seen is left to gain; by old second derivatives that may be wrong.
                    if fresh:
                        damping = np.inf
                        break
                    trusted = False
                    continue
                trial_state = _evaluate(problem, trial, penalty)
                if m and penalty is None and not before - trial_state.objective >= MIN_GAIN * predicted:
                    trial, trial_state = _refine_coefficients(problem, trial, trial_state)
                if trial_state.objective < before:
                    theta, state = trial, trial_state
                    # After a refusal the next step is likely refused too if the damping drops at once.
                    damping = max(damping / (3 if refused else 30), 1e-14)
                    break
            if fresh:
                damping *= 5
                refused = True
            trusted = fresh
        gain = before - state.objective
        small = gain <= tolerance * state.objective
        stalled = stalled + 1 if small else 0
        if (stalled >= 2 and (fresh or tolerance >= LOOSE)) or damping >= 1e8:
            break
        # Without second derivatives a descent that zigzags seems to stall, so convergence is confirmed with them.
        trusted = TRUSTED[0] * predicted <= gain <= TRUSTED[1] * predicted and not (small and tolerance < LOOSE)
    return theta, state.objective if penalty is None else _evaluate(problem, theta, None).objective


@dataclass(frozen=True, eq=False)
class _State:
    """Objective, loss (n,), columns (n, m), log residuals (n,), and these clipped and weighted, at one theta."""

    objective: float
    loss: np.ndarray
    columns: np.ndarray
    residuals: np.ndarray
    scores: np.ndarray


def _evaluate(problem: Problem, theta: np.ndarray, penalty: Penalty | None) -> _State:
    """The state at theta; the objective is infinite where a loss is not positive."""
    m = len(theta) - len(problem.nonlinear)
    offset, columns = problem.columns(theta[m:])
    loss = offset + columns @ theta[:m]
    if not problem.has_residuals(loss):
        return _State(np.inf, loss, columns, loss, loss)
    residuals = problem.residuals(loss)
    clipped = np.minimum(np.maximum(residuals, -problem.delta), problem.delta)
    scores = problem.point_weights * clipped
    objective = float(scores @ (residuals - clipped / 2)) + problem.prior_at(theta)[0]
    if penalty is not None:
        objective += penalty.strength / 2 * (penalty.value(theta) - penalty.target) ** 2
    return _State(objective, loss, columns, residuals, scores)


def _gauss_newton(problem: Problem, rows: np.ndarray, residuals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The Gauss-Newton Hessian (p, p) of the Huber loss, and that of the quadratic above it; rows (p, n)."""
    size = np.abs(residuals)
    close = problem.point_weights * (size <= problem.delta)
    beyond = problem.point_weights * problem.delta / np.maximum(size, problem.delta) - close
    newton = (rows * close) @ rows.T
    return newton, newton + (rows * beyond) @ rows.T


def _refine_coefficients(problem: Problem, theta: np.ndarray, state: _State) -> tuple[np.ndarray, _State]:
    """A few steps in the coefficients alone: along a curved direction a joint step leaves them behind."""
    m = state.columns.shape[1]
    for _ in range(3 if np.isfinite(state.objective) else 0):
        rows = state.columns.T / problem.unit(state.loss)
        newton, majorant = _gauss_newton(problem, rows, state.residuals)
        _, pull, precision = problem.prior_at(theta)
        hessian = 0.9 * newton + 0.1 * majorant
        hessian.flat[:: m + 1] += precision[:m]
        limits = problem.limits(theta[m:])
        step = bounded_step(hessian, rows @ state.scores + pull[:m], -theta[:m], limits - theta[:m])
        if step is None:
            break
        trial = np.concatenate([np.clip(theta[:m] + step, 0.0, limits), theta[m:]])
        trial_state = _evaluate(problem, trial, None)
        if not trial_state.objective < state.objective:
            break
        theta, state = trial, trial_state
    return theta, state


def gradient_of(value: Callable[[np.ndarray], float], theta: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Derivative (p,) of a number in theta, by differences within upper bounds of all or of its last coordinates."""
    center, slope = value(theta), np.empty(len(theta))
    upper = np.concatenate([np.full(len(theta) - len(upper), np.inf), upper])
    for j in range(len(theta)):
        step = STEP * max(1.0, abs(theta[j]))
        step = step if theta[j] + step <= upper[j] else -step
        moved = theta.copy()
        moved[j] += step
        slope[j] = (value(moved) - center) / step
    return slope


def _restart(problem: Problem, theta: np.ndarray) -> np.ndarray | None:
    """A theta of the same objective from which a coefficient at 0 would descend, if there is one.

    There the objective does not depend on the exponents of its column; with others the column might lower it.
    """
    m = len(theta) - len(problem.nonlinear)
    if np.all(theta[:m] > 0):
        return None
    state = _evaluate(problem, theta, None)
    scores = state.scores / problem.unit(state.loss)
    inactive = np.flatnonzero(~problem.slopes(theta[m:], theta[:m], state.loss).any(axis=0))
    for j in inactive:
        for z in np.linspace(problem.lower[j], problem.upper[j], 9):
            moved = theta.copy()
            moved[m + j] = z
            gradient = scores @ problem.columns(moved[m:])[1]
            if np.any(gradient[theta[:m] == 0] < -1e-6 * np.abs(scores).sum()):
                return moved
    return None


def second_derivatives(
    problem: Problem, theta: np.ndarray, scores: np.ndarray, columns: np.ndarray, slopes: np.ndarray
) -> np.ndarray:
    """Second derivatives (p, p) of sum_i scores_i loss_i in theta, the scores (n,) held.

    `columns` (n, m) and `slopes` (n, q) are the loss's derivatives at theta. The loss is linear in the amounts, so one
    difference in each nonlinear coordinate gives all.
    """
    m = columns.shape[1]
    u, z = theta[:m], theta[m:]
    center = np.concatenate([scores @ columns, scores @ slopes])
    length = STEP if problem.law.slopes is not None else LONG_STEP
    result = np.zeros((len(theta), len(theta)))
    for j in range(len(z)):
        step = length if z[j] + length <= problem.upper[j] else -length
        moved = z.copy()
        moved[j] += step
        offset, moved_columns = problem.columns(moved)
        moved_slopes = problem.slopes(moved, u, offset + moved_columns @ u)
        result[m + j] = (np.concatenate([scores @ moved_columns, scores @ moved_slopes]) - center) / step
    result[:m, m:] = result[m:, :m].T
    result[m:, m:] = (result[m:, m:] + result[m:, m:].T) / 2
    return result
