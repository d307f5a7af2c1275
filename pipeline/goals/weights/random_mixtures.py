"""Runs at random mixtures, their losses, and proposals by laws that are fitted to them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial

import pandas as pd

from fitting import Answer, Fit, dirichlet_mixtures
from fitting.mixtures.random_mixtures import GRAIN
from pipeline.goals.weights.artifacts import Details, Proposal
from pipeline.goals.weights.mixtures import (
    Method,
    base_weights,
    domain_names,
    largest_weights,
    measured,
    mixture_run,
    proposal_of,
)
from pipeline.study.context import Context
from pipeline.study.folder import PlannedRun


def random_runs(context: Context) -> list[PlannedRun]:
    """The base run and the random mixtures, at the first of weights.scales, with every seed of the search.

    A larger weights.mixtures keeps the mixtures of a smaller one. No weight asks for more text than its domain has.
    """
    weights, steps = context.question.weights, context.question.weights.scales[0]
    low, high = weights.concentration
    drawn = dirichlet_mixtures(
        [float(weight) for weight in base_weights(context).values()],
        weights.mixtures,
        seed=context.question.seed,
        concentration=(low, high),
        high=list(largest_weights(context, steps).values()),
    )
    rows = ([Fraction(round(weight * GRAIN), GRAIN) for weight in row] for row in drawn.tolist())
    mixtures = [base_weights(context), *(dict(zip(domain_names(context), row, strict=True)) for row in rows)]
    seeds = [context.question.seed + number for number in range(weights.seeds)]
    runs = [mixture_run(context, mixture, steps, seed) for mixture in mixtures for seed in seeds]
    return list({run.spec.hash: run for run in runs}.values())


def random_count(context: Context) -> tuple[int, int]:
    """(runs, tokens) of `random_runs`."""
    runs = random_runs(context)
    return len(runs), sum(run.spec.tokens for run in runs)


RandomMethod = partial(Method, runs=random_runs, count=random_count)
"""A method that reads these runs."""


def finished_mixtures(context: Context) -> list[PlannedRun]:
    """The random runs, and all finished runs of the study that differ from them in mixture and seed only."""
    runs = {run.spec.hash: run for run in random_runs(context)}
    like = next(iter(runs.values())).spec
    for run in context.study.read_plan():
        same = dataclasses.replace(run.spec, mixture=like.mixture, seed=like.seed).hash == like.hash
        if run.role == "fit" and same and context.once(measured).done(run):
            runs.setdefault(run.spec.hash, run)
    return list(runs.values())


def points_of(context: Context, runs: list[PlannedRun]) -> pd.DataFrame:
    """The collected points of some runs."""
    points = context.once(measured).points
    assert points is not None
    return points[points["run"].isin([run.name for run in runs])]


def last_points(points: pd.DataFrame) -> pd.DataFrame:
    """The points at the last step of each run."""
    return points[points["step"] == points.groupby("run")["step"].transform("max")]


def at_target(context: Context, predicted: Mapping[str, float]) -> dict[str, float]:
    """Losses that a method without run length predicts, where its runs are as long as the target; else nothing."""
    weights = context.question.weights
    return dict(predicted) if weights.scales[0] == weights.target else {}


def law_proposal(
    method: str,
    context: Context,
    runs: list[PlannedRun],
    fits: Mapping[str, Fit],
    answer: Answer,
    lines: Sequence[str],
    numbers: Mapping[str, object],
) -> Proposal:
    """The proposal of `fitting.best_mixture`, with the parameters of the fitted laws among its numbers.

    Its lines are the binding constraint, the given `lines` and the warnings of the answer.
    """
    domains = domain_names(context) if context.question.bootstrap > 0 else ()
    parameters = {name: {"params": fit.params, "r2": fit.metrics["r2"]} for name, fit in fits.items()}
    return proposal_of(
        method,
        {domain: answer[domain] for domain in domain_names(context)},
        runs,
        low={domain: answer.values[domain].low for domain in domains},
        high={domain: answer.values[domain].high for domain in domains},
        predicted={"mean": answer["mean"], **{name: loss.value for name, loss in answer.predicted.items()}},
        lines=(answer.status.message, *lines, *answer.warnings),
        details=Details(numbers={"fits": parameters, **numbers}),
    )
