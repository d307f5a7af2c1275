"""Domain ratio of least loss when each of few domain tokens is read once (usage 2 of the D-CPT paper)."""

from collections.abc import Callable, Mapping
from math import inf

import numpy as np
import pandas as pd

from fitting.answers.answer import Answer, Status, beyond, estimate, implied, question, unknown_interval
from fitting.answers.grid_minimum import minimum_along
from fitting.fitted import Fit
from fitting.law_average import LawAverage
from fitting.points import LARGEST, PointsError

SMALLEST_RATIO = 1e-3
"""Smallest ratio of the search: a run of a thousand times the domain tokens."""

Columns = Mapping[str, float] | Callable[[np.ndarray], Mapping[str, np.ndarray]]


def limited_data(
    domain: Fit | LawAverage, N: float, domain_tokens: float, *, most_tokens: float = inf, at: Columns | None = None
) -> Answer:
    """The domain ratio r_d of least domain loss when a run of D = domain_tokens / r_d reads each token once.

    Parameters: `domain`, the fit of the domain's validation corpus, of a law that reads r and D; `N` billions of
    parameters; `domain_tokens` billions of tokens; `most_tokens`, billions of tokens that the whole run may have.
    `at`: further columns that the law reads, or a function from D (n,) to them (the areas of a schedule grow with D).

    `values`: domain_ratio, D; for dcpt also replay_below, the domain tokens below which replay helps: r_d < 1
    (exactly, where eta >= 1) when domain_tokens < (B (eta + beta) (1 + eps)^(gamma+1) / (gamma C))^(1/beta).
    `predicted`: domain.

    Raises PointsError for a law that reads no r, or no D and `at` is no function; for impossible values.

    Source: Que et al. 2024, sec. 4.3, usage 2, eq. 50 to 53 (in 53 the exponent gamma + 1 as eq. 52 has it).
    """
    if "r" not in domain.columns:
        raise PointsError(f"the domain law {domain.law} reads no r: fit a law of the mixture ratio, dcpt say")
    if "D" not in domain.columns and not callable(at):
        raise PointsError(f"the domain law {domain.law} reads no D: give at as a function from D to its columns")
    if not domain_tokens > 0 or not np.isfinite(domain_tokens):
        raise PointsError(f"domain_tokens = {domain_tokens:g} must be above 0, in billions of tokens")
    if domain_tokens > LARGEST["D"][0] / 10:
        raise PointsError(f"domain_tokens = {domain_tokens:g} looks like raw tokens: give billions (divide by 1e9)")
    if not N > 0:
        raise PointsError(f"N = {N:g} must be above 0, in billions of parameters")
    if not most_tokens >= domain_tokens:
        raise PointsError(
            f"most_tokens = {most_tokens:g} is below domain_tokens = {domain_tokens:g}: the domain's tokens are not "
            "what is short, use trade_off"
        )
    smallest = max(SMALLEST_RATIO, domain_tokens / most_tokens)
    grid = np.unique(np.r_[np.geomspace(smallest, 1.0, 601), np.linspace(smallest, 1.0, 601)])

    def frame_at(r) -> pd.DataFrame:
        r = np.atleast_1d(np.asarray(r, dtype=float))
        D = domain_tokens / r
        return question(domain, "domain", {"r": r, "N": N, "D": D, **(at(D) if callable(at) else at or {})})

    r_d, end, ratios = minimum_along(domain, frame_at, grid)
    if end == 0:
        status = Status("inside", "domain tokens: a smaller ratio is a longer run with less of the domain")
    elif end == 1:
        status = Status("at bound", "nothing: the domain's tokens suffice, and replay would only lengthen the run")
    elif domain_tokens / most_tokens > SMALLEST_RATIO:
        message = f"most_tokens = {most_tokens:g}: a longer run with a smaller ratio would do better"
        status = Status("limited", message)
    else:
        message = f"nothing within reach: the loss still falls at a ratio of {SMALLEST_RATIO:g}, give most_tokens"
        status = Status("never", message)

    values = {"domain_ratio": estimate(r_d, ratios), "D": estimate(domain_tokens / r_d, domain_tokens / ratios)}
    if domain.law in ("dcpt", "dcpt-convex"):
        drawn = np.array([replay_below(params) for params in domain.param_draws])
        values["replay_below"] = estimate(replay_below(domain.params), drawn)
    there = frame_at(r_d)
    warnings = beyond("domain", domain, there) + unknown_interval("domain", domain)
    return Answer(values, {"domain": implied(domain, there)}, status, warnings)


def replay_below(params: Mapping[str, float]) -> float:
    """Domain tokens (billions) below which a D-CPT law gains by replay; infinite where C = 0.

    >>> round(replay_below({"B": 0.1, "C": 0.2, "beta": 0.5, "gamma": 0.5, "eta": 1.5, "eps": 0.0}), 6)
    4.0
    """
    B, C, beta, gamma = (params[name] for name in ("B", "C", "beta", "gamma"))
    if C == 0:
        return inf if B else 0.0
    return float((B * (params["eta"] + beta) * (1 + params["eps"]) ** (gamma + 1) / (gamma * C)) ** (1 / beta))
