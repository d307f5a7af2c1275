"""Boosted trees on random mixtures, beside the exponential law."""

import numpy as np
import pytest
from scipy.stats import spearmanr

import fitting
from pipeline.goals.weights.methods.random_mixtures import boosted_trees, mean_by_trees, ranked
from tests.fitting.mixtures.test_data_mixing import regmix


def mixtures_and_losses(part: str, *corpora: str) -> tuple[np.ndarray, np.ndarray]:
    """Mixtures (n, 17) and losses on some corpora (n, k)."""
    frames = [regmix(part, corpus) for corpus in corpora]
    return frames[0].filter(like="mixture.").to_numpy(), np.column_stack([frame["loss"] for frame in frames])


def test_trees_rank_unseen_mixtures_better_than_the_law_where_there_are_many():
    """How well the law ranks them is in test_data_mixing.py."""
    (mixtures, losses), (unseen, measured) = (mixtures_and_losses(part, "pile_cc") for part in ("train", "test"))
    by_trees = boosted_trees(mixtures, losses[:, 0]).predict(unseen)
    assert 100 * spearmanr(by_trees, measured[:, 0])[0] >= 99


def test_trees_of_each_corpus_rank_the_mean_better_than_trees_of_the_mean():
    corpora = ("arxiv", "freelaw", "pubmed_central")
    (mixtures, losses), (unseen, measured) = (mixtures_and_losses(part, *corpora) for part in ("train", "test"))
    seen, few = mixtures[:64], losses[:64]
    by_corpus = mean_by_trees(seen, few)(unseen)
    of_mean = boosted_trees(seen, few.mean(axis=1)).predict(unseen)
    each, mean = (spearmanr(predicted, measured.mean(axis=1))[0] for predicted in (by_corpus, of_mean))
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
    # Nor of other seeds of the same mixture.
    assert abs(ranked(np.repeat(mixtures, 3, axis=0), np.repeat(noise, 3, axis=0))) < 0.4
    # Trees that cannot part the runs rank nothing.
    assert ranked(np.eye(5), np.ones((5, 1))) == 0
