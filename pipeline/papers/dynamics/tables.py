"""The tables of the learning-dynamics paper (Wang et al., ICML 2025): table 2, and the numbers behind its figures."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from pipeline.papers.dynamics import facts, fits
from pipeline.papers.dynamics.points import READING, ScheduleStudy
from pipeline.papers.table import PaperTable

READINGS = {"dynamics": READING, "open-model": replace(READING, experiment="dynamics-open")}
"""Name -> input; the second is the same of a model that somebody else pre-trained."""
Make = Callable[[ScheduleStudy], pd.DataFrame]
Judge = Callable[[pd.DataFrame], tuple[str, str]]


def _table(make: Make, judge: Judge, title: str, keys: str, across: str = "corpus metric", **more: Any) -> PaperTable:
    """A table with a rule of its own; `keys` and `across` are words."""
    columns = {"keys": tuple(keys.split()), "across": tuple(across.split())}
    return PaperTable(title, make=make, judge=judge, **{"file": "", "reads": "dynamics", **columns, **more})


_OVERLAP: dict[str, Judge] = {key: partial(facts.judge_overlap, key=key) for key in ("transfer", "model")}
_FITTED = "law model corpus metric"
TABLES = {
    "dynamics-2": _table(
        fits.formats, fits.judge_formats, "Other formats of the annealing term", "format corpus metric",
        file="dynamics_table02_format_variants.csv"),
    "dynamics-figure-2": _table(
        facts.shifts, _OVERLAP["transfer"], "The shift from several points of pre-training",
        "model replay transfer corpus", "corpus"),
    "dynamics-figure-3": _table(
        fits.curves, fits.judge_curves, "One law for pre-training and what follows, under several schedules", _FITTED),
    "dynamics-figure-5": _table(
        facts.potentials, facts.judge_potentials, "Loss potential of the base model",
        "setting model potential corpus side", "corpus side"),
    "dynamics-figure-6": _table(
        facts.shifts, facts.judge_replay, "The shift by replay ratio", "model transfer replay corpus", "corpus"),
    "dynamics-figure-7": _table(
        facts.peaks, facts.judge_peaks, "Peak learning rate after re-warm-up",
        "model peak corpus side", "corpus side"),
    "dynamics-figure-7c": _table(
        facts.turning, facts.judge_turning, "Turning length on the corpus of pre-training",
        "model replay transfer side", "side"),
    "dynamics-figure-8": _table(
        facts.best_designs, facts.judge_designs,
        "The best loss potential, peak rate and replay ratio, by the weight of the corpus of pre-training",
        "choice model weight", "weight"),
    "dynamics-figure-10": _table(
        fits.held_out_schedules, fits.judge_held_out, "Held-out schedules", "schedule corpus law", "law"),
    "dynamics-figure-12": _table(
        fits.replay_ratios, fits.judge_curves, "Each replay ratio by itself", "law replay model corpus metric"),
    "dynamics-figure-14": _table(
        facts.shifts, _OVERLAP["model"], "The shift of several sizes", "replay transfer model corpus", "corpus"),
    "dynamics-figure-18": _table(
        fits.open_model, fits.judge_open_model, "A model whose past is not known", _FITTED, reads="open-model"),
    "dynamics-figure-19": _table(
        fits.coefficients, fits.judge_coefficients, "One law for all replay ratios", "coefficient corpus", "corpus",
        file="dynamics_fig19_eq8_coefficients.csv", prints=fits.printed_coefficients,
        columns=("equation", "coefficient", "value")),
}  # fmt: skip
