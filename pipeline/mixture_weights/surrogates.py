"""Laws of the loss of one corpus at a mixture of many, and their errors on held-out mixtures."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from fitting import Fit, Longer, PointsError, areas, fit
from fitting.schedule import Schedules
from pipeline.mixture_weights.random_mixtures import last_points
from training.schedule import learning_rates
from training.spec import RunSpec

SURROGATES = ("data-mixing", "dcpt", "transfer-anchored")
"""Inputs of data-mixing: the weights of all corpora (run length by LENGTH); of dcpt: the weight of the corpus, and
tokens; of transfer-anchored: the weight of the corpus, the schedule and the loss before CPT."""
LENGTH = "transfer-anchored"
"""The law that scales a loss of data-mixing, which has no input for run length, to another length."""
ONE_SIZE = {"A": 0.0, "alpha": 0.3}
"""Parameters of dcpt that are not identified with one model size: the size term is a part of E."""
HELD_OUT = 3
"""Every third mixture is held out."""
EARLIER = 2 / 3
"""Fraction of the steps that the split `later` is fitted to."""


def fit_surrogate(
    law: str, points: pd.DataFrame, schedules: Schedules, from_step: int = 0, bootstrap: int = 0, seed: int = 0
) -> Fit:
    """Fit a surrogate to the losses of one corpus.

    Args:
        law: one of SURROGATES.
        points: of runs at random mixtures of one length from one model; data-mixing reads the last of each run.
        schedules: run -> its learning rates.
        from_step: first step that is fitted, at least 1.
        bootstrap: refits, for intervals.
        seed: of the fit.

    Raises:
        PointsError: too few runs, or too few evaluations of each.
    """
    if law == "data-mixing":
        return fit(last_points(points), law, bootstrap=bootstrap, seed=seed)
    points = points[points["step"] >= max(from_step, 1)]
    if law == "dcpt":
        return fit(points, law, fix=ONE_SIZE, bootstrap=bootstrap, seed=seed)
    decay = fit(points, law, schedules=schedules, bootstrap=0, seed=seed).params["lambda"]
    # One lambda for all refits, so that the end of a run has one s2.
    return fit(points, law, schedules=schedules, fix={"lambda": decay}, bootstrap=bootstrap, seed=seed)


def end_columns(law: Fit, points: pd.DataFrame, spec: RunSpec, step: int | None = None) -> dict[str, float]:
    """The inputs of a surrogate other than weights, at the end of a run, or after a step of it.

    Args:
        law: the fit.
        points: of one corpus.
        spec: of the run; its mixture is not read.
        step: None for the last.
    """
    step = step or spec.steps
    rates = learning_rates(spec.schedule, spec.steps, spec.learning_rate_before)
    s1, s2 = areas(rates, law.constants.get("lambda", 0.999), spec.learning_rate_before)
    known = {name: float(points[name].mean()) for name in ("N", "loss_before", "rho", "s1_pretrain")}
    known |= {"D": step * spec.tokens_per_step / 1e9, "s1": float(s1[step - 1]), "s2": float(s2[step - 1])}
    return {name: value for name, value in known.items() if name in law.equation.columns}


def fit_length(
    points: pd.DataFrame,
    schedules: Schedules,
    spec: RunSpec,
    target: RunSpec,
    from_step: int = 0,
    bootstrap: int = 0,
    seed: int = 0,
    step: int | None = None,
) -> Longer:
    """Fit the factor by which a corpus's loss changes from a step of the runs (None: the last) to the target's end.

    Args and errors as in `fit_surrogate`; `spec` is that of the runs.
    """
    law = fit_surrogate(LENGTH, points, schedules, from_step, bootstrap, seed)
    return Longer(law, end_columns(law, points, spec, step), end_columns(law, points, target))


def held_out(
    points: pd.DataFrame, spec: RunSpec, schedules: Schedules, from_step: dict[str, int], seed: int = 0
) -> pd.DataFrame:
    """The errors of each surrogate at the end of mixtures that it was not fitted to.

    Args:
        points: of all corpora, of runs at random mixtures of one length from one model.
        spec: of one of them.
        schedules: run -> its learning rates.
        from_step: law -> first step that is fitted.
        seed: decides which mixtures are held out.

    Returns:
        Columns law, split ("mixtures": fitted to all steps of the others; "later": to the first two thirds of their
        steps; data-mixing reads the last of them, and LENGTH extrapolates), corpus, error (mean absolute relative
        error) and reason ("", or why it could not be fitted).
    """
    return pd.DataFrame(_errors(points, spec, schedules, from_step, seed))


def _errors(
    points: pd.DataFrame, spec: RunSpec, schedules: Schedules, from_step: dict[str, int], seed: int
) -> Iterator[dict]:
    shares = sorted(name for name in map(str, points.columns) if name.startswith("mixture."))
    mixture = points.groupby(shares, sort=True).ngroup().to_numpy()
    order = np.random.default_rng(seed).permutation(mixture.max() + 1)
    held = np.isin(mixture, order[::HELD_OUT])
    early = (points["step"] <= EARLIER * points["step"].max()).to_numpy()
    for law in SURROGATES:
        for split, read in (("mixtures", ~held), ("later", ~held & early)):
            for corpus in points["corpus"].unique():
                part = (points["corpus"] == corpus).to_numpy()
                row = {"law": law, "split": split, "corpus": corpus, "error": float("nan"), "reason": ""}
                try:
                    fit_ = fit_surrogate(law, points[read & part], schedules, from_step.get(law, 0), seed=seed)
                    stretch = None
                    if law == "data-mixing" and split == "later":
                        last, least = int(points.loc[early, "step"].max()), from_step.get(LENGTH, 0)
                        stretch = fit_length(points[read & part], schedules, spec, spec, least, seed=seed, step=last)
                except PointsError as reason:
                    yield {**row, "reason": str(reason)}
                    continue
                ends = last_points(points[held & part])
                rest = ends.assign(**end_columns(fit_, points[part], spec))
                predicted = fit_.predict(rest)
                if stretch is not None:
                    predicted = predicted * stretch.factor(ends["r"].to_numpy(dtype=float))
                misses = predicted / ends["loss"].to_numpy(dtype=float) - 1
                yield {**row, "error": float(np.abs(misses).mean())}
