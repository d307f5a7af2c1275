"""One fit over several corpora."""

import numpy as np
import pandas as pd
import pytest

import fitting
from fitting.fitted import BY_PRIOR
from tests.fitting.synthetic import TRUE, grid, measured, pretrained_and_continued, scheduled

PLANS = {
    "chinchilla": {"sizes": (0.2, 0.5, 1.8, 4.0), "ratios": (0.5, 0.6), "evaluations": 8, "every": 20_000},
    "dcpt": {"sizes": (0.5, 1.8, 4.0), "ratios": (0.1, 0.33, 0.67, 0.9), "evaluations": 5, "every": 30_000},
}


def corpora(law: str, shared=("alpha",), count=3, noise=0.004, same_runs=False) -> pd.DataFrame:
    """Points of several corpora whose parameters differ but for those shared."""
    frame, parts = grid(**PLANS[law]), []
    for i in range(count):
        params = {name: value * (1 if name in shared else 1 + 0.12 * i) for name, value in TRUE[law].items()}
        points = measured(frame, law, params, noise, seed=i, run_noise=noise / 2)
        parts.append(points.assign(corpus="abc"[i], run=points["run"] + (0 if same_runs else 100 * i)))
    return pd.concat(parts, ignore_index=True)


def of(points: pd.DataFrame, corpus: str) -> pd.DataFrame:
    return points[points["corpus"] == corpus]


def test_a_common_exponent_is_known_better_together():
    points = corpora("chinchilla")
    together = fitting.fit_shared(points, "chinchilla", ["alpha"], bootstrap=10, workers=1)
    assert list(together) == ["a", "b", "c"]
    assert len({fit.params["alpha"] for fit in together.values()}) == 1
    assert len({fit.params["beta"] for fit in together.values()}) == 3
    low, high = together["a"].intervals()["alpha"]
    assert low < TRUE["chinchilla"]["alpha"] < high
    for corpus, fit in together.items():
        alone = fitting.fit(of(points, corpus), "chinchilla", bootstrap=2, workers=1)
        ends = alone.intervals()["alpha"]
        assert high - low < 0.75 * (ends[1] - ends[0])
        assert fit.objective >= alone.objective * (1 - 1e-9)
        assert fit.n_points == alone.n_points == 64
        assert fit.n_runs == alone.n_runs == 8
        assert fit.draws.shape == (10, 5)


@pytest.mark.parametrize("law", ["chinchilla", "dcpt"])
def test_nothing_shared_is_separate_fits(law):
    points = corpora(law, count=2)
    together = fitting.fit_shared(points, law, (), bootstrap=0, method=fitting.VarPro(prior=False))
    for corpus, fit in together.items():
        alone = fitting.fit(of(points, corpus), law, bootstrap=0, method=fitting.VarPro(prior=False))
        assert fit.objective == pytest.approx(alone.objective, rel=1e-6)
        assert fit.predict(of(points, corpus)) == pytest.approx(alone.predict(of(points, corpus)), rel=1e-3)
        assert fit.metrics["aicc"] == pytest.approx(alone.metrics["aicc"], rel=1e-3)
        assert fit.constants == alone.constants


def test_columns_that_change_their_sign_are_fitted_to_several_corpora():
    plan = pretrained_and_continued()
    plan["r"] = np.where(plan["s1"] > 0, plan.groupby("run").ngroup() % 5 / 4, 1.0)
    truth = {**TRUE["dynamics"], "a1": 0.1, "a2": -6.0}
    of_corpus = {corpus: {**truth, "B": B} for corpus, B in (("a", -0.001), ("b", -0.0005))}
    parts = [measured(plan, "dynamics-replay", of, 0.0).assign(corpus=corpus) for corpus, of in of_corpus.items()]
    fits = fitting.fit_shared(pd.concat(parts, ignore_index=True), "dynamics-replay", ["alpha", "a2"], bootstrap=0)
    assert {corpus: fit.params for corpus, fit in fits.items()} == {
        corpus: pytest.approx(of, rel=1e-2) for corpus, of in of_corpus.items()
    }


