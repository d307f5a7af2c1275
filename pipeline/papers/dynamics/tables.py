"""The tables of the learning-dynamics paper (Wang et al., ICML 2025): table 2, and the numbers behind its figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pandas as pd

from pipeline.papers.dynamics import facts, fits
from pipeline.papers.dynamics.points import READING, ScheduleStudy
from pipeline.papers.table import Table

READINGS = {"dynamics": READING, "open-model": replace(READING, experiment="dynamics-open")}
"""Name -> input; the second is the same of a model that somebody else pre-trained."""


def _table(
    title: str,
    make: Callable[[ScheduleStudy], pd.DataFrame],
    judge: Callable[[pd.DataFrame], tuple[str, str]],
    keys: str,
    subject: str,
    across: str = "corpus metric",
    file: str = "",
    prints: Callable[[pd.DataFrame], pd.DataFrame] | None = None,
    reads: str = "dynamics",
) -> Table:
    """A table with a rule of its own, `judge`; `keys` and `across` are separated by spaces.

    It cannot pass `states`, which the common rule reads: such a table is a `Table` written out, as in dcpt/fits.py.
    """
    columns = tuple(across.split())
    return Table(title, file, make, tuple(keys.split()), subject, reads, columns, prints=prints, judge=judge)


_OVERLAP = {among: partial(facts.judge_overlap, among=among) for among in ("transfer", "model")}
_METRICS = "model corpus metric"

TABLES: dict[str, Table] = {
    "dynamics-2": _table(
        *("Other formats of the annealing term", fits.formats, fits.judge_formats, "format corpus metric", "format"),
        file="dynamics_table02_format_variants.csv",
    ),
    "dynamics-figure-2": _table(
        *("The shift from several points of pre-training", facts.shifts, _OVERLAP["transfer"]),
        *("model replay transfer corpus", "transfer", "corpus"),
    ),
    "dynamics-figure-3": _table(
        *("One law for pre-training and what follows, under several schedules", fits.curves, fits.judge_curves),
        *(f"law {_METRICS}", "law"),
    ),
    "dynamics-figure-5": _table(
        *("Loss potential of the base model", facts.potentials, facts.judge_potentials),
        *("setting model potential corpus side", "potential", "corpus side"),
    ),
    "dynamics-figure-6": _table(
        *("The shift by replay ratio", facts.shifts, facts.judge_replay),
        *("model transfer replay corpus", "replay", "corpus"),
    ),
    "dynamics-figure-7": _table(
        *("Peak learning rate after re-warm-up", facts.peaks, facts.judge_peaks),
        *("model peak corpus side", "peak", "corpus side"),
    ),
    "dynamics-figure-7c": _table(
        *("Turning length on the corpus of pre-training", facts.turning, facts.judge_turning),
        *("model replay transfer side", "transfer", "side"),
    ),
    "dynamics-figure-8": _table(
        "The best loss potential, peak rate and replay ratio, by the weight of the corpus of pre-training",
        *(facts.best_designs, facts.judge_designs, "choice model weight", "choice", "weight"),
    ),
    "dynamics-figure-10": _table(
        *("Held-out schedules", fits.held_out_schedules, fits.judge_held_out), *("schedule corpus law", "law", "law")
    ),
    "dynamics-figure-12": _table(
        *("Each replay ratio by itself", fits.replay_ratios, fits.judge_curves), *(f"law replay {_METRICS}", "replay")
    ),
    "dynamics-figure-14": _table(
        *("The shift of several sizes", facts.shifts, _OVERLAP["model"]),
        *("replay transfer model corpus", "model", "corpus"),
    ),
    "dynamics-figure-18": _table(
        *("A model whose past is not known", fits.open_model, fits.judge_open_model),
        *(f"law {_METRICS}", "law"),
        reads="open-model",
    ),
    "dynamics-figure-19": _table(
        *("One law for all replay ratios", fits.coefficients, fits.judge_coefficients),
        *("coefficient corpus", "coefficient", "corpus"),
        file="dynamics_fig19_eq8_coefficients.csv",
        prints=fits.printed_coefficients,
    ),
}
"""Name -> table."""
