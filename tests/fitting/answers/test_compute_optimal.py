"""Size and tokens for a budget of compute."""

import numpy as np
import pytest

import fitting
from fitting.answers.compute_optimal import closed_form
from tests.fitting.given import given
from tests.fitting.synthetic import TRUE, measured, small_plan


def test_the_papers_worked_number():
    """App. G.3: a = 0.6252, b = 0.3748, G = 4.1282, C = 5e19 give N = 15.54, D = 0.536."""
    beta, alpha = 0.6252, 0.3748
    A = 4.1282 ** (alpha + beta) * beta / alpha
    law = {"E": 1.0, "A": A, "B": 1.0, "alpha": alpha, "beta": beta}
    answer = fitting.compute_optimal(given("chinchilla", law), 5e19)
    assert (answer["a"], answer["b"], answer["G"]) == pytest.approx((0.6252, 0.3748, 4.1282))
    assert answer["N"] == pytest.approx(15.54, abs=0.005)
    assert answer["D"] == pytest.approx(0.536, abs=0.0005)
    assert 6 * answer["N"] * answer["D"] * 1e18 == pytest.approx(5e19)
    assert answer.status.message == "compute: 6 N D = 5e+19 FLOPs"


def brute(law: str, params: dict, budget: float, ratio: float | None = None) -> float:
    N = np.geomspace(1e-3, 1e4, 700_001)
    x = {"N": N, "D": budget / N, **({} if ratio is None else {"r": np.full(len(N), ratio)})}
    return N[np.argmin(fitting.LAWS[law].loss(x, params))]


@pytest.mark.parametrize(
    ("law", "ratio", "flops"), [("chinchilla", None, 1e18), ("dcpt", 0.3, 5e19), ("dcpt", 1.0, 1e21)]
)
def test_the_closed_form_is_the_least_of_a_fine_grid(law, ratio, flops):
    answer = fitting.compute_optimal(given(law, TRUE[law]), flops, ratio)
    assert answer["N"] == pytest.approx(brute(law, TRUE[law], flops / 6e18, ratio), rel=3e-5)


def test_at_a_ratio_the_law_is_chinchillas():
    p, r = TRUE["dcpt"], 0.3
    answer = fitting.compute_optimal(given("dcpt", p), 1e20, r)
    assert answer["E"] == pytest.approx(p["E"] + p["C"] / (r + p["eps"]) ** p["gamma"])
    assert answer["B"] == pytest.approx(p["B"] * r ** p["eta"])
    loss = answer["E"] + p["A"] / answer["N"] ** p["alpha"] + answer["B"] / answer["D"] ** p["beta"]
    assert answer.predicted["loss"].value == pytest.approx(loss)


def test_the_search_agrees_with_openais_own_closed_form_and_with_brute_force():
    params = {"A": 2.0, "aN": 0.076, "aD": 0.095, "d": 0.5}
    budget = 5e19 / 6e18
    answer = fitting.compute_optimal(given("openai", params), 5e19)
    p = params["aN"] / params["aD"]
    assert answer["N"] == pytest.approx((p * budget / params["d"]) ** (1 / (p + 1)), rel=1e-6)
    # dcpt-l1 at a ratio is Chinchilla's law as well, with its own B.
    fit = given("dcpt-l1", TRUE["dcpt-l1"], draws=30)
    found = fitting.compute_optimal(fit, 5e19, 0.4)
    assert found["N"] == pytest.approx(brute("dcpt-l1", TRUE["dcpt-l1"], budget, 0.4), rel=3e-5)
    assert found["N"] * found["D"] == pytest.approx(budget)
    assert set(found.values) == {"N", "D"}
    sizes = [closed_form(params, budget)["N"] for params in fit.param_draws]
    assert found.values["N"][1:] == pytest.approx(np.quantile(sizes, [0.05, 0.95]), rel=1e-4)