def test_what_the_prior_decides_is_said_of_each_corpus():
    points = corpora("chinchilla", count=2)
    one_size = points[(points["corpus"] == "a") | (points["N"] == 0.5)]
    alone = fitting.fit(of(points, "a"), "chinchilla", bootstrap=2, workers=1)
    fits = fitting.fit_shared(one_size, "chinchilla", ["beta"], bootstrap=2, workers=1, few=True)
    assert fits["a"].prior_shares["alpha"] == pytest.approx(alone.prior_shares["alpha"], rel=0.5)
    assert fits["a"].prior_shares["alpha"] < 0.1
    assert fits["b"].prior_shares["alpha"] > BY_PRIOR
    assert fits["a"].prior_shares["beta"] == fits["b"].prior_shares["beta"] < alone.prior_shares["beta"]
    assert "Decided by the weak prior more than by the points: E, A, alpha." in fits["b"].explain()
    assert "alpha" not in fits["b"].profiles


def test_each_fit_speaks_of_its_own_corpus():
    points = corpora("chinchilla", count=2).sample(frac=1, random_state=0)
    fits = fitting.fit_shared(points, "chinchilla", ["alpha"], bootstrap=20, workers=1)
    for corpus, fit in fits.items():
        own = of(points, corpus)
        residuals = fit.residuals.loc[own.index].to_numpy()
        assert np.log(own["loss"].to_numpy()) - np.log(fit.predict(own)) == pytest.approx(residuals, abs=1e-12)
        assert set(fit.leverage.index) == set(own["run"])
        low, high = fit.predict_interval(own)
        assert np.mean((low < own["loss"]) & (own["loss"] < high)) > 0.7
        assert fit.profile("beta").interval() == pytest.approx(fit.intervals()["beta"])
        assert fit.params["beta"] in fit.profile("beta").values
        assert "chinchilla was fitted to 64 points of 8 runs" in fit.explain()
        saved = fitting.Fit.from_json(fit.to_json())
        assert saved.params == fit.params
        assert saved.identified == fit.identified
    assert fits["a"].intervals()["beta"] != fits["b"].intervals()["beta"]


def test_a_corpus_with_too_few_points_borrows_from_the_others():
    points = corpora("chinchilla", shared=("alpha", "beta", "A", "B"), noise=0.0)
    few = of(points, "c").sample(3, random_state=0)
    points = pd.concat([points[points["corpus"] != "c"], few])
    with pytest.raises(fitting.PointsError, match="too few"):
        fitting.fit(few, "chinchilla", bootstrap=0)
    fits = fitting.fit_shared(points, "chinchilla", ["alpha", "beta", "A", "B"], bootstrap=0)
    assert fits["c"].n_points == 3
    assert fits["c"].params["E"] == pytest.approx(TRUE["chinchilla"]["E"] * 1.24, rel=1e-3)


def test_a_given_parameter_is_given_to_every_corpus():
    points = corpora("chinchilla", count=2)
    fits = fitting.fit_shared(points, "chinchilla", ["alpha"], fix={"E": 1.7, "alpha": 0.35}, bootstrap=0)
    for fit in fits.values():
        assert fit.params["E"] == 1.7
        assert fit.params["alpha"] == 0.35
        assert fit.fixed == ["E", "alpha"]


def test_weights_follow_their_points():
    points = corpora("chinchilla", count=2).sample(frac=1, random_state=1)
    weights = np.where(points["corpus"] == "a", 1.0, 0.25) * (1 + points["N"].to_numpy())
    fits = fitting.fit_shared(
        points, "chinchilla", (), point_weights=weights, bootstrap=0, method=fitting.VarPro(prior=False)
    )
    chosen = (points["corpus"] == "b").to_numpy()
    alone = fitting.fit(
        points[chosen], "chinchilla", point_weights=weights[chosen], bootstrap=0, method=fitting.VarPro(prior=False)
    )
    assert fits["b"].objective == pytest.approx(alone.objective, rel=1e-6)
    assert fits["b"].params == pytest.approx(alone.params, rel=1e-3)


