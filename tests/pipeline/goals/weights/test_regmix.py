"""Boosted trees on random mixtures, beside the exponential law."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

import fitting
from pipeline.goals.weights.methods.random_mixtures import boosted_trees, mean_by_trees, ranked

ROOT = Path(__file__).parents[3]
DATA = ROOT / os.environ.get("CPTLAW_PUBLIC_DATA", "../shared/data") / "regmix_1m"


def regmix(part: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Mixtures of 17 Pile corpora at 1M parameters, and losses on 13 of them."""
    if not DATA.exists():
        pytest.skip(f"no {DATA}; its source: huggingface.co/datasets/sail/regmix-data")
    mixtures = pd.read_csv(DATA / f"{part}_mixture_1m.csv", index_col="index")
    losses = pd.read_csv(DATA / f"{part}_pile_loss_1m.csv", index_col="index")
    losses.columns = losses.columns.str.removeprefix("metric/the_pile_").str.removesuffix("_val_loss")
    return mixtures.rename(columns=lambda name: f"mixture.{name.removeprefix('train_the_pile_')}"), losses


def test_trees_rank_unseen_mixtures_better_than_the_law_where_there_are_many():
    (mixtures, losses), (unseen, measured) = regmix("train"), regmix("test")
    loss, wanted = losses["pile_cc"].to_numpy(), measured["pile_cc"]
    by_trees = boosted_trees(mixtures.to_numpy(), loss).predict(unseen.to_numpy())
    law = fitting.fit(mixtures.assign(loss=loss, run=mixtures.index), "data-mixing", bootstrap=0)
    trees, exponential = (100 * spearmanr(each, wanted)[0] for each in (by_trees, law.predict(unseen)))
    assert trees >= 99
    assert 96 <= exponential < trees


def test_trees_of_each_corpus_rank_the_mean_better_than_trees_of_the_mean():
    (mixtures, losses), (unseen, measured) = regmix("train"), regmix("test")
    seen, few = mixtures.to_numpy()[:64], losses.to_numpy()[:64, :3]
    by_corpus = mean_by_trees(seen, few)(unseen.to_numpy())
    of_mean = boosted_trees(seen, few.mean(axis=1)).predict(unseen.to_numpy())
    wanted = measured.to_numpy()[:, :3].mean(axis=1)
    each, mean = (spearmanr(predicted, wanted)[0] for predicted in (by_corpus, of_mean))
    assert each > 0.96
    assert each > mean + 0.02


def test_a_planted_optimum_is_found():
    def loss(weights: np.ndarray) -> np.ndarray:
        # Each domain likes its own text best, the first most.
        return 2 + np.array([1.5, 1.0, 1.0, 0.5]) * np.exp(-4 * weights)

    weights = fitting.dirichlet_mixtures(np.ones(4), 80, concentration=(1, 10))
    by_trees, best = (
        fitting.mixture_optimum(mean, np.ones(4), smooth=smooth, samples=2000)
        for mean, smooth in ((mean_by_trees(weights, loss(weights)), False), (lambda w: loss(w).mean(axis=1), True))
    )
    assert best.weights == pytest.approx([0.369, 0.268, 0.268, 0.095], abs=0.001)
    assert by_trees.weights == pytest.approx(best.weights, abs=0.05)


@pytest.mark.slow
def test_how_well_trees_rank_is_told_of_mixtures_that_they_have_not_seen():
    mixtures = fitting.dirichlet_mixtures(np.ones(2), 30, concentration=(1, 10))
    noise = np.random.default_rng(0).standard_normal((30, 1))
    # Noise can be learned by heart, and is not known of others.
    assert ranked(mixtures, mixtures[:, :1]) > 0.95
    assert abs(ranked(mixtures, noise)) < 0.4
    # Trees that cannot part the runs rank nothing.
    assert ranked(np.eye(5), np.ones((5, 1))) == 0
