"""How far the parameters could have come out otherwise: the wild bootstrap, a whole run at a time.

The points of one run share its data order, its initial weights and its schedule, so their errors are not
independent. Each draw keeps every run where it is (no size or ratio is ever lost) and multiplies its log
residuals by one random factor of mean 0 and variance 1, then refits (Cameron, Gelbach & Miller 2008;
six-point factors of Webb 2023). A fit bends towards its own points, so residuals are too small: they are
first divided by one minus their leverage, as a block (CR3, Bell & McCaffrey 2002). The size of the errors is
itself known from a few runs only, so each draw also scales them by a chi variate with runs - 1 degrees of
freedom. With less than this, 90% intervals held the truth in 75 to 85% of the repeats of
tests/benchmarks/coverage.py.
"""

from dataclasses import replace

import numpy as np

from fitting.polish import polish
from fitting.problem import Problem

FACTORS = np.sqrt([0.5, 1.0, 1.5])
LARGEST_LEVERAGE = 0.95
SMALLEST_FREEDOM = 4


def resample(problem: Problem, theta: np.ndarray, runs: np.ndarray, draws: int, rng) -> list[dict[str, float]]:
    """Parameters of `draws` refits, each started from theta. `runs` (n,) numbers the run of each point."""
    fitted, residuals = restore_spread(problem, theta, runs)
    parameters = []
    n_runs = int(runs.max()) + 1
    freedom = max(n_runs - 1, SMALLEST_FREEDOM)
    for _ in range(draws):
        factors = rng.choice(FACTORS, n_runs) * rng.choice([-1.0, 1.0], n_runs)
        factors *= np.sqrt(freedom / rng.chisquare(freedom))
        drawn = replace(problem, loss=np.exp(fitted + factors[runs] * residuals))
        parameters.append(problem.parameters(polish(drawn, theta, tolerance=1e-6)[0]))
    return parameters


def restore_spread(problem: Problem, theta: np.ndarray, runs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log of the fitted loss and the log residuals with their leverage undone, both (n,)."""
    m = len(theta) - len(problem.nonlinear)
    u, z = theta[:m], theta[m:]
    offset, columns = problem.columns(z)
    at = offset + columns @ u
    residuals = np.log(problem.loss) - np.log(at)
    jacobian = np.hstack([columns[:, u > 0], problem.slopes(z, u, at)]) / at[:, None]
    root = np.sqrt(problem.weights)
    jacobian *= root[:, None]
    size = np.linalg.norm(jacobian, axis=0)
    left, singular, _ = np.linalg.svd(jacobian[:, size > 0] / size[size > 0], full_matrices=False)
    left = left[:, singular > 1e-8 * singular[0]]
    for run in range(runs.max() + 1):
        rows = np.flatnonzero(runs == run)
        directions, cosines, _ = np.linalg.svd(left[rows], full_matrices=False)
        leverage = np.minimum(cosines**2, LARGEST_LEVERAGE)
        growth = directions @ ((1 / (1 - leverage) - 1) * (directions.T @ (root * residuals)[rows]))
        residuals[rows] += np.divide(growth, root[rows], out=np.zeros(len(rows)), where=root[rows] > 0)
    return np.log(at), residuals
