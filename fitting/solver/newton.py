"""Minimise the papers' objective, the sum of Huber(1e-3) of log residuals, and the prior, over all parameters at once.

A projected Newton method. Its Hessian lies between that of the Huber loss (points within delta only) and that of the
quadratic above it (iteratively reweighted least squares), which is safe far from the optimum and serves as the damping.
To both Gauss-Newton matrices the second derivatives of the law are added, which along a flat direction are most of the
Hessian; they are computed again wherever a step did not gain what the quadratic model predicted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fitting.solver.bounded_step import bounded_steps
from fitting.solver.derivatives import parameter_curvatures, second_derivatives
from fitting.solver.law_at import LawAt
from fitting.solver.objective import Given, Model, Penalty, Rows, State, gauss_newton, given_of, model_at, state_at
from fitting.solver.problem import Problem

MIN_GAIN = 0.9
"""Ratio of gain to prediction below which the coefficients are refined before the step is judged."""
TRUSTED = (0.75, 1.25)
"""Ratio of gain to prediction within which the law's second derivatives are kept."""
ROUNDING = 1e-15
"""Relative gain that is lost in the rounding of the objective."""
TOGETHER = 24_000
"""Points of all problems that are solved together: of more the arrays, not numpy's calls, take the time."""
LOOSE = 1e-6
"""Tolerance from which a descent stops at the first sign of convergence."""


def refine(
    problem: Problem, theta: np.ndarray, tolerance: float = 1e-9, penalty: Penalty | None = None, max_steps: int = 500
) -> tuple[np.ndarray, float]:
    """The (theta, objective) of the local minimum that a descent from theta reaches.

    The objective counts the problem's prior and not the penalty.
    """
    thetas, objectives = refine_all([problem], theta[None], tolerance, [penalty], max_steps)
    return thetas[0], float(objectives[0])


