"""From fits of each corpus to the weights of all: laws with known parameters, limits, intervals."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import fitting
from tests.fitting.given import given

NAMES = ("web", "code", "math")
LAWS = {
    "web": {"c": 2.0, "k": 1.0, "t.web": -2.0, "t.code": 0.2},
    "code": {"c": 1.5, "k": 2.0, "t.web": 0.3, "t.code": -3.0},
    "math": {"c": 1.8, "k": 0.4, "t.web": 0.9, "t.code": 1.2},
}
COLUMNS = [f"mixture.{name}" for name in NAMES]


def runs(count: int = 40, noise: float = 0.002, seed: int = 0) -> pd.DataFrame:
    """Points of each corpus at random mixtures."""
    mixtures = pd.DataFrame(fitting.dirichlet_mixtures(np.ones(3), count, concentration=(2, 10)), columns=COLUMNS)
    parts = []
    for number, (name, params) in enumerate(LAWS.items()):
        power = params["t.web"] * mixtures["mixture.web"] + params["t.code"] * mixtures["mixture.code"]
        errors = np.random.default_rng([seed, number]).standard_normal(count)
        loss = (params["c"] + params["k"] * np.exp(power)) * np.exp(noise * errors)
        parts.append(mixtures.assign(run=range(count), corpus=name, loss=loss))
    return pd.concat(parts, ignore_index=True)


def fits(points: pd.DataFrame, bootstrap: int = 0) -> dict[str, fitting.Fit]:
    return {
        name: fitting.fit(points[points["corpus"] == name], "data-mixing", bootstrap=bootstrap, workers=1)
        for name in NAMES
    }


def truth(weights: np.ndarray) -> np.ndarray:
    """Losses (corpora, n) by the planted laws."""
    t = np.array([[p["t.web"], p["t.code"], 0.0] for p in LAWS.values()])
    c, k = (np.array([p[name] for p in LAWS.values()])[:, None] for name in ("c", "k"))
    return c + k * np.exp(t @ weights.T)


def planted(value=(1, 1, 1), **bounds) -> fitting.MixtureOptimum:
    worth = np.array(value) / sum(value)
    return fitting.mixture_optimum(lambda w: worth @ truth(w), np.ones(3), **bounds)


def test_fits_of_random_mixtures_lead_to_the_planted_optimum():
    answer = fitting.best_mixture(fits(runs(noise=0)))
    best = planted()
    assert [answer[name] for name in NAMES] == pytest.approx(best.weights, abs=1e-3)
    assert answer["mean"] == pytest.approx(best.loss, abs=1e-5)
    assert [answer.predicted[name].value for name in NAMES] == pytest.approx(truth(best.weights[None])[:, 0], abs=1e-3)
    assert answer.status.message.startswith("nothing")


def test_limits_largest_shares_and_values_shape_the_answer():
    known = fits(runs(noise=0))
    free = fitting.best_mixture(known)
    cap = free.predicted["web"].value - 0.1
    limited = fitting.best_mixture(known, {"code": 3, "math": 1}, limits={"web": cap}, high={"code": 0.4})
    assert limited.predicted["web"].value == pytest.approx(cap, abs=1e-5)
    wanted = planted((0, 3, 1), high=[1, 0.4, 1], limit=lambda w: truth(w)[0] - cap)
    assert [limited[name] for name in NAMES] == pytest.approx(wanted.weights, abs=2e-3)
    assert f"web reaches its limit, {cap:.4f}" in limited.status.message
    tight = fitting.best_mixture(known, {"code": 1}, high={"code": 0.4})
    assert tight["code"] == pytest.approx(0.4)
    assert "code is held at its largest weight, 0.400" in tight.status.message


def test_a_limit_out_of_reach_is_told():
    answer = fitting.best_mixture(fits(runs(noise=0)), limits={"web": 2.0})
    assert answer.status.message.startswith("infeasible: no mixture keeps web at 2.0000 or below; the least is 2.13")
    assert answer["web"] == pytest.approx(1)


def test_perplexity_weighs_the_worst_corpus_more():
    known = fits(runs(noise=0))
    by_loss, by_perplexity = (fitting.best_mixture(known, average=name) for name in ("loss", "perplexity"))
    worst = max(NAMES, key=lambda name: by_loss.predicted[name].value)
    assert by_perplexity.predicted[worst].value < by_loss.predicted[worst].value - 0.01


def test_intervals_hold_the_planted_optimum():
    answer = fitting.best_mixture(fits(runs(30, 0.005), bootstrap=40))
    inside = []
    for share, name in zip(planted().weights, NAMES):
        value, low, high = answer.values[name]
        assert 0 <= low <= value <= high <= 1
        assert 0.003 < high - low < 0.25
        inside.append(low <= share <= high)
    assert sum(inside) >= 2
    assert answer.predicted["web"].low < answer.predicted["web"].value < answer.predicted["web"].high


def test_laws_of_the_own_share_answer_for_several_corpora():
    dcpt = {"E": 1.5, "A": 0.0, "B": 0.02, "C": 0.6, "alpha": 0.3, "beta": 0.3, "gamma": 0.4, "eta": 1.2, "eps": 0.05}
    known = {name: given("dcpt", {**dcpt, "C": C}) for name, C in (("web", 0.5), ("code", 0.5), ("math", 1.0))}
    at = {name: {"N": 1e-3, "D": 1e-3} for name in NAMES}
    answer = fitting.best_mixture(known, at=at)
    assert answer["web"] == pytest.approx(answer["code"], abs=1e-4)
    assert answer["math"] > answer["web"] + 0.05
    r = np.array([answer[name] for name in NAMES])
    drop = 0.02 * 1.2 * r**0.2 * 1e-3**-0.3 - 0.4 * np.array([0.5, 0.5, 1.0]) * (r + 0.05) ** -1.4
    assert drop == pytest.approx(np.full(3, drop[0]), abs=1e-3)
    with pytest.raises(fitting.PointsError, match="reads N, D"):
        fitting.best_mixture(known)


def test_a_law_of_the_own_share_tells_what_a_longer_run_changes():
    known = fits(runs(noise=0))
    params = {"E": 1.0, "A": 0.0, "B": 0.0, "C": 1.0, "alpha": 0.3, "beta": 0.3, "gamma": 0.5, "eta": 1.2, "eps": 0.04}
    at = {"N": 1e-3, "D": 1e-3}
    same = fitting.Longer(given("dcpt", params), at, at)
    free = fitting.best_mixture(known)
    unchanged = fitting.best_mixture(known, longer=dict.fromkeys(NAMES, same))
    assert [unchanged[name] for name in NAMES] == pytest.approx([free[name] for name in NAMES], abs=1e-4)
    # Twice the tokens lower the loss on web by what its own law says, at the share where the answer lies.
    falls = fitting.Longer(given("dcpt", {**params, "B": 0.05}), at, {**at, "D": 2e-3})
    longer = fitting.best_mixture(known, longer={"web": falls})
    r = longer["web"]
    short, long = (1 + (r + 0.04) ** -0.5 + 0.05 * r**1.2 * D**-0.3 for D in (1e-3, 2e-3))
    here = truth(np.array([[longer[name] for name in NAMES]]))[0, 0]
    assert longer.predicted["web"].value == pytest.approx(here * long / short, rel=1e-3)
    assert longer["web"] > free["web"] + 0.002


def test_what_is_not_known_of_a_longer_run_widens_the_interval_of_its_loss():
    params = {"E": 1.0, "A": 0.0, "B": 0.05, "C": 1.0, "alpha": 0.3, "beta": 0.3, "gamma": 0.5, "eta": 1.2, "eps": 0.04}
    at, known = {"N": 1e-3, "D": 1e-3}, {name: given("data-mixing", LAWS[name], draws=20, wobble=0.0) for name in NAMES}
    known = {
        name: replace(fit, columns=COLUMNS, ranges=dict.fromkeys(COLUMNS, (0.0, 1.0))) for name, fit in known.items()
    }
    width = {}
    for wobble in (0.0, 0.5):
        longer = fitting.Longer(given("dcpt", params, draws=20, wobble=wobble), at, {**at, "D": 4e-3})
        _, low, high = fitting.best_mixture(known, longer={"web": longer}).predicted["web"]
        width[wobble] = high / low - 1
    assert width[0.0] == pytest.approx(0.004, abs=1e-3)
    assert width[0.5] > 0.05


def test_a_share_beyond_the_runs_is_told():
    points = runs(noise=0)
    seen = points[points["mixture.code"] < 0.3]
    answer = fitting.best_mixture(fits(seen), {"code": 1})
    lines = [line for line in answer.warnings if "of code is beyond those that were run" in line]
    assert len(lines) == 1
    assert lines[0].startswith("web, code, math: a weight of")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"value": {"law": 1}}, "among web, code, math"),
        ({"limits": {"law": 1.0}}, "law: no fit of that name"),
        ({"average": "bits"}, "loss and perplexity"),
    ],
)
def test_refusals(words, says):
    with pytest.raises(fitting.PointsError, match=says):
        fitting.best_mixture(fits(runs(20)), **words)
