"""Runs at random mixtures, which several methods read, and the table of what they measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from fractions import Fraction

import numpy as np
import pandas as pd

from pipeline.mixture_weights.setting import Measured, Setting, mixture_run
from pipeline.mixture_weights.token_supply import largest_shares
from pipeline.study.folder import PlannedRun


def random_runs(setting: Setting) -> list[PlannedRun]:
    """The base run and the random mixtures, at the first of weights.scales, with every seed of the search.

    A larger weights.mixtures keeps the mixtures of a smaller one. No domain's share is beyond what its text allows.
    """
    from fitting import dirichlet_mixtures
    from fitting.mixtures.random_mixtures import GRAIN

    weights, steps = setting.question.weights, setting.question.weights.scales[0]
    low, high = weights.concentration
    drawn = dirichlet_mixtures(
        [float(share) for share in setting.base.values()],
        weights.mixtures,
        seed=setting.question.seed,
        concentration=(low, high),
        high=list(largest_shares(setting, steps).values()),
    )
    mixtures: list[Mapping[str, Fraction]] = [
        dict(zip(setting.domains, (Fraction(round(share * GRAIN), GRAIN) for share in row.tolist()), strict=True))
        for row in drawn
    ]
    seeds = [setting.question.seed + number for number in range(weights.seeds)]
    runs = [mixture_run(setting, shares, steps, seed) for shares in [setting.base, *mixtures] for seed in seeds]
    return list({run.spec.hash: run for run in runs}.values())


def random_count(setting: Setting) -> tuple[int, int]:
    """(runs, tokens) of `random_runs`."""
    runs = random_runs(setting)
    return len(runs), sum(run.spec.tokens for run in runs)


def searched(setting: Setting, measured: Measured) -> list[PlannedRun]:
    """The random runs, and whatever else the study has finished that differs from them in mixture and seed alone."""
    found = {run.spec.hash: run for run in random_runs(setting)}
    like = next(iter(found.values())).spec
    for run in measured.study.read_plan():
        same = dataclasses.replace(run.spec, mixture=like.mixture, seed=like.seed).hash == like.hash
        if run.role == "fit" and same and measured.done(run):
            found.setdefault(run.spec.hash, run)
    return list(found.values())


def points_of(measured: Measured, runs: list[PlannedRun]) -> pd.DataFrame:
    """The collected points of some runs."""
    assert measured.points is not None
    return measured.points[measured.points["run"].isin([run.name for run in runs])]


def at_the_end(points: pd.DataFrame) -> pd.DataFrame:
    """The points at the last step of each run."""
    return points[points["step"] == points.groupby("run")["step"].transform("max")]


def shares_and_losses(points: pd.DataFrame, domains: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """(shares, losses), each (runs, m), of points of which each run has one a corpus."""
    shares = points.drop_duplicates("run").set_index("run")[[f"mixture.{domain}" for domain in domains]]
    losses = points.pivot(index="run", columns="corpus", values="loss")[list(domains)]
    return shares.loc[losses.index].to_numpy(dtype=float), losses.to_numpy(dtype=float)
