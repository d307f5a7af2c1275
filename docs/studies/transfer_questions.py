"""The held-out questions of the study, and the errors of each law on them, run by run."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

import fitting
from docs.studies.transfer_forms import FORMS
from docs.studies.transfer_points import FAST, SLOW, Series
from fitting.laws import LAWS

Mask = Callable[[pd.DataFrame], pd.Series]

ANCHORED = "transfer-anchored"
COMPARED = (
    *(ANCHORED, "transfer-rate", "transfer-saturating", "transfer"),
    *("transfer-anchored, C N^nu", "transfer-anchored, G N^nu", "transfer-grown"),
    *("dcpt", "dcpt-free", "dcpt-free-anchored", "dcpt-areas"),
    *("dynamics-size", "dynamics-replay", "dynamics-replay-size", "dynamics-replay-anchored"),
    *(law.name for law in FORMS),
)
JOINED = ("dynamics-size", "dynamics-replay", "dynamics-replay-size")
"""Laws that take pre-training and what follows as one curve: they are given the points of pre-training too."""
BLIND = {
    "dynamics-size": ("ratios between", "little domain", "little general", "no domain", "no general"),
    "dynamics-replay": ("a larger size", "a larger size for longer"),
}
"""Law -> questions that it cannot answer: eq. 7 has no ratio, eq. 8 no size."""
SETTLED = ("dcpt", "dcpt-free", "dcpt-anchored", "dcpt-free-anchored")
"""Laws that are also fitted to settled points: from step 60 on, at a ratio of .1 or more of the corpus."""


def base(p: pd.DataFrame) -> pd.Series:
    """Cosine from 1e-3 over 360 steps: the one schedule of all sizes and ratios."""
    return (p["schedule"] == "cos") & (p["peak"] == FAST) & (p["steps"] == 360)


def slow(p: pd.DataFrame) -> pd.Series:
    """Cosine from 3e-4 over 360 steps."""
    return (p["schedule"] == "cos") & (p["peak"] == SLOW) & (p["steps"] == 360)


def largest(p: pd.DataFrame) -> pd.Series:
    """Points of the largest size."""
    return p["N"] == p["N"].max()


def among(*ratios: float) -> Mask:
    """Points of the base schedule at these domain ratios."""
    return lambda p: base(p) & p["share"].isin(ratios)


INTERIOR = (0.1, 0.25, 0.5, 0.75, 0.9)
QUESTIONS: dict[str, tuple[Mask, Mask]] = {
    "a larger size": (lambda p: base(p) & ~largest(p), lambda p: base(p) & largest(p)),
    "a larger size for longer": (
        lambda p: base(p) & ~largest(p) & (p["step"] <= 180),
        lambda p: base(p) & largest(p) & (p["step"] > 180),
    ),
    "360 steps to 800": (lambda p: p["steps"] == 360, lambda p: (p["steps"] == 800) & (p["step"] > 360)),
    "peak 1e-3 to 3e-4": (base, slow),
    "peak 3e-4 to 1e-3": (slow, among(*INTERIOR)),
    "cosine to constant": (base, lambda p: p["schedule"] == "const"),
    "cosine to WSD": (base, lambda p: p["schedule"] == "wsd"),
    "ratios between": (among(0.1, 0.5, 0.9), among(0.25, 0.75)),
    "little domain": (among(0.25, 0.5, 0.75, 0.9), among(0.02, 0.03, 0.05, 0.1)),
    "little general": (among(0.1, 0.25, 0.5, 0.75), among(0.9)),
    "no domain": (among(*INTERIOR), among(0.0)),
    "no general": (among(*INTERIOR), among(1.0)),
}
"""Question -> the points that are fitted, the points that are judged. A series without runs for it leaves it out."""


@dataclass(frozen=True, eq=False)
class Errors:
    """Errors of a law: `errors`, a row per run, with the columns error and bias (relative); `points`, their number;
    `residuals` (points,), nats per token."""

    errors: pd.DataFrame
    points: int
    residuals: np.ndarray


def questions_of(series: Series) -> list[str]:
    """The questions that a series has runs for: two ratios or more to fit, and runs to hold out."""
    p = series.points
    return [
        name
        for name, (fitted, judged) in QUESTIONS.items()
        if p.loc[fitted(p), "share"].nunique() > 1 and judged(p).any()
    ]


def fit_to(series: Series, law: str, rows: pd.Series, **options) -> fitting.Fit:
    """A law fitted to some of the points of a series; with pre-training of all sizes for laws of both phases."""
    points = series.points[rows]
    if law in JOINED:
        points = pd.concat([points, series.pretraining], ignore_index=True)
    return fitting.fit(points, named(law, series), schedules=series.schedules, **{"bootstrap": 0, **options})


def named(law: str, series: Series) -> str:
    """Eq. 8 has one form for the corpus of pre-training and one for the new one."""
    return "dynamics-replay-domain" if law == "dynamics-replay" and series.kind == "domain" else law


def predicted(series: Series, fit: fitting.Fit, points: pd.DataFrame) -> np.ndarray:
    """Losses (n,) of a fit at points of its series, with S2 at the fit's own lambda."""
    decay = fit.params.get("lambda")
    return fit.predict(points if decay is None else fitting.with_areas(points, series.schedules, decay))


def held_out_errors(series: Series, law: str, question: str) -> Errors:
    """Errors on the points that a question holds out."""
    fitted, judged = QUESTIONS[question]
    p = series.points
    return errors_on(series, fit_to(series, law, fitted(p)), p[judged(p)])


def settled_errors(series: Series, law: str, question: str) -> Errors | None:
    """The same on points from step 60 on at a ratio of .1 or more; None where there are none.

    Laws of `SETTLED` are fitted to such points only, the others to all as before.
    """
    fitted, judged = (mask(series.points) for mask in QUESTIONS[question])
    own = (series.points["step"] >= 60) & (series.points["r"] >= 0.1 - 1e-9)
    if not (judged & own).any():
        return None
    fit = fit_to(series, law, fitted & own if law in SETTLED else fitted)
    return errors_on(series, fit, series.points[judged & own])


def errors_on(series: Series, fit: fitting.Fit, points: pd.DataFrame) -> Errors:
    """Errors of a fit on points, run by run."""
    loss = points["loss"].to_numpy()
    residuals = predicted(series, fit, points) - loss
    rows = points.assign(bias=residuals / loss, error=np.abs(residuals) / loss)
    return Errors(rows.groupby("run")[["error", "bias"]].mean(), len(rows), residuals)


def parameters_of(law: str) -> int:
    """Parameters of a law and lambda, where it reads S2."""
    return len(LAWS[law].parameters) + ("s2" in LAWS[law].columns)
