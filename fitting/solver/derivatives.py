"""Derivatives by differences: second ones of the loss, and those of parameters."""

import numpy as np

from fitting.solver.law_at import LawAt
from fitting.solver.problem import STEP, Problem

TOGETHER = 6000
"""Points of all places that are computed together: more leave the cache, fewer make numpy's calls count."""
LONG_STEP = 1e-4
"""Forward differences of slopes that are differences themselves; `STEP` where they are exact."""


def second_derivatives(problem: Problem, thetas: np.ndarray, pulls: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    """Second derivatives (places, p, p) of sum_i pulls_i loss_i in theta (places, p), the pulls (places, n) held.

    `gradients` (places, p) are the first ones. The loss is linear in the amounts, so one difference in each nonlinear
    coordinate gives all.
    """
    if not problem.nonlinear:
        return np.zeros((*thetas.shape, thetas.shape[1]))
    places, q = len(thetas), len(problem.nonlinear)
    p, m = thetas.shape[1], thetas.shape[1] - q
    u, pulls = np.repeat(thetas[:, :m], q, axis=0), np.repeat(pulls, q, axis=0)
    z, step = _moved(problem, thetas[:, m:], STEP if problem.law.slopes is not None else LONG_STEP)
    moved, together = np.empty((len(z), p)), max(1, TOGETHER // len(problem.loss))
    for first in range(0, len(z), together):
        some = slice(first, first + together)
        at = problem.at(z[some])
        moved[some, :m] = (at.rows @ pulls[some, :, None])[..., 0]
        moved[some, m:] = problem.slope_rows(at, u[some], at.loss(u[some]), pulls=pulls[some])
    return _symmetric(moved.reshape(places, q, p) - gradients[:, None], step)


def parameter_slopes(problem: Problem, at: LawAt, numbers: np.ndarray, thetas: np.ndarray) -> np.ndarray:
    """Derivatives (places, p) in theta of one parameter at each place, by its number (places,) among `names`."""
    k, q = len(problem.law.linear), len(problem.nonlinear)
    slopes, m = np.zeros(thetas.shape), thetas.shape[1] - q
    for j, p in enumerate(problem.nonlinear):
        for i in np.flatnonzero(numbers == problem.names.index(p.name)):
            slopes[i, m + j] = p.derivative(p.value(thetas[i, m + j]))
    linear = np.flatnonzero(numbers < k)
    if not len(linear):
        return slopes
    numbers, u = numbers[linear], thetas[linear, :m]
    slopes[linear, :m] = np.broadcast_to(at.cone, (len(thetas), k, m))[linear, numbers] / at.size[linear]
    if q:
        moved, step = _moved(problem, thetas[linear, m:], STEP)
        there = problem.parameter_values(problem.at(moved), np.repeat(u, q, axis=0)).reshape(len(linear), q, -1)
        now = problem.parameter_values(at, thetas[:, :m])[linear, numbers]
        slopes[linear, m:] = (there[np.arange(len(linear)), :, numbers] - now[:, None]) / step
    return slopes


def parameter_curvatures(problem: Problem, numbers: np.ndarray, thetas: np.ndarray) -> np.ndarray:
    """Second derivatives (places, p, p) in theta of one parameter at each place, by its number (places,)."""
    places, q = len(thetas), len(problem.nonlinear)
    p, m = thetas.shape[1], thetas.shape[1] - q
    z, step = _moved(problem, thetas[:, m:], LONG_STEP)
    # Each place, and then each moved in each coordinate.
    where = np.concatenate([thetas, np.concatenate([np.repeat(thetas[:, :m], q, axis=0), z], axis=1)])
    numbers, together = np.concatenate([numbers, np.repeat(numbers, q)]), max(1, TOGETHER // len(problem.loss))
    parts = [slice(first, first + together) for first in range(0, len(where), together)]
    found = [parameter_slopes(problem, problem.at(where[some, m:]), numbers[some], where[some]) for some in parts]
    now, moved = np.split(np.concatenate(found), [places])
    return _symmetric(moved.reshape(places, q, p) - now[:, None], step)


def slopes_of(problem: Problem, numbers: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Derivatives (numbers, p) in theta of several parameters at one theta."""
    thetas = np.tile(theta, (len(numbers), 1))
    return parameter_slopes(problem, problem.at(thetas[:, len(theta) - len(problem.nonlinear) :]), numbers, thetas)


def _moved(problem: Problem, z: np.ndarray, length: float) -> tuple[np.ndarray, np.ndarray]:
    """Each of several z (places, q) moved in each coordinate in turn (places * q, q), and the steps (places, q)."""
    step = np.where(z + length <= problem.upper, length, -length)
    return (z[:, None] + step[:, :, None] * np.eye(z.shape[1])).reshape(-1, z.shape[1]), step


def _symmetric(changes: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Second derivatives (places, p, p) from changes (places, q, p) of first ones by steps (places, q) in z.

    Those in two amounts are 0.
    """
    places, q, p = changes.shape
    m = p - q
    result = np.zeros((places, p, p))
    result[:, m:] = changes / step[:, :, None]
    result[:, :m, m:] = result[:, m:, :m].swapaxes(1, 2)
    result[:, m:, m:] = (result[:, m:, m:] + result[:, m:, m:].swapaxes(1, 2)) / 2
    return result
