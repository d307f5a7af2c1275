"""Where the loss turns, and how much pre-training is too much."""

import numpy as np
import pytest

import fitting
from fitting.answers.transfer_closed_form import inflection_ratio_at, ratio_of_no_return
from tests.fitting.answers.test_turning_point import DYNAMICS, GENERAL, PAST, RATE, TRANSFER, eq_4
from tests.fitting.given import given


def test_the_paper_s_critical_point_of_eq_4():
    """The level to which the curve on the new data alone converges, and the pre-training that is already there."""
    answer = fitting.critical_point(given("dynamics", DYNAMICS, draws=30), RATE, at=PAST)
    p = DYNAMICS
    assert answer["critical_loss"] == pytest.approx(p["L0"] - p["C1"] * 0.5 + p["B"])
    s1_pretrain = answer.values["critical_s1_pretrain"]
    assert s1_pretrain.value == pytest.approx((p["A"] / p["B"]) ** (1 / p["alpha"]))
    assert s1_pretrain.low < s1_pretrain.value < s1_pretrain.high


@pytest.mark.parametrize("law", ["dynamics", "dynamics-replay", "dynamics-size", "dynamics-power"])
@pytest.mark.parametrize("before", [RATE, RATE / 2, 2 * RATE])
def test_less_pre_training_comes_back_and_more_does_not(law, before):
    extra = {
        "dynamics": {},
        "dynamics-replay": {"a1": 0.05, "a2": 3.0},
        "dynamics-size": {"g1": 0.1, "g2": 0.1, "g3": 0.3, "F": 0.5},
        "dynamics-power": {"zeta1": 0.9, "zeta2": 0.9},
    }[law]
    fit = given(law, {**DYNAMICS, **extra})
    at = {"r": 0.33, "N": 0.4, **PAST}
    critical = fitting.critical_point(fit, RATE, before=before, at=at)["critical_s1_pretrain"]

    def rise_at_the_end(s1_pretrain):
        loss = fitting.loss_curve(fit, np.full(3000, RATE), before=before, at={**at, "s1_pretrain": s1_pretrain})[
            "loss"
        ]
        x = {**{k: np.array([float(v)]) for k, v in at.items()}, "s1_pretrain": np.array([s1_pretrain])}
        x |= {"s1": np.array([1e60]), "s2": np.array([(before - RATE) / (1 - 0.99)])}
        return float(fit.equation.loss(x, fit.params)[0]) - loss[0]

    assert rise_at_the_end(0.99 * critical) < 0 < rise_at_the_end(1.01 * critical)


def test_a_loss_that_falls_is_never_past_its_critical_point():
    answer = fitting.critical_point(given("dynamics", {**DYNAMICS, "B": -0.2}), RATE, at=PAST)
    assert answer["critical_s1_pretrain"] == np.inf
    assert answer["step"] == answer["s1"] == 0
    assert answer.status.message == "nothing: the loss never rises above where it began"


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


@pytest.mark.parametrize("r", [0.55, 0.7, 0.9])
def test_the_transfer_law_s_peak_is_the_highest_of_a_fine_grid(r):
    answer = fitting.critical_point(given("transfer-anchored", TRANSFER), RATE, at={**GENERAL, "r": r})
    s1 = np.geomspace(1e-4, 1e4, 2_000_001)
    change = 0.3 * np.log(1.02 / (r + 0.02)) * np.log1p(50 * s1) - 0.4 * np.log1p(s1 / 3)
    assert answer["s1"] == pytest.approx(s1[np.argmax(change)], rel=0.005)


def test_below_the_ratio_of_no_return_the_loss_does_not_come_back():
    edge = ratio_of_no_return(TRANSFER, 1.0)
    fit = given("transfer-anchored", TRANSFER)
    assert fitting.critical_point(fit, RATE, at={**GENERAL, "r": 0.5})["critical_ratio"] == edge
    assert fitting.turning_length(fit, RATE, at={**GENERAL, "r": edge - 0.01})["turning_length"] == np.inf
    assert fitting.turning_length(fit, RATE, at={**GENERAL, "r": edge + 0.1})["turning_length"] < np.inf


@pytest.mark.parametrize("s1", [0.0, 0.1, 10.0])
def test_the_inflection_ratio_at_is_where_the_slope_changes_sign(s1):
    share = inflection_ratio_at(TRANSFER, s1, 1.0, 3.0)

    def slope(r):
        c = 0.3 * np.log(1.02 / (r + 0.02))
        return c * 50 / (1 + 50 * s1) - 0.4 / (3 + s1)

    assert slope(share - 1e-6) > 0 > slope(share + 1e-6)
    assert inflection_ratio_at(TRANSFER, 1e12, 1.0, 3.0) == pytest.approx(ratio_of_no_return(TRANSFER, 1.0))


def test_without_a_shift_every_ratio_comes_back():
    assert ratio_of_no_return({**TRANSFER, "C": 0.0}, 1.0) < 0
