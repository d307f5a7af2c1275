"""What each law is asked that it has not seen, and by how much it misses, run by run."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

import fitting
from docs.studies.transfer_points import FAST, SLOW, Series
from fitting.laws import LAWS

Mask = Callable[[pd.DataFrame], pd.Series]

ANCHORED = "transfer-anchored"
COMPARED = (
    *(ANCHORED, "transfer-rate", "transfer-saturating", "transfer"),
    *("transfer-anchored, C N^nu", "transfer-anchored, G N^nu", "transfer-grown"),
    *("dcpt", "dcpt-free", "dcpt-free-anchored", "dcpt-areas"),
    *("dynamics-size", "dynamics-replay", "dynamics-replay-size", "dynamics-replay-anchored"),
)
JOINED = ("dynamics-size", "dynamics-replay", "dynamics-replay-size")
"""Laws that take pre-training and what follows as one curve: they are given the points of pre-training too."""
BLIND = {
    "dynamics-size": ("shares between", "little domain", "little general", "no domain", "no general"),
    "dynamics-replay": ("a larger size", "a larger size for longer"),
}
"""Law -> what it is not asked: eq. 7 reads no share, eq. 8 no size."""
OWN_GROUND = ("dcpt", "dcpt-free", "dcpt-anchored", "dcpt-free-anchored")
"""Laws that are fitted once more to the points that they are meant for: from step 60 on, own share .1 or more."""


def base(p: pd.DataFrame) -> pd.Series:
    """Cosine from 1e-3 over 360 steps: the one schedule that all sizes and shares were run with."""
    return (p["schedule"] == "cos") & (p["peak"] == FAST) & (p["steps"] == 360)


def slow(p: pd.DataFrame) -> pd.Series:
    """Cosine from 3e-4 over 360 steps."""
    return (p["schedule"] == "cos") & (p["peak"] == SLOW) & (p["steps"] == 360)


def largest(p: pd.DataFrame) -> pd.Series:
    """Points of the largest size."""
    return p["N"] == p["N"].max()


def among(*shares: float) -> Mask:
    """Points of the base schedule whose share of the domain is one of these."""
    return lambda p: base(p) & p["share"].isin(shares)


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
    "shares between": (among(0.1, 0.5, 0.9), among(0.25, 0.75)),
    "little domain": (among(0.25, 0.5, 0.75, 0.9), among(0.02, 0.03, 0.05, 0.1)),
    "little general": (among(0.1, 0.25, 0.5, 0.75), among(0.9)),
    "no domain": (among(*INTERIOR), among(0.0)),
    "no general": (among(*INTERIOR), among(1.0)),
}
"""Question -> what is fitted, what is judged. A series without runs for one is not asked it."""


@dataclass(frozen=True, eq=False)
class Missed:
    """A law's answer: `errors`, a row a run, with the columns error and bias (relative); `points`, how many;
    `residuals` (points,), nats per token."""

    errors: pd.DataFrame
    points: int
    residuals: np.ndarray


def asked(series: Series) -> list[str]:
    """The questions that the runs of a series can judge: something to fit, of two shares or more, and to hold out."""
    p = series.points
    return [
        name
        for name, (fitted, judged) in QUESTIONS.items()
        if p.loc[fitted(p), "share"].nunique() > 1 and judged(p).any()
    ]


def fit_to(series: Series, law: str, rows: pd.Series, **options) -> fitting.Fit:
    """A law fitted to some of the points of a series; pre-training of all sizes is added for laws that join the two."""
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


def missed(series: Series, law: str, question: str) -> Missed:
    """Fit on what the question leaves, predict the rest."""
    fitted, judged = QUESTIONS[question]
    p = series.points
    return judge(series, fit_to(series, law, fitted(p)), p[judged(p)])


def missed_on_own_ground(series: Series, law: str, question: str) -> Missed | None:
    """The same on points from step 60 on with an own share of .1 or more; None where none is left to judge.

    Laws of `OWN_GROUND` are fitted to such points only, the others to all as before.
    """
    fitted, judged = (mask(series.points) for mask in QUESTIONS[question])
    own = (series.points["step"] >= 60) & (series.points["r"] >= 0.1 - 1e-9)
    if not (judged & own).any():
        return None
    fit = fit_to(series, law, fitted & own if law in OWN_GROUND else fitted)
    return judge(series, fit, series.points[judged & own])


def judge(series: Series, fit: fitting.Fit, points: pd.DataFrame) -> Missed:
    """By how much a fit misses points, run by run."""
    loss = points["loss"].to_numpy()
    residuals = predicted(series, fit, points) - loss
    rows = points.assign(bias=residuals / loss, error=np.abs(residuals) / loss)
    return Missed(rows.groupby("run")[["error", "bias"]].mean(), len(rows), residuals)


def parameters_of(law: str) -> int:
    """Parameters of a law and lambda, where it reads S2."""
    return len(LAWS[law].parameters) + ("s2" in LAWS[law].columns)
