"""How long until a loss that rose is back."""

import numpy as np
import pytest
from scipy.optimize import brentq

import fitting
from fitting.answers.turning_point import return_steps
from tests.fitting.given import given
from tests.fitting.synthetic import TRUE

DYNAMICS = {
    "L0": 2.5,
    "A": 0.48,
    "C1": 0.28,
    "C2": 0.26,
    "B": 0.1,
    "alpha": 0.51,
    "E": 99.0,
    "beta": 0.3,
    "lambda": 0.99,
}
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


@pytest.mark.parametrize("r", [0.55, 0.7, 0.9])
def test_the_transfer_law_agrees_with_its_root(r):
    fit = given("transfer-anchored", TRANSFER)
    answer = fitting.turning_length(fit, RATE, at={**GENERAL, "r": r})
    c = 0.3 * np.log(1.02 / (r + 0.02))
    # Between the highest point and one where the loss is surely back.
    ends = (c * 150 - 0.4) / (50 * (0.4 - c)), 3 * np.expm1(c / (0.4 - c) * np.log1p(150))
    s1 = brentq(lambda s1: c * np.log1p(50 * s1) - 0.4 * np.log1p(s1 / 3), *ends)
    assert answer["turning_length"] == pytest.approx(s1 / RATE, abs=1, rel=1e-9)
    assert answer["turning_length"] == np.ceil(answer["turning_length"])


def test_the_transfer_law_at_a_rational_exponent_has_a_closed_form():
    """At c / G = 1/2 the loss is back at S1 = P (E P - 2)."""
    r = 1.02 * np.exp(-0.2 / 0.3) - 0.02
    answer = fitting.turning_length(given("transfer-anchored", TRANSFER), RATE, at={**GENERAL, "r": r})
    assert answer["turning_length"] == pytest.approx(3.0 * (50.0 * 3.0 - 2) / RATE, abs=1)


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


def test_a_loss_that_only_falls_is_back_at_once():
    fit = given("dynamics", {**DYNAMICS, "B": -0.2})
    answer = fitting.turning_length(fit, RATE, at=PAST)
    assert answer["turning_length"] == 1
    assert answer.status.message == "nothing: the loss never rises"


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


def test_returns_lie_between_steps():
    step = np.array([0, 1, 10, 100])
    assert return_steps(step, np.array([[1.0, 2.0, 0.0, 0.0]])).tolist() == pytest.approx([5.5])


def test_bad_questions():
    fit = given("dynamics", DYNAMICS)
    with pytest.raises(fitting.PointsError, match="rates = 0: a constant rate must be above 0"):
        fitting.turning_length(fit, 0.0, at=PAST)
    with pytest.raises(fitting.PointsError, match="reads s1_pretrain, s2_pretrain"):
        fitting.turning_length(fit, RATE)
    with pytest.raises(fitting.PointsError, match="no value at D = 0"):
        fitting.turning_length(given("dcpt", TRUE["dcpt"]), RATE, at={"N": 1.0, "r": 0.5})
    with pytest.raises(fitting.PointsError, match="one-dimensional"):
        fitting.turning_length(fit, [[1e-3]], at=PAST)
