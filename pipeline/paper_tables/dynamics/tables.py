"""The tables of the learning-dynamics paper (Wang et al., ICML 2025): table 2, and the facts behind its figures."""

from __future__ import annotations

from functools import partial

from pipeline.paper_tables.dynamics import designs, facts, fits
from pipeline.paper_tables.dynamics.open_model import known_enough, open_model
from pipeline.paper_tables.dynamics.points import DYNAMICS
from pipeline.paper_tables.table import Table

READING = DYNAMICS
_SIDES = ("corpus", "side")

TABLES: dict[str, Table] = {
    "dynamics-2": Table(
        "Other formats of the annealing term",
        "dynamics_table02_format_variants.csv",
        fits.formats,
        ("format", "corpus", "metric"),
        "format",
        reads="dynamics",
        alike=True,
        judge=fits.as_alike,
    ),
    "dynamics-figure-2": Table(
        "The shift from several points of pre-training",
        "",
        facts.shifts,
        ("model", "replay", "transfer", "corpus"),
        "transfer",
        reads="dynamics",
        across=("corpus",),
        judge=partial(facts.overlapping, among="transfer"),
    ),
    "dynamics-figure-3": Table(
        "One law for pre-training and what follows, under several schedules",
        "",
        fits.curves,
        ("law", "model", "corpus", "metric"),
        "law",
        reads="dynamics",
        judge=fits.captured,
    ),
    "dynamics-figure-5": Table(
        "Loss potential of the model that is continued",
        "",
        facts.potentials,
        ("setting", "model", "potential", "corpus", "side"),
        "potential",
        reads="dynamics",
        across=_SIDES,
        judge=facts.more_potential,
    ),
    "dynamics-figure-6": Table(
        "The shift by replay ratio",
        "",
        facts.shifts,
        ("model", "transfer", "replay", "corpus"),
        "replay",
        reads="dynamics",
        across=("corpus",),
        judge=facts.less_by_replay,
    ),
    "dynamics-figure-7": Table(
        "Peak learning rate after re-warm-up",
        "",
        facts.peaks,
        ("model", "peak", "corpus", "side"),
        "peak",
        reads="dynamics",
        across=_SIDES,
        judge=facts.higher_peak,
    ),
    "dynamics-figure-7c": Table(
        "Turning length on the corpus of pre-training",
        "",
        facts.turning,
        ("model", "replay", "transfer", "side"),
        "transfer",
        reads="dynamics",
        across=("side",),
        judge=facts.sooner_back,
    ),
    "dynamics-figure-8": Table(
        "The best loss potential, peak rate and replay ratio, by the weight of the corpus of pre-training",
        "",
        designs.best_designs,
        ("choice", "model", "weight"),
        "choice",
        reads="dynamics",
        across=("weight",),
        judge=designs.as_weighed,
    ),
    "dynamics-figure-10": Table(
        "Schedules that no fit saw",
        "",
        fits.other_schedules,
        ("schedule", "corpus", "law"),
        "law",
        reads="dynamics",
        across=("law",),
        judge=fits.predicted_well,
    ),
    "dynamics-figure-12": Table(
        "Each replay ratio by itself",
        "",
        fits.replay_ratios,
        ("law", "replay", "model", "corpus", "metric"),
        "replay",
        reads="dynamics",
        judge=fits.captured,
    ),
    "dynamics-figure-14": Table(
        "The shift of several sizes",
        "",
        facts.shifts,
        ("replay", "transfer", "model", "corpus"),
        "model",
        reads="dynamics",
        across=("corpus",),
        judge=partial(facts.overlapping, among="model"),
    ),
    "dynamics-figure-18": Table(
        "A model whose past is not known",
        "",
        open_model,
        ("law", "model", "corpus", "metric"),
        "law",
        reads="dynamics",
        judge=known_enough,
    ),
    "dynamics-figure-19": Table(
        "One law for all replay ratios",
        "dynamics_fig19_eq8_coefficients.csv",
        fits.coefficients,
        ("coefficient", "corpus"),
        "coefficient",
        reads="dynamics",
        across=("corpus",),
        prints=fits.printed_coefficients,
        judge=fits.shifts_by_replay,
    ),
}
"""Name -> table."""