def test_intervals_hold_the_truth_and_extrapolation_is_said():
    fit = fitting.fit(
        measured(small_plan("chinchilla"), "chinchilla", TRUE["chinchilla"], 0.002, seed=1), "chinchilla", bootstrap=60
    )
    answer = fitting.compute_optimal(fit, 2e23)
    truth = closed_form(TRUE["chinchilla"], 2e23 / 6e18)
    for name in ("N", "D"):
        assert answer.values[name].low < truth[name] < answer.values[name].high
    assert answer.predicted["loss"].low < answer.predicted["loss"].value < answer.predicted["loss"].high
    assert [line.split(" = ")[0] for line in answer.warnings] == ["fit: N", "fit: D"]


def test_a_law_that_knows_no_best_size_says_so():
    with pytest.raises(fitting.PointsError, match="size does not matter"):
        fitting.compute_optimal(given("chinchilla", {**TRUE["chinchilla"], "A": 0.0}), 5e19)
    with pytest.raises(fitting.PointsError, match="number of tokens does not matter"):
        fitting.compute_optimal(given("dcpt", {**TRUE["dcpt"], "B": 0.0}), 5e19, 0.5)
    with pytest.raises(fitting.PointsError, match=r"the best N is .*e\+13 billion, which is impossible"):
        fitting.compute_optimal(given("chinchilla", {**TRUE["chinchilla"], "B": 1e-9}), 5e19)
    answer = fitting.compute_optimal(given("dcpt-l1", {**TRUE["dcpt-l1"], "A": 0.0}), 5e19, 0.5)
    assert answer.status.message.startswith("the search ends at N = ")


def test_a_law_of_schedules_is_asked_between_sizes():
    """Loss before and areas follow from N and D; the optimum is that of the law on a fine grid of sizes."""
    p, flops = TRUE["transfer-anchored"], 6e11
    neutral = {"r": 0.5, "rho": 0.0, "s2": 0.0, "s1_pretrain": 1.0}

    def at(N, D):
        return {**neutral, "loss_before": 4 + 0.4 * np.sqrt(1e-4 / N), "s1": 10.0 * D}

    N = np.geomspace(5e-5, 4e-3, 200_001)
    x = {name: np.broadcast_to(values, N.shape) for name, values in at(N, flops / 6e18 / N).items()}
    least = N[np.argmin(fitting.LAWS["transfer-anchored"].loss(x, p))]
    fit = given("transfer-anchored", p, draws=10)
    answer = fitting.compute_optimal(fit, flops, at=at, sizes=(5e-5, 4e-3))
    assert answer["N"] == pytest.approx(least, rel=1e-4)
    assert 5e-5 < answer.values["N"].low < answer["N"] < answer.values["N"].high < 4e-3
    small = fitting.compute_optimal(fit, flops, at=at, sizes=(5e-5, 0.9 * least))
    assert small["N"] == pytest.approx(0.9 * least)
    assert small.status.message == "the greatest size: a larger one would do better"
    dcpt = given("dcpt", TRUE["dcpt"])
    least = fitting.compute_optimal(dcpt, 5e19, 0.5)["N"]
    assert fitting.compute_optimal(dcpt, 5e19, 0.5, sizes=(least / 2, least * 2))["N"] == pytest.approx(least, rel=1e-4)
    large = fitting.compute_optimal(dcpt, 5e19, 0.5, sizes=(2 * least, 3 * least))
    assert large["N"] == pytest.approx(2 * least)
    assert large.status.message == "the least size: a smaller one, for longer, would do better"


@pytest.mark.parametrize(
    ("law", "flops", "ratio", "message"),
    [
        ("chinchilla", 50.0, None, "flops = 50 is not allowed: give raw FLOPs"),
        ("chinchilla", float("nan"), None, "flops = nan"),
        ("chinchilla", 5e19, 0.5, "reads no r: leave it out"),
        ("dcpt", 5e19, None, "reads r: give ratio"),
        ("dcpt", 5e19, 1.5, r"ratio = 1.5 is outside \[0, 1\]"),
        ("transfer-anchored", 5e19, 0.5, "reads no N and no D"),
        ("chinchilla", 5e19, None, r"sizes = \(2, 1\) is not allowed"),
    ],
)
def test_bad_questions(law, flops, ratio, message):
    sizes = (2, 1) if message.startswith("sizes") else None
    with pytest.raises(fitting.PointsError, match=message):
        fitting.compute_optimal(given(law, TRUE[law]), flops, ratio, sizes=sizes)
