"""Laws that stand in for training at a mixture of many corpora, and how well each predicts mixtures it has not seen."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from fitting import Fit, Longer, PointsError, areas, fit
from fitting.schedule import Schedules
from pipeline.mixture_weights.random_mixtures import at_the_end
from training.schedule import learning_rates
from training.spec import RunSpec

SURROGATES = ("data-mixing", "dcpt", "transfer-anchored")
"""The shares of all corpora at the end of the runs, other lengths by LENGTH; the share of the own corpus alone, with
tokens, or with schedule and loss before."""
LENGTH = "transfer-anchored"
"""The law that tells data-mixing, which knows no length, by what factor a longer run changes the loss."""
ONE_SIZE = {"A": 0.0, "alpha": 0.3}
"""Of dcpt: with one size of model its term cannot be told from E."""
HELD_OUT = 3
"""Every third mixture is held out."""
EARLIER = 2 / 3
"""Share of the steps after which the later ones begin."""


def fitted(
    law: str, points: pd.DataFrame, schedules: Schedules, from_step: int = 0, bootstrap: int = 0, seed: int = 0
) -> Fit:
    """A surrogate of one corpus.

    Args:
        law: one of SURROGATES.
        points: of runs at random mixtures of one length from one model; of data-mixing the last of each run are read.
        schedules: run -> its learning rates.
        from_step: first step that is read, at least 1.
        bootstrap: refits, for intervals.
        seed: of the fit.

    Raises:
        PointsError: too few runs, or too few evaluations of each.
    """
    if law == "data-mixing":
        return fit(at_the_end(points), law, bootstrap=bootstrap, seed=seed)
    points = points[points["step"] >= max(from_step, 1)]
    if law == "dcpt":
        return fit(points, law, fix=ONE_SIZE, bootstrap=bootstrap, seed=seed)
    decay = fit(points, law, schedules=schedules, bootstrap=0, seed=seed).params["lambda"]
    # The same for all refits, so that one s2 says where a run ends.
    return fit(points, law, schedules=schedules, fix={"lambda": decay}, bootstrap=bootstrap, seed=seed)


def at_end(law: Fit, points: pd.DataFrame, spec: RunSpec, step: int | None = None) -> dict[str, float]:
    """The columns that a surrogate reads beside shares, at the end of a run, or after a step of it.

    Args:
        law: the fit.
        points: of one corpus.
        spec: of the run; its mixture does not matter.
        step: None for the last.
    """
    step = step or spec.steps
    rates = learning_rates(spec.schedule, spec.steps, spec.learning_rate_before)
    s1, s2 = areas(rates, law.constants.get("lambda", 0.999), spec.learning_rate_before)
    known = {name: float(points[name].mean()) for name in ("N", "loss_before", "rho", "s1_pretrain")}
    known |= {"D": step * spec.tokens_per_step / 1e9, "s1": float(s1[step - 1]), "s2": float(s2[step - 1])}
    return {name: value for name, value in known.items() if name in law.equation.columns}


def longer(
    points: pd.DataFrame,
    schedules: Schedules,
    spec: RunSpec,
    target: RunSpec,
    from_step: int = 0,
    bootstrap: int = 0,
    seed: int = 0,
    step: int | None = None,
) -> Longer:
    """By what factor the loss of a corpus changes from a step of the runs (None: the last) to the end of the target.

    Args and errors as in `fitted`; `spec` is that of the runs.
    """
    law = fitted(LENGTH, points, schedules, from_step, bootstrap, seed)
    return Longer(law, at_end(law, points, spec, step), at_end(law, points, target))


def held_out(
    points: pd.DataFrame, spec: RunSpec, schedules: Schedules, from_step: dict[str, int], seed: int = 0
) -> pd.DataFrame:
    """How far each surrogate misses the losses at the end of mixtures that it was not fitted to.

    Args:
        points: of all corpora, of runs at random mixtures of one length from one model.
        spec: of one of them.
        schedules: run -> its learning rates.
        from_step: law -> first step that is read.
        seed: decides which mixtures are held out.

    Returns:
        Columns law, asked ("mixtures": fitted to all steps of the others; "later": to the first two thirds of their
        steps, of which data-mixing reads the last and LENGTH goes on from there), corpus, error (mean absolute relative
        error) and reason ("", or why it could not be fitted).
    """
    return pd.DataFrame(_judged(points, spec, schedules, from_step, seed))


def _judged(
    points: pd.DataFrame, spec: RunSpec, schedules: Schedules, from_step: dict[str, int], seed: int
) -> Iterator[dict]:
    shares = sorted(name for name in map(str, points.columns) if name.startswith("mixture."))
    mixture = points.groupby(shares, sort=True).ngroup().to_numpy()
    order = np.random.default_rng(seed).permutation(mixture.max() + 1)
    judged = np.isin(mixture, order[::HELD_OUT])
    early = (points["step"] <= EARLIER * points["step"].max()).to_numpy()
    for law in SURROGATES:
        for asked, read in (("mixtures", ~judged), ("later", ~judged & early)):
            for corpus in points["corpus"].unique():
                own = (points["corpus"] == corpus).to_numpy()
                row = {"law": law, "asked": asked, "corpus": corpus, "error": float("nan"), "reason": ""}
                try:
                    found = fitted(law, points[read & own], schedules, from_step.get(law, 0), seed=seed)
                    stretch = None
                    if law == "data-mixing" and asked == "later":
                        last, least = int(points.loc[early, "step"].max()), from_step.get(LENGTH, 0)
                        stretch = longer(points[read & own], schedules, spec, spec, least, seed=seed, step=last)
                except PointsError as reason:
                    yield {**row, "reason": str(reason)}
                    continue
                ends = at_the_end(points[judged & own])
                rest = ends.assign(**at_end(found, points[own], spec))
                predicted = found.predict(rest)
                if stretch is not None:
                    predicted = predicted * stretch.factor(ends["r"].to_numpy(dtype=float))
                misses = predicted / ends["loss"].to_numpy(dtype=float) - 1
                yield {**row, "error": float(np.abs(misses).mean())}
