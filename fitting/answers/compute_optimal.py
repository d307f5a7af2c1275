"""Model size and tokens of least loss for a compute budget (usage 3 of the D-CPT paper)."""

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from fitting.answers.answer import Answer, Status, beyond, estimate, implied, question, unknown_interval
from fitting.answers.grid_minimum import minimum_along
from fitting.fitted import Fit
from fitting.law_average import LawAverage
from fitting.points import LARGEST, PointsError

SMALLEST = 1e-6
"""Smallest N and D of the search, in billions: a thousand parameters, a thousand tokens."""
LEAST_FLOPS = 1e9

Columns = Mapping[str, float] | Callable[[np.ndarray, np.ndarray], Mapping[str, np.ndarray]]


def compute_optimal(
    fit: Fit | LawAverage,
    flops: float,
    ratio: float | None = None,
    *,
    at: Columns | None = None,
    sizes: tuple[float, float] | None = None,
) -> Answer:
    """The N and D of least loss with 6 N D = flops: in closed form where the law at a ratio is Chinchilla's.

    Parameters: `fit`, of a law that reads N and D; `flops`, raw (5e19); `ratio`, the ratio r of the corpus of the fit
    in the mixture, for a law that reads it; `at`, further columns that the law reads, or a function from N and D (n,)
    to them, r among them. `sizes`: least and greatest N that may be had; the optimum is then sought between them.

    `values`: N (billions of parameters), D (billions of tokens); for chinchilla and dcpt also G, a, b of
    N = G (C/6)^a, D = (C/6)^b / G, and E, B: the law's E0 = E + C / (r + eps)^gamma and B0 = B r^eta at the ratio.
    `predicted`: loss.

    Raises PointsError for a law without N or D, a ratio that is missing or not read, impossible values, and where
    the law says that size, or tokens, do not matter.

    Source: Que et al. 2024, eq. 15, 16 and app. G.3, eq. 34 to 37.
    """
    columns = fit.columns
    lacking = [name for name in ("N", "D") if name not in columns]
    if lacking and not callable(at):
        raise PointsError(f"the law {fit.law} reads no {' and no '.join(lacking)}: fit chinchilla or dcpt")
    if not np.isfinite(flops) or flops < LEAST_FLOPS:
        raise PointsError(f"flops = {flops:g} is not allowed: give raw FLOPs of training, 6 N D, as 5e19")
    if "r" in columns and ratio is None and not callable(at):
        raise PointsError(f"the law {fit.law} reads r: give ratio, that of its corpus in the mixture")
    if "r" not in columns and ratio is not None:
        raise PointsError(f"ratio = {ratio:g} was given, and the law {fit.law} reads no r: leave it out")
    if ratio is not None and not 0 <= ratio <= 1:
        raise PointsError(f"ratio = {ratio:g} is outside [0, 1]")
    if sizes is not None and not 0 < sizes[0] < sizes[1]:
        raise PointsError(f"sizes = {sizes} is not allowed: the least and the greatest N, in billions of parameters")
    budget = flops / 6e18
    fixed = {} if ratio is None else {"r": ratio}

    def frame_at(N) -> pd.DataFrame:
        N = np.atleast_1d(np.asarray(N, dtype=float))
        further = at(N, budget / N) if callable(at) else at or {}
        return question(fit, "fitted", {**fixed, **further, "N": N, "D": budget / N})

    values, status = {}, Status("inside", f"compute: 6 N D = {flops:g} FLOPs")
    if fit.law in AT_A_RATIO and sizes is None and not callable(at):
        shape = closed_form(AT_A_RATIO[fit.law](fit.params, ratio), budget)
        if not 0 < shape["N"] < np.inf:
            idle = "size" if shape["N"] == 0 else "the number of tokens"
            raise PointsError(f"this fit of {fit.law} says that {idle} does not matter, so no N is best: fit more runs")
        shapes = [closed_form(AT_A_RATIO[fit.law](params, ratio), budget) for params in fit.param_draws]
        for name, value in shape.items():
            values[name] = estimate(value, np.array([one[name] for one in shapes]))
        N = shape["N"]
        for name, value in (("N", N), ("D", budget / N)):
            if value > LARGEST[name][0]:
                found = f"by this fit the best {name} is {value:.3g} billion, which is impossible"
                raise PointsError(f"{found}: fit more runs")
    else:
        ends = sizes or (max(SMALLEST, budget / LARGEST["D"][0]), min(LARGEST["N"][0], budget / SMALLEST))
        grid = np.linspace(np.log(ends[0]), np.log(ends[1]), 801)
        log_N, end, drawn = minimum_along(fit, lambda log_N: frame_at(np.exp(log_N)), grid)
        if end and sizes:
            side = "greatest size: a larger one" if end > 0 else "least size: a smaller one, for longer,"
            status = Status("at bound", f"the {side} would do better")
        elif end:
            status = Status("never", f"the search ends at N = {np.exp(log_N):.3g}: this fit has no best size")
        N, best = float(np.exp(log_N)), np.exp(drawn)
        values = {"N": estimate(N, best), "D": estimate(budget / N, budget / best)}
    there = frame_at(N)
    warnings = beyond("fit", fit, there) + unknown_interval("fit", fit)
    return Answer(values, {"loss": implied(fit, there)}, status, warnings)


def closed_form(chinchilla: Mapping[str, float], budget: float) -> dict[str, float]:
    """N, D, G, a, b, E, B of a Chinchilla law (E, A, B, alpha, beta) at N D = budget, in billions times billions.

    >>> found = closed_form({"E": 1.0, "A": 4.0, "B": 1.0, "alpha": 0.5, "beta": 0.5}, 1.0)
    >>> found["N"], found["D"]
    (4.0, 0.25)
    """
    alpha, beta = chinchilla["alpha"], chinchilla["beta"]
    a, b = beta / (alpha + beta), alpha / (alpha + beta)
    with np.errstate(divide="ignore", invalid="ignore"):
        G = np.divide(alpha * chinchilla["A"], beta * chinchilla["B"]) ** (1 / (alpha + beta))
        N, D = G * budget**a, budget**b / G
    return {"N": float(N), "D": float(D), "G": float(G), "a": a, "b": b, "E": chinchilla["E"], "B": chinchilla["B"]}


def _dcpt(params: Mapping[str, float], r: float | None) -> dict[str, float]:
    assert r is not None
    E = params["E"] + params["C"] / (r + params["eps"]) ** params["gamma"]
    return {**params, "E": E, "B": params["B"] * r ** params["eta"]}


AT_A_RATIO = {"chinchilla": lambda params, r: dict(params), "dcpt": _dcpt, "dcpt-convex": _dcpt}
"""Law -> the Chinchilla law that it is at one ratio."""
