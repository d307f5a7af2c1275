"""Figure 18 of the learning-dynamics paper: a model of which nothing but its weights is known."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import product

import numpy as np
import pandas as pd

from fitting import PointsError
from pipeline.paper_tables.dcpt.points import scores
from pipeline.paper_tables.dynamics.fits import ACCURATE
from pipeline.paper_tables.dynamics.points import CORPORA, Dynamics, fit_to, predicted, relative_error
from pipeline.paper_tables.verdict import HOLDS, NOT_HERE

FEWEST = 3
"""Runs of an open model that its law is fitted to."""
_HALF = ", first half"
_PAST = {"s1_pretrain": 1.0, "s2_pretrain": 0.0}
"""Of an open model: S1 is a parameter, whatever stands there, and S2 one constant with L0."""
Predict = Callable[[pd.DataFrame], np.ndarray]


def open_model(given: Dynamics) -> pd.DataFrame:
    """Eq. 4 of an open model, beside that of the same runs with their past: law, model, corpus, metric, value.

    Open: S1 of pre-training is one more parameter, its last rate is taken as 0 and its points are not seen. Of a study
    with pre-training the model with the least loss potential plays the open one.

    Source: Wang et al. 2025, sec. 6, app. G.
    """
    runs, rows = _as_open(given), []
    for (model, own), corpus in product(runs.groupby("model", sort=False), CORPORA):
        points = given.on(corpus, own, pretraining=False)
        half = points["step"] <= points["run"].map(given.steps) / 2
        ways = {"open": _open, **({"full": _full} if own["parent"].iloc[0] else {})}
        for (name, way), whole in product(ways.items(), (True, False)):
            judged = points if whole else points[~half]
            losses = way(given, own, corpus, points if whole else points[half])(judged)
            found = {
                "r2": scores(judged["loss"].to_numpy(float), losses)["r2"],
                "error": round(relative_error(judged["loss"], losses), 5),
            }
            rows += [(name if whole else name + _HALF, model, corpus, *one) for one in found.items()]
    table = pd.DataFrame(rows, columns=["law", "model", "corpus", "metric", "value"])
    parents = ", ".join(parent for parent in dict.fromkeys(runs["parent"]) if parent)
    told = f"The open model is {parents}, whose past only the full fit knows. " if parents else ""
    table.attrs["note"] = f"{told}First half: fitted to the first half of the steps, judged on the rest."
    return table


def known_enough(cells: pd.DataFrame) -> tuple[str, str]:
    """Whether an open model's curves are predicted without its past."""
    at = cells[cells["metric"] == "error"].groupby("law")["ours"].max()
    half = float(at["open" + _HALF])
    beside = f", {at['full' + _HALF]:.2%} with it" if "full" + _HALF in at else ""
    why = f"Without its past the second half of the steps is missed by {half:.2%} at most{beside}"
    return (HOLDS if half <= ACCURATE else NOT_HERE), f"{why} (mean over a corpus; {ACCURATE:.0%} is asked)."


def _as_open(given: Dynamics) -> pd.DataFrame:
    """Runs with the most of the new corpus that continue one model of each size: the most annealed, or the open one."""
    own = given.runs[np.isclose(given.runs["share"], given.runs["share"].max())]
    own = own[own.groupby(["model", "parent"])["run"].transform("size") >= FEWEST]
    if own.empty:
        raise PointsError(f"no model is continued under {FEWEST} schedules or more")
    return own[own["potential"] == own.groupby("model")["potential"].transform("min")]


def _open(given: Dynamics, runs: pd.DataFrame, corpus: str, seen: pd.DataFrame) -> Predict:
    rates = {run: dataclasses.replace(given.schedules[run], before=0.0, pretrain=None) for run in runs["run"]}
    blind = dataclasses.replace(given, schedules=rates)
    found = fit_to(blind, seen.assign(**_PAST), "dynamics", unknown=["s1_pretrain"], fix={"C1": 0.0})
    return lambda points: predicted(found, points.assign(**_PAST), rates)


def _full(given: Dynamics, runs: pd.DataFrame, corpus: str, seen: pd.DataFrame) -> Predict:
    both = given.on(corpus, runs)
    found = fit_to(given, pd.concat([both[both["phase"] == "pretrain"], seen], ignore_index=True), "dynamics")
    return lambda points: predicted(found, points, given.schedules)
