"""Our fit of the D-CPT law against plain multi-start L-BFGS on the paper's objective, in one process, in turn."""

import itertools
import time

import numpy as np
import pandas as pd
from scipy.optimize import minimize
from scipy.special import logsumexp

import fitting
from tests.benchmarks import Row, row
from tests.fitting.synthetic import TRUE, grid, measured

STARTS = 8
DELTA = 1e-3
# the objective is some hundredths: at the default ftol, absolute below 1, the peer would stop early
TIGHT = {"maxiter": 5000, "maxfun": 10_000, "ftol": 1e-13, "gtol": 1e-9}


class PaperObjective:
    """Que et al. 2024, app. E.3: sum of Huber(1e-3) of log residuals, log loss as a LogSumExp, analytic gradient.

    Parameters: e, a, alpha, b, beta, c1, gamma, eta1, eps; eta = 1 + exp(eta1).
    """

    def __init__(self, points: pd.DataFrame):
        self.log_N, self.log_D = np.log(points["N"].to_numpy()), np.log(points["D"].to_numpy())
        self.r = points["r"].to_numpy()
        self.log_r = np.log(np.where(self.r > 0, self.r, 1.0))
        self.absent = np.where(self.r > 0, 0.0, -np.inf)
        self.log_loss = np.log(points["loss"].to_numpy())
        self.log_D_min = self.log_D.min()

    def __call__(self, parameters: np.ndarray) -> tuple[float, np.ndarray]:
        e, a, alpha, b, beta, c1, gamma, eta1, eps = parameters
        eta = 1 + np.exp(eta1)
        log_shifted = np.log(self.r + eps)
        c0 = b + np.log(eta) + (gamma + 1) * np.log1p(eps) - np.log(gamma) - beta * self.log_D_min
        terms = np.stack(
            [
                np.full_like(self.r, e),
                a - alpha * self.log_N,
                b + eta * self.log_r - beta * self.log_D + self.absent,
                c1 - gamma * log_shifted,
                c0 - gamma * log_shifted,
            ]
        )
        total = logsumexp(terms, axis=0)
        residuals = total - self.log_loss
        size = np.abs(residuals)
        value = float(np.sum(np.where(size <= DELTA, size**2 / 2, DELTA * (size - DELTA / 2))))
        weight = np.exp(terms - total) * np.clip(residuals, -DELTA, DELTA)
        constant, of_size, of_tokens, of_c1, of_c0 = weight.sum(axis=1)
        slope = (weight[3] + weight[4]) @ (-gamma / (self.r + eps))
        gradient = [
            constant,
            of_size,
            -weight[1] @ self.log_N,
            of_tokens + of_c0,
            -weight[2] @ self.log_D - of_c0 * self.log_D_min,
            of_c1,
            -(weight[3] + weight[4]) @ log_shifted + of_c0 * (np.log1p(eps) - 1 / gamma),
            (weight[2] @ self.log_r + of_c0 / eta) * (eta - 1),
            slope + of_c0 * (gamma + 1) / (1 + eps),
        ]
        return value, np.array(gradient)


BOUNDS = [*[(None, None)] * 2, (0.01, 3), (None, None), (0.01, 3), (None, None), (0.01, 3), (-9.0, 2.2), (1e-4, 1)]


def paper_starts(count: int, seed: int = 0) -> list[np.ndarray]:
    """A draw from the paper's grid of 277,830 starts (values outside the bounds are moved onto them)."""
    wide, half = (-1, 0, 1, 2, 3, 4, 5), (-0.5, 0.0, 0.5)
    axes = [(-1, -0.5, 0, 0.5, 1), wide, half, wide, half, wide, half, half, (0.0, 0.5)]
    assert np.prod([len(axis) for axis in axes]) == 277_830 == sum(1 for _ in itertools.product(*axes))
    rng = np.random.default_rng(seed)
    low = [-np.inf if bound[0] is None else bound[0] for bound in BOUNDS]
    return [np.maximum([rng.choice(axis) for axis in axes], low).astype(float) for _ in range(count)]


def measure() -> list[Row]:
    """Time, and how often each side reaches the best objective of all."""
    points = measured(grid(), "dcpt", TRUE["dcpt"], noise=0.003)
    objective = PaperObjective(points)
    ours, peer = [], []
    for seed, start in enumerate(paper_starts(STARTS)):
        before = time.perf_counter()
        fit = fitting.fit(points, "dcpt", seed=seed, bootstrap=0)
        ours.append((time.perf_counter() - before, fit.objective))
        before = time.perf_counter()
        found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=BOUNDS, options=TIGHT)
        peer.append((time.perf_counter() - before, float(found.fun)))
    best = min(value for _, value in ours + peer)
    times = [float(np.median([seconds for seconds, _ in side])) * 1e3 for side in (ours, peer)]
    fractions = [float(np.mean([value <= best * 1.001 for _, value in side])) for side in (ours, peer)]
    needed = [time / max(fraction, 1 / STARTS) for time, fraction in zip(times, fractions, strict=True)]
    worst = [max(value for _, value in side) / best for side in (ours, peer)]
    rows = (
        ("time a start", times, "ms", "median of one fit of 5,400 points from one start or seed"),
        ("starts at the best objective", fractions, "fraction", "within 0.1% of the smallest objective of all"),
        ("time to the best objective", needed, "ms", "time a start over that fraction (at least one in eight)"),
        ("worst objective", worst, "times the best", "the cost of a single unlucky start"),
    )
    return [row(name, of[0], unit, meaning, of[1], lower_is_better=True) for name, of, unit, meaning in rows]
