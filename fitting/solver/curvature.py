"""How the loss bends: what a Hessian needs beside the slopes, and Gauss and Newton leave out."""

import numpy as np

from fitting.solver.problem import Problem

STEP = 1e-6
"""Forward differences of slopes that are exact."""
LONG_STEP = 1e-4
"""And of slopes that are differences themselves."""


def curvature(
    problem: Problem, theta: np.ndarray, pulls: np.ndarray, columns: np.ndarray, slopes: np.ndarray
) -> np.ndarray:
    """Second derivatives (p, p) of sum_i pulls_i loss_i in theta, the pulls (n,) held.

    `columns` (n, m) and `slopes` (n, q) are the loss's derivatives at theta. The loss is linear in the amounts, so
    that moving each shape once gives all.
    """
    m = columns.shape[1]
    u, z = theta[:m], theta[m:]
    here = np.concatenate([pulls @ columns, pulls @ slopes])
    length = STEP if problem.law.slopes is not None and problem.curve is None else LONG_STEP
    bend = np.zeros((len(theta), len(theta)))
    for j in range(len(z)):
        step = length if z[j] + length <= problem.upper[j] else -length
        moved = z.copy()
        moved[j] += step
        offset, there = problem.columns(moved)
        turned = problem.slopes(moved, u, offset + there @ u)
        bend[m + j] = (np.concatenate([pulls @ there, pulls @ turned]) - here) / step
    bend[:m, m:] = bend[m:, :m].T
    bend[m:, m:] = (bend[m:, m:] + bend[m:, m:].T) / 2
    return bend
