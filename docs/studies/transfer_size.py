"""Which term of transfer-anchored depends on the size of the model."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

import fitting
from docs.studies.transfer_points import Series
from docs.studies.transfer_questions import ANCHORED, base, fit_to, predicted

FACTORS = ("C2", "C", "G", "E")


@dataclass(frozen=True)
class Exponent:
    """nu of a factor N^nu on a term: its estimate, 90% profile interval and whether that is closed within bounds;
    `objective`, of the fit, relative to that without the factor."""

    term: str
    value: float
    low: float
    high: float
    known: bool
    objective: float


def exponents(series: Series) -> Iterator[Exponent]:
    """nu of each term alone, then of C and G together, from all points of a series."""
    everything = series.points["loss"] > 0
    plain = fit_to(series, ANCHORED, everything).objective
    laws = {f"{ANCHORED}, {term} N^nu": {term: "nu"} for term in FACTORS}
    laws["transfer-anchored, C N^nu_C and G N^nu_G"] = {"C, beside G": "nu_C", "G, beside C": "nu_G"}
    for law, names in laws.items():
        fit = fit_to(series, law, everything)
        bounds = {p.name: (p.low, p.high) for p in fit.equation.parameters}
        for term, name in names.items():
            found = fit.profile(name)
            low, high = found.interval()
            known = all(found.closed) and bounds[name][0] < low and high < bounds[name][1]
            yield Exponent(term, fit.params[name], low, high, known, fit.objective / plain)


def gains_without_shift(series: Series) -> Iterator[tuple[float, float]]:
    """(N, loss before - loss at the end) of the base runs on the corpus of pre-training alone.

    At r = rho the term of C is 0 whatever the size: what grows with N here is no shift.
    """
    p = series.points[base(series.points) & (series.points["r"] == 1.0)]
    for N, run in p.groupby("N"):
        last = run.sort_values("step").iloc[-1]
        yield float(N), float(last["loss_before"] - last["loss"])  # pyright: ignore[reportArgumentType]


def late_bias(series: Series, law: str) -> Iterator[tuple[float, float, float]]:
    """(N, mean relative error, its standard error over runs) in the second half of the base runs, all points fitted."""
    fit = fit_to(series, law, series.points["loss"] > 0)
    p = series.points[base(series.points) & (series.points["step"] > 180)]
    by_run = p.assign(bias=predicted(series, fit, p) / p["loss"] - 1).groupby(["N", "run"])["bias"].mean()
    for N, bias in by_run.groupby("N"):
        yield float(N), float(bias.mean()), float(bias.std(ddof=1) / np.sqrt(len(bias)))  # pyright: ignore


def with_profiles(series: Series, seed: int = 0) -> fitting.Fit:
    """transfer-anchored fitted to all points, with profiles and enough of a bootstrap for `Fit.identified`."""
    return fit_to(series, ANCHORED, series.points["loss"] > 0, bootstrap=20, workers=1, seed=seed)
