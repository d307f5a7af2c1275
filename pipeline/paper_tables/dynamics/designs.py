"""Figure 8 of the learning-dynamics paper: the best loss potential, peak rate and replay ratio for two corpora."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd

from fitting import Fit, PointsError, balance
from fitting.answers.balance import cosine
from fitting.answers.loss_curve import losses_along
from fitting.answers.loss_potential import with_potential
from pipeline.paper_tables.dynamics.fits import REPLAY
from pipeline.paper_tables.dynamics.points import CORPORA, Asked, Dynamics, fitted, lambda_of
from pipeline.paper_tables.verdict import IN_ORDER, NOT_HERE

WEIGHTS = ("0.1", "0.3", "0.5", "0.7", "0.9")
"""lambda_1 of eq. 5, the weight of the corpus of pre-training."""
POTENTIALS = np.linspace(0.0, 1.0, 41).round(3)
"""Loss potentials that are tried."""
CHOICES = {"loss potential": -1, "peak rate": -1, "replay": 1}
"""What is chosen -> whether it falls or rises with the weight of D_pt in the paper."""


def best_designs(given: Dynamics) -> pd.DataFrame:
    """What eq. 5 is least at, by the weight of D_pt, by the laws fitted here: choice, model, weight, value (figure 8).

    Pre-training is that of the study's question, continual pre-training a cosine of its length to 0. Peak by eq. 4,
    re-warmed, and replay by eq. 8 at the question's peak; loss potential by eq. 4, the cosine beginning at the last
    rate of pre-training (the paper does not say whether it does).
    """
    rows = []
    for model in given.models:
        own = given.fitted_runs(model)
        asked = own[(own["variant"] == "") & (own["parent"] != "")]
        if asked.empty:
            raise PointsError("the question's own runs follow no pre-training")
        past = given.schedules[asked["run"].iloc[0]].pretrain
        assert past is not None
        peak, steps, low = (
            float(asked["peak"].iloc[0]),
            given.steps(asked["run"].iloc[0]),
            float(given.runs["peak"].min()),
        )
        plain = [fitted(given, Asked("dynamics", corpus, model, 1.0)) for corpus in CORPORA]
        mixed = [fitted(given, Asked(REPLAY[corpus], corpus, model)) for corpus in CORPORA]
        ends = np.array([[_annealed(found, past, share, steps) for share in POTENTIALS] for found in plain])
        for weight in WEIGHTS:
            best = partial(balance, weight=float(weight), steps=steps, pretraining=past)
            weighted = float(weight) * ends[0] + (1 - float(weight)) * ends[1]
            rows += [
                ("loss potential", model, weight, POTENTIALS[int(weighted.argmin())]),
                ("peak rate", model, weight, best(*plain, peak=(low, peak))["peak"]),
                ("replay", model, weight, best(*mixed, peak=peak, replay=(0.0, 1.0))["replay"]),
            ]
    return pd.DataFrame(rows, columns=["choice", "model", "weight", "value"])


def _annealed(found: Fit, past: np.ndarray, potential: float, steps: int) -> float:
    """The loss after a cosine to 0 from the last rate of a pre-training with a loss potential."""
    before = with_potential(past, potential)
    rates = before[-1] * cosine(steps)
    return float(losses_along(found, np.array([steps]), rates, before[-1], before, {}, lambda_of(found))[0][0])


def as_weighed(cells: pd.DataFrame) -> tuple[str, str]:
    """Whether what is best moves with the weight as in the paper."""
    told, right = [], []
    for choice, sign in CHOICES.items():
        for model, own in cells[cells["choice"] == choice].groupby("model", sort=False):
            values = own.sort_values("weight")["ours"].to_numpy()
            moved = sign * np.diff(values)
            right.append(bool((moved >= -1e-9).all() and moved.max(initial=0) > 1e-9))
            told.append(f"{choice} of {model} {values[0]:.3g} to {values[-1]:.3g}{'' if right[-1] else ' (not so)'}")
    why = f"From the least weight of D_pt to the largest: {', '.join(told)}; the paper's fall, fall and rise."
    return (IN_ORDER if all(right) else NOT_HERE), why
