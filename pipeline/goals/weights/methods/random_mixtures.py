"""Methods that read runs at random mixtures: data mixing laws and RegMix, and what others need of such runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fitting import Answer, Fit, best_mixture, dirichlet_mixtures, fit, mixture_optimum
from fitting.mixtures.best_mixture import AVERAGES
from fitting.mixtures.random_mixtures import GRAIN
from pipeline.goals.weights.artifacts import Details, Proposal
from pipeline.goals.weights.mixtures import Method, Search, proposal_of
from pipeline.study.folder import PlannedRun

if TYPE_CHECKING:
    from sklearn.ensemble import GradientBoostingRegressor

FOLDS = 5
SAMPLES = 50_000
Mean = Callable[[np.ndarray], np.ndarray]
"""Losses (k, m) -> their mean over domains (k,)."""
PLAIN_MEAN: Mean = partial(np.mean, axis=1)


def random_runs(search: Search) -> list[PlannedRun]:
    """The base run and the random mixtures, at the first of weights.scales, with every seed of the search.

    A larger weights.mixtures keeps the mixtures of a smaller one. No weight asks for more text than its domain has.
    """
    weights, steps = search.settings, search.settings.scales[0]
    low, high = weights.concentration
    drawn = dirichlet_mixtures(
        [float(weight) for weight in search.base.values()],
        weights.mixtures,
        seed=search.question.seed,
        concentration=(low, high),
        high=list(search.largest_weights(steps).values()),
    )
    rows = ([Fraction(round(weight * GRAIN), GRAIN) for weight in row] for row in drawn.tolist())
    mixtures = [search.base, *(dict(zip(search.domains, row, strict=True)) for row in rows)]
    seeds = [search.question.seed + number for number in range(weights.seeds)]
    runs = [search.run(mixture, steps, seed) for mixture in mixtures for seed in seeds]
    return list({run.spec.hash: run for run in runs}.values())


def random_count(search: Search) -> tuple[int, int]:
    """(runs, tokens) of `random_runs`."""
    runs = random_runs(search)
    return len(runs), sum(run.spec.tokens for run in runs)


RandomMethod = partial(Method, runs=random_runs, count=random_count)
"""A method that reads these runs."""


def finished_mixtures(search: Search) -> list[PlannedRun]:
    """The random runs, and all finished runs of the study that differ from them in mixture and seed only."""
    runs = {run.spec.hash: run for run in random_runs(search)}
    like = next(iter(runs.values())).spec
    for run in search.study.read_plan():
        same = dataclasses.replace(run.spec, mixture=like.mixture, seed=like.seed).hash == like.hash
        if run.role == "fit" and same and search.is_done(run):
            runs.setdefault(run.spec.hash, run)
    return list(runs.values())


def points_of(search: Search, runs: list[PlannedRun]) -> pd.DataFrame:
    """The collected points of some runs."""
    points = search.points
    assert points is not None
    return points[points["run"].isin([run.name for run in runs])]


def last_points(points: pd.DataFrame) -> pd.DataFrame:
    """The points at the last step of each run."""
    return points[points["step"] == points.groupby("run")["step"].transform("max")]


def at_target(search: Search, predicted: Mapping[str, float]) -> dict[str, float]:
    """Losses that a method without run length predicts, where its runs are as long as the target; else nothing."""
    weights = search.settings
    return dict(predicted) if weights.scales[0] == weights.target else {}


def law_proposal(
    method: str,
    search: Search,
    runs: list[PlannedRun],
    fits: Mapping[str, Fit],
    answer: Answer,
    lines: Sequence[str],
    numbers: Mapping[str, object],
) -> Proposal:
    """The proposal of `fitting.best_mixture`, with the parameters of the fitted laws among its numbers."""
    domains = search.domains if search.question.bootstrap > 0 else ()
    parameters = {name: {"params": fit.params, "r2": fit.metrics["r2"]} for name, fit in fits.items()}
    # The mean of the answer may be one of perplexities.
    predicted = {name: loss.value for name, loss in answer.predicted.items()}
    return proposal_of(
        method,
        {domain: answer[domain] for domain in search.domains},
        runs,
        low={domain: answer.values[domain].low for domain in domains},
        high={domain: answer.values[domain].high for domain in domains},
        predicted={"mean": sum(value * predicted[name] for name, value in search.values.items()), **predicted},
        lines=(answer.status.message, *lines, *answer.warnings),
        details=Details(numbers={"fits": parameters, **numbers}),
    )


def _propose_by_law(search: Search) -> list[Proposal]:
    """The mixture that minimises the average of the fitted laws (Ye et al. 2024, arXiv:2403.16952)."""
    question, runs = search.question, finished_mixtures(search)
    points = last_points(points_of(search, runs))
    fits = {
        domain: fit(points[points["corpus"] == domain], "data-mixing", seed=0, bootstrap=question.bootstrap)
        for domain in search.domains
    }
    high = search.largest_weights(search.settings.target)
    answer = best_mixture(fits, search.values, high=high, average=search.settings.average)
    numbers = {"steps": search.settings.scales[0]}
    proposal = law_proposal("data-mixing", search, runs, fits, answer, [], numbers)
    return [dataclasses.replace(proposal, predicted=at_target(search, proposal.predicted))]


DATA_MIXING = RandomMethod(_propose_by_law)
"""Needs a few more mixtures than domains. Run length is no input: the weights are those of the search scale."""


def boosted_trees(mixtures: np.ndarray, loss: np.ndarray, seed: int = 0) -> GradientBoostingRegressor:
    """Trees fitted to mixtures (n, m) and losses (n,); `predict` takes mixtures (k, m).

    Source: Liu et al. 2024 (RegMix), arXiv:2407.01492, sec. 3.2, there with LightGBM and 512 mixtures. Histogram
    trees, as LightGBM's, need 20 mixtures a leaf, too many for a few dozen runs.
    """
    from sklearn.ensemble import GradientBoostingRegressor

    trees = GradientBoostingRegressor(n_estimators=500, learning_rate=0.05, subsample=0.5, random_state=seed)
    return trees.fit(mixtures, loss)


def mean_by_trees(mixtures: np.ndarray, losses: np.ndarray, mean: Mean = PLAIN_MEAN, seed: int = 0) -> Mean:
    """Mixtures (k, m) -> mean over domains (k,) by trees of each domain, which rank better than trees of the mean."""
    trees = [boosted_trees(mixtures, column, seed) for column in losses.T]
    return lambda weights: mean(np.column_stack([tree.predict(weights) for tree in trees]))


def ranked(mixtures: np.ndarray, losses: np.ndarray, mean: Mean = PLAIN_MEAN, seed: int = 0) -> float:
    """Cross-validated Spearman correlation of the mean over domains, from mixtures and losses (n, m).

    Runs of one mixture, which differ in their seed, are held out together.
    """
    table = pd.DataFrame(mixtures)
    mixture = table.groupby([*table], sort=False).ngroup().to_numpy()
    parts = (np.random.default_rng(seed).permutation(mixture.max() + 1) % FOLDS)[mixture]
    predicted, measured = np.zeros(len(losses)), mean(losses)
    for part in range(FOLDS):
        out = parts == part
        predicted[out] = mean_by_trees(mixtures[~out], losses[~out], mean, seed)(mixtures[out])
    if not np.ptp(predicted) or not np.ptp(measured):
        # With few runs the trees may have no split.
        return 0.0
    return float(pd.Series(predicted).corr(pd.Series(measured), method="spearman"))


def _propose_by_trees(search: Search) -> list[Proposal]:
    """The mean of the hundred best of many mixtures by the trees (RegMix, sec. 3.3)."""
    question, domains, runs = search.question, search.domains, finished_mixtures(search)
    ends = last_points(points_of(search, runs)).set_index("run")
    losses = ends.pivot(columns="corpus", values="loss")[list(domains)].astype(float)
    table = ends[~ends.index.duplicated()].loc[losses.index, [f"mixture.{domain}" for domain in domains]]
    mixtures, losses = table.to_numpy(float), losses.to_numpy()
    value = np.array(list(search.values.values()))

    def mean(values: np.ndarray) -> np.ndarray:
        return AVERAGES[search.settings.average](values) @ value

    best = mixture_optimum(
        mean_by_trees(mixtures, losses, mean, question.seed),
        [float(weight) for weight in search.base.values()],
        high=list(search.largest_weights(search.settings.target).values()),
        smooth=False,
        samples=SAMPLES,
        seed=question.seed,
    )
    rank = ranked(mixtures, losses, mean, question.seed)
    lines = (f"Spearman correlation of the trees on held-out mixtures: {rank:.2f}",)
    details = Details(numbers={"spearman": rank, "steps": search.settings.scales[0]})
    weights = dict(zip(domains, best.weights.tolist(), strict=True))
    predicted = at_target(search, {"mean": best.loss}) if search.settings.average == "loss" else {}
    return [proposal_of("regmix", weights, runs, predicted=predicted, lines=lines, details=details)]


REGMIX = RandomMethod(_propose_by_trees)
"""Needs many mixtures (512 in the paper). Run length is no input, and there are no intervals."""