def test_dcpt_stays_monotone_in_each_corpus():
    """Points of the second corpus that rise with r, which the law must not follow."""
    points = corpora("dcpt", shared=("alpha", "eps"), count=2, noise=0.0)
    rising = (points["corpus"] == "b").to_numpy()
    points["loss"] = np.where(rising, points["loss"] + 0.3 * points["r"], points["loss"])
    fits = fitting.fit_shared(points, "dcpt", ["alpha"], bootstrap=0)
    ratios = pd.DataFrame({"r": np.linspace(0.1, 1, 50), "N": 1.8, "D": points["D"].min()})
    for fit in fits.values():
        assert np.all(np.diff(fit.predict(ratios)) <= 1e-9)
    assert fits["a"].metrics["r2"] > 0.999


def test_lambda_and_an_unknown_column_are_fitted_in_common():
    frame, schedules = scheduled(decay=0.9, ratios=(0.0, 0.1, 0.5, 1.0))
    frame = frame[frame["step"] > 0]
    parts = []
    for i, corpus in enumerate("ab"):
        truth = {**TRUE["transfer-anchored"], "C": 0.08 * (1 + i)}
        parts.append(measured(frame, "transfer-anchored", truth, 0.001, seed=i).assign(corpus=corpus))
    points = pd.concat(parts, ignore_index=True).drop(columns="s1_pretrain")
    options = {"schedules": schedules, "unknown": ["s1_pretrain"], "bootstrap": 0}
    fits = fitting.fit_shared(points, "transfer-anchored", ["C2", "s1_pretrain"], **options)
    assert fits["a"].params["lambda"] == fits["b"].params["lambda"] == pytest.approx(0.9, abs=0.005)
    assert fits["a"].params["s1_pretrain"] == fits["b"].params["s1_pretrain"] == pytest.approx(3.0, rel=0.3)
    assert fits["b"].params["C"] == pytest.approx(0.16, rel=0.02)
    assert "s1_pretrain" not in fits["b"].equation.columns
    held = fitting.fit_shared(points, "transfer-anchored", ["C2"], **{**options, "fix": {"lambda": 0.9}})
    assert [fit.constants for fit in held.values()] == [{"lambda": 0.9}] * 2


def test_offsets_and_signs_of_a_law_are_kept():
    x = np.array([0.2, 0.5, 1.0, 2.0, 4.0])
    truth = {"p": (2.0, -0.05), "q": (3.0, 0.7)}
    frames = [
        pd.DataFrame({"x": x, "loss": (x + a) ** -1.5 + c, "corpus": name, "run": [f"{name}{i}" for i in range(5)]})
        for name, (a, c) in truth.items()
    ]
    fits = fitting.fit_shared(pd.concat(frames), "ddo", ["b"], bootstrap=0)
    for name, (a, c) in truth.items():
        assert fits[name].params == pytest.approx({"a": a, "b": 1.5, "c": c}, rel=1e-4)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"shared": ["gamma"]}, "no parameter gamma"),
        ({"fix": {"Z": 1.0}}, "no parameter 'Z'"),
        ({"law": "dcpt", "shared": ["B"]}, "share exponents only"),
        ({"law": "chincilla"}, "did you mean"),
    ],
)
def test_refusals(change, says):
    points = corpora("dcpt", count=2)
    with pytest.raises(fitting.PointsError, match=says):
        fitting.fit_shared(**{"points": points, "law": "chinchilla", "shared": ["alpha"], "bootstrap": 0, **change})
