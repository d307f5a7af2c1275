"""The inflection ratio: that of a corpus below which more training raises the loss on it."""

from collections.abc import Mapping
from dataclasses import replace
from math import inf

import numpy as np
import pandas as pd

from fitting.answers.answer import Answer, Estimate, Status, beyond, estimate, question, unknown_interval
from fitting.fitted import Fit
from fitting.laws.chinchilla import CHINCHILLA
from fitting.points import PointsError, columns_of
from fitting.solver.multi_start import VarPro
from fitting.solver.problem import Problem
from fitting.uncertainty.bootstrap import resample
from fitting.uncertainty.sandwich import sandwich

SIGNED = replace(
    CHINCHILLA,
    name="dcpt at one ratio",
    parameters=tuple(replace(p, low=-inf) if p.name == "B" else p for p in CHINCHILLA.parameters),
)
"""At one ratio the D-CPT law is Chinchilla's (eq. 34 to 37); here B may be negative, as near 0 it is (app. I.3)."""


def inflection_ratio(points: pd.DataFrame, *, bootstrap: int = 200) -> Answer:
    """The ratio r_i at which dL/dD changes sign: below it the loss on the corpus rises with training, above it falls.

    At each ratio, from the smallest on, the D-CPT law with B of either sign is fitted to the points of that ratio
    alone, until the loss falls; r_i is where the straight line between the slopes dL/dlog D of the last two is 0.

    Parameters: `points`, as for `fit` with "dcpt": N, D, r, loss, run; r = 0 may be among them, D = 0 is left out.
    `bootstrap`: as in `fit`, over runs.

    `values`: inflection_ratio (its interval over the draws; 0 where the loss rises at no ratio), below and above: the
    two measured ratios that it lies between. `predicted`: none.

    Raises PointsError for points that cannot be used, and where the loss rises at every ratio.

    Source: Que et al. 2024, app. I.3, which leaves finding r_i open; the method is ours. One signed fit over all small
    ratios and an ordinary one over the rest put r_i up to 0.02 too high where this was within 0.003: the law's r^eta
    makes the rise largest just below r_i, where in truth it ends.
    """
    x = columns_of(points, ["N", "D", "r", "loss"])
    if "run" not in points.columns:
        raise PointsError("missing column: run, which names the run of each point")
    usable = x["D"] > 0
    x, runs = {name: values[usable] for name, values in x.items()}, points["run"].to_numpy()[usable]
    ratios = np.unique(x["r"])
    if len(ratios) < 2:
        raise PointsError("the points have one ratio only: two or more are needed to see where the slope turns")
    D, rng = float(np.exp(np.log(x["D"]).mean())), np.random.default_rng(0)
    place = next((i for i, r in enumerate(ratios) if _slope(x, runs, r, D, 0, rng)[0] <= 0), None)
    if place is None:
        raise PointsError(
            f"the loss rises with D up to r = {ratios[-1]:g}, the largest ratio of the points: add runs at larger ones"
        )
    if place == 0:
        below, above = (Estimate(r, r, r) for r in (0.0, ratios[0]))
        values = {"inflection_ratio": Estimate(0.0, 0.0, ratios[0]), "below": below, "above": above}
        message = f"nothing: the loss falls with D at every ratio, from {ratios[0]:g} on"
        return Answer(values, {}, Status("at bound", message), [])
    below, above = float(ratios[place - 1]), float(ratios[place])
    rise, fall = (_slope(x, runs, r, D, bootstrap, rng) for r in (below, above))
    r_i, drawn = (_crossing(below, above, *pair) for pair in zip(rise, fall, strict=True))
    values = {"inflection_ratio": estimate(float(r_i), drawn)}
    values |= {"below": Estimate(below, below, below), "above": Estimate(above, above, above)}
    warnings = [f"no run between r = {below:g} and {above:g}: r_i is a linear interpolation between them"]
    return Answer(values, {}, Status("inside", "the slope dL/dD changes sign"), warnings)


