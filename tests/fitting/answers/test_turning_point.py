"""Where a loss that rises turns, how long until it is back, and how much pre-training is too much."""

import numpy as np
import pytest
from scipy.optimize import brentq

import fitting
from fitting.answers.inflection import inflection_ratio_at
from fitting.answers.loss_potential import with_potential
from fitting.answers.turning_point import ratio_of_no_return
from tests.fitting.answers.test_loss_curve import DYNAMICS as SHIFTED
from tests.fitting.given import given
from tests.fitting.refusal import refused
from tests.fitting.synthetic import TRUE

DYNAMICS = {**SHIFTED, "B": 0.1}
PAST = {"s1_pretrain": 2.0, "s2_pretrain": 0.5}
RATE = 1e-3
TRANSFER = {"C2": 60.0, "C": 0.3, "G": 0.4, "eps": 0.02, "E": 50.0, "lambda": 0.9}
GENERAL = {"rho": 1.0, "s1_pretrain": 3.0, "loss_before": 3.0}


def eq_4(t, p, s1_pretrain):
    s1 = RATE * t
    return p["A"] * (s1_pretrain + s1) ** -p["alpha"] + p["B"] * (1 - (1 + p["E"] * s1) ** -p["beta"])


def test_at_a_constant_rate_it_is_the_first_step_that_is_back():
    answer = fitting.turning_length(given("dynamics", DYNAMICS, draws=30), RATE, at=PAST)
    t = np.arange(1, 2_000_000)
    back = eq_4(t, DYNAMICS, 2.0) <= eq_4(0, DYNAMICS, 2.0)
    assert answer["turning_length"] == t[np.argmax(back)] > 1000
    length = answer.values["turning_length"]
    assert length.low < length.value < length.high
    assert answer.status.message == "the loss is back where it began"
    assert answer.predicted["after"].value == pytest.approx(answer.predicted["before"].value, abs=1e-4)
    assert answer.predicted["after"].value <= answer.predicted["before"].value


def test_it_never_comes_back_once_pre_training_is_long_enough():
    critical = (DYNAMICS["A"] / DYNAMICS["B"]) ** (1 / DYNAMICS["alpha"])
    fit = given("dynamics", DYNAMICS)
    after = fitting.turning_length(fit, RATE, at={**PAST, "s1_pretrain": 1.01 * critical})
    assert after["turning_length"] == np.inf
    assert after.status.message.startswith("no number of steps brings the loss back: it stays +")
    before = fitting.turning_length(fit, RATE, at={**PAST, "s1_pretrain": 0.6 * critical})
    assert 1 < before["turning_length"] < np.inf


@pytest.mark.parametrize("r", [0.55, 0.9])
def test_the_transfer_law_agrees_with_its_root(r):
    fit = given("transfer-anchored", TRANSFER)
    answer = fitting.turning_length(fit, RATE, at={**GENERAL, "r": r})
    c = 0.3 * np.log(1.02 / (r + 0.02))
    # Between the highest point and one where the loss is surely back.
    ends = (c * 150 - 0.4) / (50 * (0.4 - c)), 3 * np.expm1(c / (0.4 - c) * np.log1p(150))
    s1 = brentq(lambda s1: c * np.log1p(50 * s1) - 0.4 * np.log1p(s1 / 3), *ends)
    assert answer["turning_length"] == pytest.approx(s1 / RATE, abs=1, rel=1e-9)
    assert answer["turning_length"] == np.ceil(answer["turning_length"])


def test_a_warm_up_to_a_higher_rate_takes_longer():
    fit = given("transfer-anchored", TRANSFER)
    at = {**GENERAL, "r": 0.7}
    steady = fitting.turning_length(fit, RATE, at=at)["turning_length"]
    warm = fitting.turning_length(fit, RATE, before=0.0, at=at)["turning_length"]
    rise = 60.0 * RATE / (1 - 0.9)
    s1 = RATE * np.arange(1, 3_000_000)
    c = 0.3 * np.log(1.02 / 0.72)
    change = c * np.log1p(50 * s1) - 0.4 * np.log1p(s1 / 3.0) + rise
    assert warm == 1 + np.argmax(change <= 0) > steady


def test_a_schedule_is_looked_at_step_by_step_and_no_further():
    fit = given("dynamics", {**DYNAMICS, "C2": 3.0}, draws=10)
    rates = np.r_[np.full(200, RATE), np.linspace(RATE, 0, 200)]
    answer = fitting.turning_length(fit, rates, before=RATE, at=PAST)
    curve = fitting.loss_curve(fit, rates, before=RATE, at=PAST)["loss"].to_numpy()
    assert answer["turning_length"] == 1 + np.argmax(curve[1:] <= curve[0]) > 200
    short = fitting.turning_length(fit, rates[:200], before=RATE, at=PAST)
    assert short["turning_length"] == np.inf
    assert short.status.message.startswith("not within the schedule's 200 steps: the loss ends +")
    assert set(short.predicted) == {"before"}


