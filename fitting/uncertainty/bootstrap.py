"""Bootstrap of a fit over whole runs.

The points of one run share its data order, its initial weights and its schedule, so their errors are correlated. With
many runs each draw reweights the runs by exponential variates (Rubin 1981), which assumes nothing about the errors.

With fewer than ten runs per parameter such a draw can all but drop a size or a ratio, and 90% intervals held the truth
in 75 to 85% of the repeats of docs/studies/parameter_coverage.py. There each draw flips the sign of each run's log
residuals at random, leverage undone (the wild bootstrap of Cameron, Gelbach & Miller 2008; with the six-point factors
of Webb 2023 where so few signs give few draws). It then scales all of them by a chi variate with the degrees of freedom
of the median parameter, since the size of the errors is itself estimated from a few runs. Factors other than signs put
more residuals close to 0 than there are, which narrows a fit by least absolute errors (Feng, He & Hu 2011), as Huber's
loss is to noise above delta.
"""

from dataclasses import replace

import numpy as np
import pandas as pd

from fitting.parallel import over_cores
from fitting.schedule import ANNEALING, FORWARD
from fitting.solver.newton import TOGETHER, refine_all
from fitting.solver.problem import Problem
from fitting.uncertainty.sandwich import Sandwich, rows_by_run

FACTORS = np.sqrt([0.5, 1.0, 1.5])
FEW = 10
SMALLEST_FREEDOM = 4
RUNS_PER_PARAMETER = 10
"""Runs per parameter from which each draw reweights the runs."""
RUN_COLUMNS = ("N", "D", "r", "rho", *FORWARD, *ANNEALING, "s1_pretrain", "step", "x", "k1", "k2", "k3")
"""Columns in which two runs agree that differ in nothing that laws read, such as in their seed alone."""


def resample(
    problem: Problem,
    theta: np.ndarray,
    sandwich: Sandwich,
    runs: np.ndarray,
    draws: int,
    rng,
    workers: int | None = None,
) -> np.ndarray:
    """Parameters (draws, parameters) of refits, each started from theta, in the order of `problem.parameters`.

    `runs` (n,) numbers the run of each point. `workers`: as in `fit`; the draws do not depend on it.
    """
    n_runs = int(runs.max()) + 1
    reweight = n_runs >= RUNS_PER_PARAMETER * problem.n_free
    if reweight:
        factors = rng.exponential(size=(draws, n_runs))
    else:
        factors = rng.choice([-1.0, 1.0], (draws, n_runs))
        if n_runs < FEW:
            factors *= rng.choice(FACTORS, (draws, n_runs))
        freedom = max(np.median([sandwich.freedom(one) for one in np.eye(len(theta))]) - 1, SMALLEST_FREEDOM)
        factors *= np.sqrt(freedom / rng.chisquare(freedom, (draws, 1)))

    def drawn(factors: np.ndarray) -> Problem:
        if reweight:
            return replace(problem, point_weights=problem.point_weights * factors[runs])
        return replace(problem, loss=with_errors(sandwich.fitted, factors[runs] * sandwich.errors, problem.scale))

    def refit(some: np.ndarray) -> list[list[float]]:
        starts = np.tile(theta, (len(some), 1))
        thetas, _ = refine_all([drawn(factors) for factors in some], starts, tolerance=1e-6, max_steps=60)
        return [list(problem.parameters(one).values()) for one in thetas]

    together = max(1, TOGETHER // len(problem.loss))
    parts = np.split(factors, range(together, draws, together))
    return np.array([one for part in over_cores(refit, parts, workers) for one in part])


def with_errors(loss: np.ndarray, errors: np.ndarray | float, scale: float) -> np.ndarray:
    """Losses with log errors, or with errors in units of `scale` where it is not 0."""
    return loss + scale * errors if scale else loss * np.exp(errors)


def noise_between_seeds(points: pd.DataFrame, errors: np.ndarray, runs: np.ndarray) -> float | None:
    """Standard deviation of the mean log error of runs that differ in nothing that laws read, or None."""
    known = [name for name in map(str, points.columns) if name in RUN_COLUMNS or name.startswith("mixture.")]
    numbers = pd.DataFrame({name: _numbers(points[name]) for name in known}, index=range(len(points)))
    columns = np.round(numbers.to_numpy(dtype=float), 12)
    groups: dict[bytes, list[float]] = {}
    for rows in rows_by_run(runs):
        groups.setdefault(np.sort(columns[rows], axis=0).tobytes(), []).append(float(errors[rows].mean()))
    twins = [np.array(values) for values in groups.values() if len(values) > 1]
    freedom = sum(len(values) - 1 for values in twins)
    return float(np.sqrt(sum(((v - v.mean()) ** 2).sum() for v in twins) / freedom)) if freedom else None


def _numbers(column: pd.Series) -> np.ndarray:
    """A column (n,), of text a number for each different one: a table may have steps like 10k, which no law reads."""
    try:
        return column.to_numpy(dtype=float)
    except (TypeError, ValueError):
        return pd.factorize(column.astype(str))[0].astype(float)
