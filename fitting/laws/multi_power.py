"""Loss of any learning-rate schedule: each fall of the rate brings a gain of its own, which a power law lets grow."""

from dataclasses import dataclass

import numpy as np

from fitting.laws.law import Columns, Law, Parameter, exponent, power

PARTS = 256
"""Falls of a schedule that are told apart: those of a smooth decay are put together by their mean."""


@dataclass(frozen=True, eq=False)
class Falls:
    """The steps of a schedule at which the learning rate falls: by how much, to what rate, and S1 before the step.

    Each array is (falls,).
    """

    drops: np.ndarray
    rates: np.ndarray
    before: np.ndarray

    @classmethod
    def of(cls, rates: np.ndarray, before: float) -> "Falls":
        """The falls of rates (steps,) that start from the rate `before`; neighbours together, PARTS at most."""
        drops = -np.diff(rates, prepend=before)
        steps = np.flatnonzero(drops > 0)
        areas = np.concatenate([[0.0], np.cumsum(rates)])[steps]
        columns = np.stack([drops[steps], rates[steps], areas])
        if len(steps) > PARTS:
            starts = np.linspace(0, len(steps), PARTS, endpoint=False).astype(int)
            sums = np.add.reduceat(np.stack([columns[0], *(columns[0] * columns[1:])]), starts, axis=1)
            columns = np.stack([sums[0], *(sums[1:] / sums[0])])
        return cls(*columns)


def annealed(x: Columns, C: float, gamma: float, beta: float) -> np.ndarray:
    """The gain (n,) of all falls so far, per unit of B.

    sum over falls k of (eta_{k-1} - eta_k) (1 - (1 + C eta_k^-gamma (S1(t) - S1(k-1)))^-beta). Reads the columns area,
    S1 by the schedule, and falls, the `Falls` of each point's schedule.
    """
    falls, area, gain = x["falls"], x["area"], np.zeros(len(x["area"]))
    for one in {id(each): each for each in falls}.values():
        rows = np.flatnonzero([each is one for each in falls])
        since = np.maximum(area[rows, None] - one.before, 0.0)
        # To a rate of 0 the whole gain comes as soon as there is an area after it.
        with np.errstate(divide="ignore", invalid="ignore"):
            done = np.where(since > 0, C * one.rates**-gamma * since, 0.0)
        gain[rows] = -np.expm1(-beta * np.log1p(done)) @ one.drops
    return gain


def _basis(x: Columns, psi: np.ndarray) -> np.ndarray:
    alpha, C, gamma, beta = psi
    return np.column_stack([np.ones_like(x["s1"]), power(x["s1"], -alpha), -annealed(x, C, gamma, beta)])


MULTI_POWER = Law(
    name="multi-power",
    equation=r"L = L_0 + A\,S_1^{-\alpha} - B \sum_{k:\,\eta_k \lt \eta_{k-1}} (\eta_{k-1}-\eta_k)"
    r"\left(1-\left(1+C\,\eta_k^{-\gamma}(S_1-S_1^{(k-1)})\right)^{-\beta}\right)",
    source="Luo et al. 2025, arXiv:2503.12811",
    parameters=(
        Parameter("L0", "nats per token"),
        Parameter("A", "nats per token, at S1 = 1"),
        Parameter("B", "nats per token and unit of learning rate"),
        exponent("alpha", "S1"),
        Parameter("C", "per unit of S1, at a rate of 1", 1e-8, 1e4, linear=False, start=(1e-4, 1e2), scale="log"),
        Parameter("gamma", "exponent of the rate", 0.0, 3.0, linear=False, start=(0.0, 1.5)),
        exponent("beta", "the growth of a fall's gain"),
    ),
    columns=("s1",),
    varies={"s1": "alpha"},
    positive=("s1",),
    basis=_basis,
    whole_schedule=True,
)
