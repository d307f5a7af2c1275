"""Greedy choice of runs by what they are expected to take from the variance of an answer.

With draws of the losses at candidates and of the answer, a run with covariance c to the answer, variance v and noise n
takes c^2 / (v + n) from its variance. Once a run is chosen, all draws are projected so that their covariance
is the one after it (the square-root form of the Kalman update, Potter 1963), whatever it will measure.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Score = Callable[[list["Draws"]], np.ndarray]
"""Draws of each output, as if the runs chosen so far were measured -> a number for each run; the greatest is next."""
TAIL = 0.01
"""Part of the draws on each side that is drawn in: a few wild draws would be most of the variance."""


@dataclass(eq=False)
class Draws:
    """Draws of one output: losses at candidate rows (k, n), of an answer (k, t), noise variance of a row (n,).

    `weights` (t,): what an answer's variance counts. Centred; `observe` changes them.
    """

    losses: np.ndarray
    answers: np.ndarray
    noise: np.ndarray
    weights: np.ndarray

    @property
    def variance(self) -> np.ndarray:
        """Variance (t,) of the answers."""
        return np.mean(self.answers**2, axis=0)

    def gains(self, rows: np.ndarray) -> np.ndarray:
        """What each run would take from the weighted variance of the answers; rows (runs, points), -1 for none."""
        count = len(self.losses)
        covariance = self.answers.T @ self.losses / count * np.sqrt(self.weights)[:, None]
        total = float(self.weights @ self.variance)
        if rows.shape[1] == 1:
            one = rows[:, 0]
            variance = np.mean(self.losses[:, one] ** 2, axis=0)
            known = variance + self.noise[one]
            gain = np.sum(covariance[:, one] ** 2, axis=0) / known
            # The square of a covariance of draws is too large by chance.
            return np.maximum(gain - total * variance / known / count, 0.0)
        there = rows >= 0
        gains = np.empty(len(rows))
        for first in range(0, len(rows), 256):
            part, used = rows[first : first + 256], there[first : first + 256]
            losses = np.where(used, self.losses[:, part], 0.0)
            inner = np.einsum("kib,kic->ibc", losses, losses, optimize=True) / count
            noise = np.where(used, self.noise[part], 1.0)
            cross = np.where(used, covariance[:, part], 0.0).transpose(1, 2, 0)
            both = inner + noise[:, :, None] * np.eye(part.shape[1])
            solved = np.linalg.solve(both, np.concatenate([cross, inner], 2))
            chance = total * np.trace(solved[:, :, cross.shape[2] :], axis1=1, axis2=2) / count
            gains[first : first + 256] = np.sum(cross * solved[:, :, : cross.shape[2]], axis=(1, 2)) - chance
        return np.maximum(gains, 0.0)

    def observe(self, rows: np.ndarray) -> None:
        """Project the draws as if these rows had been measured."""
        for row in rows[rows >= 0]:
            one = self.losses[:, row].copy()
            variance = float(np.mean(one**2))
            if variance <= 0:
                continue
            part = 1 - np.sqrt(self.noise[row] / (variance + self.noise[row]))
            scaled = one * (part / variance / len(one))
            self.losses -= np.outer(one, scaled @ self.losses)
            self.answers -= np.outer(one, scaled @ self.answers)


def centred(values: np.ndarray) -> np.ndarray:
    """Draws (k, n) without their mean, the wildest drawn in."""
    count = len(values)
    edge = int(TAIL * count)
    if edge and values.size:
        parted = np.partition(values, (edge, count - 1 - edge), axis=0)
        values = np.clip(values, parted[edge], parted[count - 1 - edge])
    return values - values.mean(axis=0)


def choose(
    outputs: list[Draws], rows: np.ndarray, costs: np.ndarray, score: Score, budget: float, most: int
) -> list[tuple[int, list[np.ndarray], np.ndarray]]:
    """The runs in order, each with the variances (t,) of the answers of each output after it, and the scores before it.

    The score of a run that could not be chosen then is -inf.

    Runs that cost more than what is left of the budget are passed over. Scores that agree to nine digits are equal, and
    the first such run is taken.
    """
    spent, chosen = 0.0, []
    open_ = np.ones(len(costs), dtype=bool)
    while len(chosen) < most:
        affordable = open_ & (spent + costs <= budget)
        if not affordable.any():
            break
        values = np.where(affordable, score(outputs), -np.inf)
        best = values.max()
        run = int(np.flatnonzero(values >= best - 1e-9 * abs(best))[0])
        for output in outputs:
            output.observe(rows[run])
        open_[run] = False
        spent += costs[run]
        chosen.append((run, [output.variance for output in outputs], values))
    return chosen