def refine_all(
    problems: Sequence[Problem],
    thetas: np.ndarray,
    tolerance: float = 1e-9,
    penalties: Sequence[Penalty | None] | None = None,
    max_steps: int = 500,
) -> tuple[np.ndarray, np.ndarray]:
    """Ends (problems, p) of descents and their objectives (problems,), as `refine` for each of several problems.

    They are of one law and the same points, may differ in loss, weights and prior, and all have a penalty or none. What
    a problem ends at does not depend on the others.
    """
    penalties = [None] * len(problems) if penalties is None else penalties
    ends, together = [], max(1, TOGETHER // max(len(problems[0].loss), 1))
    for first in range(0, len(problems), together):
        some = slice(first, first + together)
        ends.append(_refined(problems[some], thetas[some], tolerance, penalties[some], max_steps))
    thetas, objectives = (np.concatenate(parts) for parts in zip(*ends))
    return thetas, objectives


def _refined(problems: Sequence[Problem], thetas: np.ndarray, tolerance: float, penalties, max_steps: int):
    """`refine_all` for as many problems as go together."""
    m = thetas.shape[1] - len(problems[0].nonlinear)
    thetas, objectives = _descend(problems, thetas, tolerance, penalties, max_steps)
    for i in np.flatnonzero((thetas[:, :m] <= 0).any(axis=1)).tolist():
        for _ in range(5):
            restart = _restart(problems[i], thetas[i])
            if restart is None:
                break
            before = objectives[i]
            one = slice(i, i + 1)
            thetas[one], objectives[one] = _descend(problems[one], restart[None], tolerance, penalties[one], max_steps)
            # It led back, as the next ones would, and a profile needs no more digits.
            if penalties[i] is not None and abs(objectives[i] - before) <= tolerance * before:
                break
    return thetas, objectives


@dataclass(eq=False)
class _Course(Rows):
    """How descents go on: number of each, second derivatives (rows, p, p) and whether they are trusted and computed
    since the last step, whether a step was refused since, damping, steps in a row that gained little, and all steps.
    """

    number: np.ndarray
    curvature: np.ndarray
    trusted: np.ndarray
    fresh: np.ndarray
    refused: np.ndarray
    damping: np.ndarray
    stalled: np.ndarray
    steps: np.ndarray

    @classmethod
    def begin(cls, count: int, p: int) -> "_Course":
        no, zeros = np.zeros(count, dtype=bool), np.zeros(count, dtype=int)
        curvature = np.zeros((count, p, p))
        return cls(np.arange(count), curvature, ~no, no.copy(), no.copy(), np.full(count, 1e-4), zeros, zeros.copy())


def _descend(
    problems: Sequence[Problem], thetas: np.ndarray, tolerance: float, penalties: Sequence, max_steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """Ends and objectives of descents that go on together, each at its own pace, and leave as they converge."""
    problem, p = problems[0], thetas.shape[1]
    m = p - len(problem.nonlinear)
    lower = np.concatenate([np.zeros(m), problem.lower])
    given, at = given_of(problems, penalties), problem.at(thetas[:, m:])
    now, course = state_at(problem, given, at, thetas.copy()), _Course.begin(*thetas.shape)
    slopes, ends, objectives = model_at(problem, given, at, now), thetas.copy(), now.objective.copy()
    while len(course.number):
        stale = _where(~course.trusted)
        if stale is not None:
            course.curvature[stale] = _curvature(problem, given.take(stale), now.take(stale), slopes.take(stale))
            course.fresh[stale] = course.trusted[stale] = True
        hessian = slopes.newton + course.curvature
        damped = hessian + np.sqrt(course.damping)[:, None, None] * slopes.majorant
        damped.reshape(-1, p * p)[:, :: p + 1] += course.damping[:, None] * slopes.majorant.diagonal(axis1=1, axis2=2)
        step, possible = bounded_steps(damped, slopes.gradient, lower - now.theta, slopes.upper - now.theta)
        theta = np.minimum(np.maximum(now.theta + step, lower), slopes.upper)
        at = problem.at(theta[:, m:])
        theta[:, :m] = np.minimum(theta[:, :m], problem.most(at.size))
        step = theta - now.theta
        predicted = -((slopes.gradient + (hessian @ step[..., None])[..., 0] / 2) * step).sum(axis=1)
        trial = state_at(problem, given, at, theta)
        hopeful = possible & (predicted > ROUNDING * now.objective)
        if m and penalties[0] is None:
            poor = _where(hopeful & ~(now.objective - trial.objective >= MIN_GAIN * predicted))
            if poor is not None:
                refined = _refine_coefficients(problem, given.take(poor), at.take(poor), trial.take(poor))
                trial = trial.put(poor, refined)
        better = hopeful & (trial.objective < now.objective)
        gain = now.objective - np.where(better, trial.objective, 0.0)
        # Nothing that could be seen is left to gain; by old second derivatives that may be wrong.
        nothing = ~hopeful if penalties[0] is None else np.abs(predicted) <= ROUNDING * now.objective
        ended = possible & nothing & course.fresh
        refused = ~better & ~ended & course.fresh
        # After a refusal the next step is likely refused too if the damping drops at once.
        lowered = np.maximum(course.damping / np.where(course.refused, 3, 30), 1e-14)
        course.damping = np.where(better, lowered, np.where(refused, course.damping * 5, course.damping))
        small = gain <= tolerance * trial.objective
        course.stalled = np.where(better, np.where(small, course.stalled + 1, 0), course.stalled)
        course.steps += better
        ended |= better & (course.stalled >= 2) & (course.fresh | (tolerance >= LOOSE))
        ended |= (course.damping >= 1e8) | (course.steps >= max_steps)
        # Without second derivatives a descent that zigzags seems to stall, so convergence is confirmed with them.
        close = (TRUSTED[0] * predicted <= gain) & (gain <= TRUSTED[1] * predicted)
        course.trusted = np.where(better, close & ~(small & (tolerance < LOOSE)), course.fresh)
        course.refused = ~better & (course.refused | refused)
        course.fresh &= ~better
        moved, onward = _where(better), _where(better & ~ended)
        if moved is not None:
            now = now.put(moved, trial.take(moved))
        if onward is not None:
            there = model_at(problem, given.take(onward), at.take(onward), now.take(onward))
            slopes = slopes.put(onward, there)
        if ended.any():
            ends[course.number[ended]], objectives[course.number[ended]] = now.theta[ended], now.objective[ended]
            left = np.flatnonzero(~ended)
            given, now, slopes, course = given.take(left), now.take(left), slopes.take(left), course.take(left)
    if penalties[0] is not None:
        objectives = state_at(
            problem, given_of(problems, [None] * len(problems)), problem.at(ends[:, m:]), ends
        ).objective
    return ends, objectives


def _where(mask: np.ndarray) -> np.ndarray | slice | None:
    """Where a mask is true, as an index without copies where it is everywhere; None where it is nowhere."""
    return slice(None) if mask.all() else np.flatnonzero(mask) if mask.any() else None


def _refine_coefficients(problem: Problem, given: Given, at: LawAt, there: State) -> State:
    """A few steps in the coefficients alone: along a curved direction a joint step leaves them behind."""
    m = at.rows.shape[-2]
    limits, going = problem.most(at.size), _where(np.isfinite(there.objective))
    for _ in range(3):
        if going is None:
            break
        some, own, law = there.take(going), given.take(going), at.take(going)
        rows = law.rows / (problem.scale or some.loss[:, None])
        newton, majorant = gauss_newton(problem, own, rows, some.residuals)
        hessian, pull = 0.9 * newton + 0.1 * majorant, own.precision * (some.theta - own.mean)
        hessian.reshape(-1, m * m)[:, :: m + 1] += own.precision[:, :m]
        gradient = (rows @ some.scores[..., None])[..., 0] + pull[:, :m]
        u = some.theta[:, :m]
        step, possible = bounded_steps(hessian, gradient, -u, limits[going] - u)
        theta = some.theta.copy()
        theta[:, :m] = np.minimum(np.maximum(u + step, 0.0), limits[going])
        trial = state_at(problem, own, law, theta)
        better = _where(possible & (trial.objective < some.objective))
        if better is None:
            break
        going = better if isinstance(going, slice) else going[better]
        there = there.put(going, trial.take(better))
    return there


def _curvature(problem: Problem, given: Given, there: State, slopes: Model) -> np.ndarray:
    """What the second derivatives of the law, and of the penalised parameter, add to the Hessians (rows, p, p)."""
    pulls = there.scores / (problem.scale or there.loss)
    found = second_derivatives(problem, there.theta, pulls, slopes.pulled)
    if not problem.scale:
        found -= (slopes.rows * there.scores[:, None]) @ slopes.rows.swapaxes(-1, -2)
    if given.strength[0]:
        pull = (given.strength * there.away)[:, None, None]
        found += pull * parameter_curvatures(problem, given.number, there.theta)
    return found


def _restart(problem: Problem, theta: np.ndarray) -> np.ndarray | None:
    """A theta of the same objective from which a coefficient at 0 would descend, if there is one.

    There the objective does not depend on the exponents of its column; with others the column might lower it.
    """
    m = len(theta) - len(problem.nonlinear)
    if np.all(theta[:m] > 0):
        return None
    at = problem.at(theta[None, m:])
    state = state_at(problem, given_of([problem], [None]), at, theta[None])
    scores = (state.scores / problem.unit(state.loss))[0]
    inactive = np.flatnonzero(~problem.slope_rows(at, theta[None, :m], state.loss)[0].any(axis=1))
    for j in inactive:
        for z in np.linspace(problem.lower[j], problem.upper[j], 9):
            moved = theta.copy()
            moved[m + j] = z
            gradient = scores @ problem.columns(moved[m:])[1]
            if np.any(gradient[theta[:m] == 0] < -1e-6 * np.abs(scores).sum()):
                return moved
    return None