def test_the_start_is_the_last_rate_of_pre_training():
    fit = given("dynamics", DYNAMICS)
    pretrain = np.r_[np.full(700, 3e-3), np.linspace(3e-3, RATE, 100)]
    by_default = fitting.turning_length(fit, RATE, pretrain=pretrain)["turning_length"]
    assert by_default == fitting.turning_length(fit, RATE, pretrain=pretrain, before=RATE)["turning_length"]
    assert by_default != fitting.turning_length(fit, RATE, pretrain=pretrain, before=2 * RATE)["turning_length"]


def test_draws_that_never_come_back_are_counted():
    fit = given("dynamics", DYNAMICS, draws=40, wobble=0.3)
    answer = fitting.turning_length(fit, RATE, at={**PAST, "s1_pretrain": 15.0})
    assert any("of the bootstrap fits never come back" in line for line in answer.warnings)
    assert answer.values["turning_length"].high == np.inf


def test_bad_questions():
    fit = given("dynamics", DYNAMICS)
    refused("rates = 0: a constant rate must be above 0", fitting.turning_length, fit, 0.0, at=PAST)
    refused("reads s1_pretrain, s2_pretrain", fitting.turning_length, fit, RATE)
    refused("no value at D = 0", fitting.turning_length, given("dcpt", TRUE["dcpt"]), RATE, at={"N": 1.0, "r": 0.5})
    refused("one-dimensional", fitting.turning_length, fit, [[1e-3]], at=PAST)


def test_the_paper_s_critical_point_of_eq_4():
    """The level to which the curve on the new data alone converges, and the pre-training that is already there."""
    answer = fitting.critical_point(given("dynamics", DYNAMICS, draws=30), RATE, at=PAST)
    p = DYNAMICS
    assert answer["critical_loss"] == pytest.approx(p["L0"] - p["C1"] * 0.5 + p["B"])
    s1_pretrain = answer.values["critical_s1_pretrain"]
    assert s1_pretrain.value == pytest.approx((p["A"] / p["B"]) ** (1 / p["alpha"]))
    assert s1_pretrain.low < s1_pretrain.value < s1_pretrain.high


@pytest.mark.parametrize(
    ("law", "before", "extra"),
    [
        ("dynamics", RATE, {}),
        ("dynamics-replay", RATE / 2, {"a1": 0.05, "a2": 3.0}),
        ("dynamics-size", 2 * RATE, {"g1": 0.1, "g2": 0.1, "g3": 0.3, "F": 0.5}),
        ("dynamics-power", RATE, {"zeta1": 0.9, "zeta2": 0.9}),
    ],
)
def test_less_pre_training_comes_back_and_more_does_not(law, before, extra):
    fit = given(law, {**DYNAMICS, **extra})
    at = {"r": 0.33, "N": 0.4, **PAST}
    critical = fitting.critical_point(fit, RATE, before=before, at=at)["critical_s1_pretrain"]

    def rise_at_the_end(s1_pretrain):
        loss = fitting.loss_curve(fit, [RATE], before=before, at={**at, "s1_pretrain": s1_pretrain})["loss"]
        x = {**{k: np.array([float(v)]) for k, v in at.items()}, "s1_pretrain": np.array([s1_pretrain])}
        x |= {"s1": np.array([1e60]), "s2": np.array([(before - RATE) / (1 - 0.99)])}
        return float(fit.equation.loss(x, fit.params)[0]) - loss[0]

    assert rise_at_the_end(0.99 * critical) < 0 < rise_at_the_end(1.01 * critical)


def test_a_loss_that_only_falls_is_back_at_once_and_never_past_its_critical_point():
    fit = given("dynamics", {**DYNAMICS, "B": -0.2})
    back = fitting.turning_length(fit, RATE, at=PAST)
    assert back["turning_length"] == 1
    assert back.status.message == "nothing: the loss never rises"
    answer = fitting.critical_point(fit, RATE, at=PAST)
    assert answer["critical_s1_pretrain"] == np.inf
    assert answer["step"] == answer["s1"] == 0
    assert answer.status.message == "nothing: the loss never rises above where it began"