def transfer_inflection(fit: Fit, s1: float, *, at: Mapping[str, float] | None = None) -> Answer:
    """The inflection ratio of a transfer-anchored fit after a forward area s1, in closed form.

    Parameters: `fit`; `s1`, sum of learning rates, 0 for the first steps; `at`, rho and s1_pretrain, where they are not
    parameters of the fit. `values`: inflection_ratio, the ratio r of the corpus below which its loss still rises at
    s1, while the rate does not change; 0 where it falls at any ratio. `predicted`: none.

    Raises PointsError for another law, a negative s1 and missing columns.

    Source: docs/laws.md; `inflection_ratio_at`.
    """
    if fit.law != "transfer-anchored":
        raise PointsError(f"the law {fit.law} has no closed form of the inflection ratio: fit transfer-anchored")
    if not s1 >= 0:
        raise PointsError(f"s1 = {s1:g} is not allowed: it must be 0 or more, a sum of learning rates")
    neutral = {"loss_before": 1.0, "r": 0.5, "s2": 0.0}
    frame = question(fit, "fitted", {**neutral, "s1": s1, **(at or {})}).drop(columns=list(neutral))
    given = {name: float(frame[name].iloc[0]) for name in frame.columns}

    def ratio_of(params: Mapping[str, float]) -> float:
        known = {**given, **{name: params[name] for name in ("rho", "s1_pretrain") if name in params}}
        return float(np.clip(inflection_ratio_at(params, s1, known["rho"], known["s1_pretrain"]), 0.0, 1.0))

    drawn = np.array([ratio_of(params) for params in fit.param_draws])
    r_i = ratio_of(fit.params)
    status = Status("inside", "the slope dL/dS1 changes sign")
    if not r_i > 0:
        status = Status("at bound", "nothing: the loss falls at any ratio")
    warnings = beyond("fit", fit, frame.assign(r=r_i)) + unknown_interval("fit", fit)
    return Answer({"inflection_ratio": estimate(r_i, drawn)}, {}, status, warnings)


def inflection_ratio_at(params: Mapping[str, float], s1: float, rho: float, s1_pretrain: float) -> float:
    """The ratio r at which dL/dS1 = 0: below it the loss of the corpus rises with training, above it falls.

    r = (rho + eps) exp(-G (1 + E S1) / (C E (S1_pretrain + S1))) - eps, for rates that do not change (S2 apart);
    below 0 where the loss falls at any ratio. Growing S1 takes it from where the loss rises at first to
    `ratio_of_no_return`.

    >>> p = {"C": 1.0, "G": 1.0, "eps": 0.0, "E": 1.0}
    >>> round(inflection_ratio_at(p, 0.0, 1.0, 1 / np.log(2)), 6)
    0.5
    """
    C, G, eps, E = (params[name] for name in ("C", "G", "eps", "E"))
    if C == 0:
        return -eps
    return float((rho + eps) * np.exp(-G * (1 + E * s1) / (C * E * (s1_pretrain + s1))) - eps)


def _slope(
    x: dict[str, np.ndarray], runs: np.ndarray, r: float, D: float, bootstrap: int, rng
) -> tuple[float, np.ndarray]:
    """dL/dlog D at one ratio, and the same by each bootstrap draw."""
    # sorted by run, as the search looks at every so many-th point
    rows = np.flatnonzero(x["r"] == r)
    rows = rows[np.argsort(pd.factorize(runs[rows])[0], kind="stable")]
    own, numbers = {name: x[name][rows] for name in ("N", "D")}, pd.factorize(runs[rows])[0]
    if len(rows) < len(SIGNED.parameters) or len(np.unique(own["D"])) < 2:
        raise PointsError(
            f"{len(rows)} points at r = {r:g} are too few: five, at two or more D, are needed at each ratio"
        )
    problem = Problem(SIGNED, own, x["loss"][rows], np.ones(len(rows)), {})
    minimum = VarPro().solve(problem)
    problem, theta = minimum.problem, minimum.theta
    found = problem.parameters(theta)

    def slope(p: Mapping[str, float]) -> float:
        return -p["beta"] * p["B"] * D ** -p["beta"]

    drawn = np.zeros((0, len(found)))
    if bootstrap:
        drawn = resample(problem, theta, sandwich(problem, theta, numbers), numbers, bootstrap, rng, workers=1)
    return slope(found), np.array([slope(dict(zip(found, draw, strict=True))) for draw in drawn])


def _crossing(below: float, above: float, rise, fall) -> np.ndarray:
    """Where the line through (below, rise) and (above, fall) is 0, in [0, 1]; an end of it for a line that rises."""
    rise, fall = np.asarray(rise, dtype=float), np.asarray(fall, dtype=float)
    part = np.divide(rise, rise - fall, out=np.where(rise > 0, np.inf, -np.inf), where=rise > fall)
    return np.clip(below + part * (above - below), 0.0, 1.0)
