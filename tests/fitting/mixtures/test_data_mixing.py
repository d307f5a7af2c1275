"""The loss on one corpus from the weights of all of them."""

import time

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

import fitting
from docs.studies.law_errors import DATA
from tests.fitting.test_public_data import need, objectives

NAMES = ("web", "code", "books", "math")
TRUE = {"c": 2.1, "k": 1.6, "t.web": -1.2, "t.code": 0.4, "t.books": -0.5}


def regmix(part: str, corpus: str) -> pd.DataFrame:
    """Mixtures of 17 Pile corpora at 1M parameters and their loss on one of them."""
    need("regmix_1m", "huggingface.co/datasets/sail/regmix-data")
    files = (DATA / "regmix_1m" / f"{part}_{name}_1m.csv" for name in ("mixture", "pile_loss"))
    mixtures, losses = (pd.read_csv(file, index_col="index") for file in files)
    mixtures.columns = [f"mixture.{name.removeprefix('train_the_pile_')}" for name in mixtures.columns]
    return mixtures.assign(loss=losses[f"metric/the_pile_{corpus}_val_loss"], run=mixtures.index)


def mixtures(count: int, seed: int = 0) -> pd.DataFrame:
    mixtures = np.random.default_rng(seed).dirichlet(np.ones(len(NAMES)), count)
    return pd.DataFrame(mixtures, columns=[f"mixture.{name}" for name in NAMES]).assign(run=range(count))


def loss_of(frame: pd.DataFrame) -> np.ndarray:
    power = sum(TRUE[f"t.{name}"] * frame[f"mixture.{name}"] for name in NAMES[:-1])
    return (TRUE["c"] + TRUE["k"] * np.exp(power)).to_numpy()


def test_regmix_ranks_unseen_mixtures():
    started = time.perf_counter()
    fit = fitting.fit(regmix("train", "pile_cc"), "data-mixing", bootstrap=0)
    assert time.perf_counter() - started < 10
    assert fit.n_points == 512
    unseen = regmix("test", "pile_cc")
    assert len(unseen) == 256
    assert 100 * spearmanr(fit.predict(unseen), unseen["loss"])[0] >= 96
    assert fit.params["t.pile_cc"] == min(value for name, value in fit.params.items() if name.startswith("t."))


@pytest.mark.parametrize("corpus", ["arxiv", "uspto_backgrounds"])
def test_first_guesses_reach_the_same_optimum(corpus):
    """The last is the corpus whose t is 0 by convention, which drives the others and k to their ends."""
    one, other = objectives(regmix("train", corpus), "data-mixing", range(2))
    assert one == pytest.approx(other, rel=1e-6)


def test_which_corpus_is_last_changes_no_prediction():
    points = mixtures(60)
    rng = np.random.default_rng(2)
    points = points.assign(loss=loss_of(points) * np.exp(0.01 * rng.standard_normal(60)))
    fit = fitting.fit(points, "data-mixing", bootstrap=0)
    other = fitting.fit(points[[*reversed(points.columns)]], "data-mixing", bootstrap=0)
    assert set(other.params) == {"c", "k", "t.math", "t.books", "t.code"}
    fresh = mixtures(20, seed=1)
    assert other.predict(fresh) == pytest.approx(fit.predict(fresh), rel=1e-6)


def test_a_saved_fit_knows_its_corpora():
    points = mixtures(30)
    fit = fitting.fit(points.assign(loss=loss_of(points)), "data-mixing", bootstrap=0)
    again = fitting.Fit.from_json(fit.to_json())
    assert again.predict(points).tolist() == fit.predict(points).tolist()
    with pytest.raises(fitting.PointsError, match=r"missing column: mixture\.web"):
        again.predict(points.drop(columns="mixture.web"))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda frame: frame[["mixture.web", "run", "loss"]], "two or more"),
        (lambda frame: frame.assign(**{"mixture.web": 0.9}), "sum to"),
        (lambda frame: frame.head(4), "too few"),
    ],
)
def test_refusals(change, says):
    points = mixtures(30)
    with pytest.raises(fitting.PointsError, match=says):
        fitting.fit(change(points.assign(loss=loss_of(points))), "data-mixing", bootstrap=0)