def test_a_loss_that_falls_with_the_rate_before_it_rises_is_back_after_the_rise():
    """As where a pre-training at a constant rate goes on at a lower one."""
    params, at = {**TRANSFER, "C2": 2.0, "E": 5.0, "lambda": 0.99}, {**GENERAL, "r": 0.4}
    answer = fitting.turning_length(given("transfer-anchored", params), RATE, before=3 * RATE, at=at)
    t = np.arange(1, 200_000)
    s1, fallen = RATE * t, 2.0 * 2 * RATE * (1 - 0.99**t) / (1 - 0.99)
    change = 0.3 * np.log(1.02 / 0.42) * np.log1p(5 * s1) - 0.4 * np.log1p(s1 / 3) - fallen
    risen = int(np.argmax(change > 0))
    assert change[0] < 0 < change.max()
    assert answer["turning_length"] == t[risen + np.argmax(change[risen:] <= 0)]
    assert answer.status.message == "the loss is back where it began"
    # And where it never does after the rise.
    never = fitting.turning_length(
        given("transfer-anchored", params), RATE, before=3 * RATE, at={**at, "r": ratio_of_no_return(params, 1.0) - 0.1}
    )
    assert never["turning_length"] == np.inf


def test_the_peak_is_the_highest_step():
    answer = fitting.critical_point(given("dynamics", DYNAMICS, draws=10), RATE, at=PAST)
    t = np.arange(0, 200_000)
    highest = t[np.argmax(eq_4(t, DYNAMICS, 2.0))]
    assert answer["step"] == pytest.approx(highest, rel=0.005)
    assert answer["s1"] == pytest.approx(RATE * answer["step"])
    assert answer.predicted["highest"].value == pytest.approx(2.5 - 0.14 + eq_4(highest, DYNAMICS, 2.0), abs=1e-7)
    rates = np.full(3000, RATE)
    whole = fitting.critical_point(given("dynamics", DYNAMICS), rates, before=RATE, at=PAST)
    assert whole["step"] == highest
    cut = fitting.critical_point(given("dynamics", DYNAMICS), rates[:50], before=RATE, at=PAST)
    assert cut["step"] == np.inf
    assert cut.status.message == "the loss still rises at the end"


def test_the_transfer_law_s_peak_is_the_highest_of_a_fine_grid():
    r = 0.7
    answer = fitting.critical_point(given("transfer-anchored", TRANSFER), RATE, at={**GENERAL, "r": r})
    s1 = np.geomspace(1e-4, 1e4, 2_000_001)
    change = 0.3 * np.log(1.02 / (r + 0.02)) * np.log1p(50 * s1) - 0.4 * np.log1p(s1 / 3)
    assert answer["s1"] == pytest.approx(s1[np.argmax(change)], rel=0.005)


def test_below_the_ratio_of_no_return_the_loss_does_not_come_back():
    edge = ratio_of_no_return(TRANSFER, 1.0)
    assert inflection_ratio_at(TRANSFER, 1e12, 1.0, 3.0) == pytest.approx(edge)
    assert ratio_of_no_return({**TRANSFER, "C": 0.0}, 1.0) < 0
    fit = given("transfer-anchored", TRANSFER)
    assert fitting.critical_point(fit, RATE, at={**GENERAL, "r": 0.4})["critical_ratio"] == edge
    assert fitting.turning_length(fit, RATE, at={**GENERAL, "r": edge - 0.01})["turning_length"] == np.inf
    assert fitting.turning_length(fit, RATE, at={**GENERAL, "r": edge + 0.1})["turning_length"] < np.inf


def test_below_the_critical_loss_potential_the_loss_does_not_come_back():
    fit = given("dynamics", {**DYNAMICS, "C2": 8.0}, draws=10)
    pretrain = np.r_[np.full(1500, RATE), np.linspace(RATE, 0.1 * RATE, 500)]
    answer = fitting.critical_point(fit, RATE, before=0.1 * RATE, pretrain=pretrain)
    edge = answer["critical_loss_potential"]
    assert 0 < edge < 1

    def length(potential):
        past = with_potential(pretrain, potential)
        return fitting.turning_length(fit, RATE, before=past[-1], pretrain=past)["turning_length"]

    assert length(edge - 0.02) == np.inf > length(edge + 0.02)
    for params, expected in (({"C2": 0.0}, 0.0), ({"C2": 0.0, "B": 3.0}, np.inf)):
        fit = given("dynamics", {**DYNAMICS, **params})
        assert fitting.critical_point(fit, RATE, pretrain=pretrain)["critical_loss_potential"] == expected
    assert "critical_loss_potential" not in fitting.critical_point(fit, RATE, at=PAST).values
