"""The share of a domain whose tokens are few."""

import numpy as np
import pytest

import fitting
from fitting.answers.grid_minimum import parabola_minima
from fitting.answers.limited_data import replay_below
from tests.fitting.given import given
from tests.fitting.synthetic import TRUE, grid, measured

MUSIC = {"E": 0.3, "A": 0.2, "B": 0.4, "C": 0.9, "alpha": 0.3, "beta": 0.4, "gamma": 0.3, "eta": 1.3, "eps": 0.05}
N = 1.8


def loss(params, r, tokens):
    return (
        params["E"] + params["A"] / N ** params["alpha"]
        + params["B"] * r ** params["eta"] * (r / tokens) ** params["beta"]
        + params["C"] / (r + params["eps"]) ** params["gamma"]
    )  # fmt: skip


@pytest.mark.parametrize("tokens", [0.5, 5.0, 40.0])
def test_the_ratio_is_the_least_of_a_fine_grid(tokens):
    answer = fitting.limited_data(given("dcpt", MUSIC), N, tokens)
    r = np.linspace(1e-3, 1, 1_000_001)
    assert answer["domain_ratio"] == pytest.approx(r[np.argmin(loss(MUSIC, r, tokens))], abs=2e-6)
    assert answer["D"] == pytest.approx(tokens / answer["domain_ratio"])
    assert answer.predicted["domain"].value == pytest.approx(loss(MUSIC, r, tokens).min(), abs=1e-12)


def test_replay_helps_exactly_below_the_corrected_eq_53():
    edge = replay_below(MUSIC)
    for tokens in (0.5 * edge, 0.99 * edge):
        inside = fitting.limited_data(given("dcpt", MUSIC), N, tokens)
        assert inside["domain_ratio"] < 1
        assert inside.status.message.startswith("domain tokens")
    for tokens in (1.01 * edge, 2 * edge):
        whole = fitting.limited_data(given("dcpt", MUSIC), N, tokens)
        assert whole["domain_ratio"] == 1.0
        assert whole.status.message.startswith("nothing: the domain's tokens suffice")
    assert whole["replay_below"] == edge
    # as printed the equation would move the edge away from where the slope at r = 1 changes sign
    step = 1e-6
    assert loss(MUSIC, 1.0, edge) == pytest.approx(loss(MUSIC, 1 - step, edge), abs=1e-11)


def test_no_c_no_reason_for_more_domain():
    assert replay_below({**MUSIC, "C": 0.0}) == np.inf
    assert replay_below({**MUSIC, "B": 0.0}) == 0.0


def test_intervals_of_a_fit_hold_the_truth_and_the_draws_are_minimised_one_by_one():
    points = measured(grid(evaluations=12, every=15_000), "dcpt", TRUE["dcpt"], 0.001, run_noise=0.001)
    fit = fitting.fit(points, "dcpt", bootstrap=20)
    answer = fitting.limited_data(fit, N, 0.05)
    r = np.linspace(1e-3, 1, 200_001)
    truth = r[np.argmin(loss(TRUE["dcpt"], r, 0.05))]
    ratio = answer.values["domain_ratio"]
    assert ratio.low < truth < ratio.high < ratio.low + 0.5
    each = [r[np.argmin(loss(dict(zip(fit.params, draw)), r, 0.05))] for draw in fit.draws]
    assert ratio.low == pytest.approx(np.quantile(each, 0.05), abs=1e-4)
    assert answer.predicted["domain"].low < answer.predicted["domain"].value < answer.predicted["domain"].high
    assert answer.warnings[0].startswith("domain: D = ")


def test_a_law_without_a_least_is_stopped_by_the_tokens_of_the_run():
    params = {**TRUE["dcpt-l1"], "B": 2.0, "C": 0.01}
    answer = fitting.limited_data(given("dcpt-l1", params), N, 1.0, most_tokens=20.0)
    assert answer["domain_ratio"] == pytest.approx(0.05)
    assert answer.status.message.startswith("most_tokens = 20")
    assert "nothing within reach" in fitting.limited_data(given("dcpt-l1", params), N, 1.0).status.message
    assert "replay_below" not in answer.values


def test_a_law_of_schedules_takes_its_columns_from_d():
    params = {"C2": 60.0, "C": 0.08, "G": 0.4, "eps": 0.02, "E": 500.0}
    fit = given("transfer-anchored", params, draws=10)

    def at(D):
        return {"s1": 0.05 * D, "s2": 0.0, "rho": 0.0, "s1_pretrain": 3.0, "loss_before": 3.0}

    answer = fitting.limited_data(fit, N, 2.0, at=at, most_tokens=200.0)
    r = np.linspace(0.01, 1, 99_001)
    s1 = 0.1 / r
    shift = 0.08 * np.log(0.02 / (r + 0.02)) * np.log1p(500 * s1) - 0.4 * np.log1p(s1 / 3.0)
    assert answer["domain_ratio"] == pytest.approx(r[np.argmin(shift)], abs=2e-5)


def test_the_vertex_of_each_curve_on_an_uneven_grid():
    x = np.array([0.0, 0.1, 0.3, 0.4, 1.0])
    tops = np.array([0.12, 0.35, -1.0, 2.0])
    assert parabola_minima(x, (x - tops[:, None]) ** 2) == pytest.approx([0.12, 0.35, 0.0, 1.0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"domain_tokens": 5e9}, "looks like raw tokens"),
        ({"domain_tokens": 0.0}, "domain_tokens = 0 must be above 0"),
        ({"domain_tokens": float("nan")}, "domain_tokens = nan"),
        ({"N": -1.0}, "N = -1"),
        ({"N": 1.8e9}, "looks like raw parameters"),
        ({"most_tokens": 1.0}, "most_tokens = 1 is below domain_tokens = 5"),
        ({"domain": given("chinchilla", TRUE["chinchilla"])}, "reads no r"),
        ({"domain": given("transfer-anchored", TRUE["transfer-anchored"])}, "reads no D: give at as a function"),
    ],
)
def test_bad_questions(change, message):
    asked = {"domain": given("dcpt", MUSIC), "N": N, "domain_tokens": 5.0, **change}
    with pytest.raises(fitting.PointsError, match=message):
        fitting.limited_data(**asked)
