"""RegMix: boosted trees that predict losses from weights, and the best of many mixtures by their prediction."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fitting import mixture_optimum
from fitting.mixtures.best_mixture import AVERAGES
from pipeline.goals.weights.artifacts import Details, Proposal
from pipeline.goals.weights.mixtures import base_weights, domain_names, domain_values, largest_weights, proposal_of
from pipeline.goals.weights.random_mixtures import RandomMethod, at_target, finished_mixtures, last_points, points_of
from pipeline.study.context import Context

if TYPE_CHECKING:
    from sklearn.ensemble import GradientBoostingRegressor

FOLDS = 5
SAMPLES = 50_000
Mean = Callable[[np.ndarray], np.ndarray]
"""Losses (k, m) -> their mean over domains (k,)."""
PLAIN_MEAN: Mean = partial(np.mean, axis=1)


def boosted_trees(shares: np.ndarray, loss: np.ndarray, seed: int = 0) -> GradientBoostingRegressor:
    """Trees fitted to shares (n, m) and losses (n,); `predict` takes shares (k, m).

    Source: Liu et al. 2024 (RegMix), arXiv:2407.01492, sec. 3.2, there with LightGBM and 512 mixtures. Histogram
    trees, as LightGBM's, need 20 mixtures a leaf, too many for a few dozen runs.
    """
    from sklearn.ensemble import GradientBoostingRegressor

    trees = GradientBoostingRegressor(n_estimators=500, learning_rate=0.05, subsample=0.5, random_state=seed)
    return trees.fit(shares, loss)


def mean_by_trees(shares: np.ndarray, losses: np.ndarray, mean: Mean = PLAIN_MEAN, seed: int = 0) -> Mean:
    """Shares (k, m) -> mean over domains (k,), as trees of each domain predict it.

    Trees of the mean itself rank unseen mixtures worse: .91 instead of .98 on 64 mixtures of 17 corpora.
    """
    trees = [boosted_trees(shares, column, seed) for column in losses.T]
    return lambda weights: mean(np.column_stack([tree.predict(weights) for tree in trees]))


def ranked(shares: np.ndarray, losses: np.ndarray, mean: Mean = PLAIN_MEAN, seed: int = 0) -> float:
    """Cross-validated Spearman correlation of the measured and the predicted mean over domains.

    `shares`, `losses` (n, m).
    """
    parts = np.random.default_rng(seed).permutation(len(losses)) % FOLDS
    predicted, measured = np.zeros(len(losses)), mean(losses)
    for part in range(FOLDS):
        out = parts == part
        predicted[out] = mean_by_trees(shares[~out], losses[~out], mean, seed)(shares[out])
    if not np.ptp(predicted) or not np.ptp(measured):
        # With few runs the trees may have no split.
        return 0.0
    return float(pd.Series(predicted).corr(pd.Series(measured), method="spearman"))


def _propose(context: Context) -> list[Proposal]:
    """The mean of the hundred best of many mixtures by the trees (RegMix, sec. 3.3)."""
    question, domains, runs = context.question, domain_names(context), finished_mixtures(context)
    ends = last_points(points_of(context, runs)).set_index("run")
    losses = ends.pivot(columns="corpus", values="loss")[list(domains)].astype(float)
    mixtures = ends[~ends.index.duplicated()].loc[losses.index, [f"mixture.{domain}" for domain in domains]]
    shares, losses = mixtures.to_numpy(float), losses.to_numpy()
    value = np.array(list(domain_values(question).values()))

    def mean(values: np.ndarray) -> np.ndarray:
        return AVERAGES[question.weights.average](values) @ value

    best = mixture_optimum(
        mean_by_trees(shares, losses, mean, question.seed),
        [float(weight) for weight in base_weights(context).values()],
        high=list(largest_weights(context, question.weights.target).values()),
        smooth=False,
        samples=SAMPLES,
        seed=question.seed,
    )
    rank = ranked(shares, losses, mean, question.seed)
    lines = (f"Spearman correlation of the trees on held-out mixtures: {rank:.2f}",)
    details = Details(numbers={"spearman": rank, "steps": question.weights.scales[0]})
    weights = dict(zip(domains, best.weights.tolist(), strict=True))
    predicted = at_target(context, {"mean": best.loss})
    return [proposal_of("regmix", weights, runs, predicted=predicted, lines=lines, details=details)]


REGMIX = RandomMethod(_propose)
"""Needs many mixtures (512 in the paper). Run length is no input, and there are no intervals."""
