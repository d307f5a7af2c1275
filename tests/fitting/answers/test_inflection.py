"""The share below which training raises the loss."""

import numpy as np
import pandas as pd
import pytest

import fitting
from fitting.answers.inflection import inflection_ratio_at
from tests.fitting.answers.test_turning_point import TRANSFER
from tests.fitting.given import given
from tests.fitting.refusal import refused
from tests.fitting.synthetic import TRUE, grid

MILD = {**TRANSFER, "E": 5.0}
RATIOS = (0.02, 0.04, 0.06, 0.1, 0.2, 0.5, 1.0)


def turning_at(r_i: float, noise=0.0005, seed=0, ratios=RATIOS) -> pd.DataFrame:
    """Losses whose slope in D is proportional to r_i - r up to 2 r_i, and does not change beyond."""
    frame = grid(sizes=(0.5, 1.8), ratios=ratios, evaluations=15, every=6000)
    rng = np.random.default_rng(seed)
    p, B = TRUE["dcpt"], 2.0 * np.minimum(frame["r"] - r_i, r_i)
    loss = (
        p["E"] + p["A"] / frame["N"] ** p["alpha"] + B / frame["D"] ** p["beta"]
        + p["C"] / (frame["r"] + p["eps"]) ** p["gamma"]
    )  # fmt: skip
    return frame.assign(loss=loss * np.exp(noise * rng.standard_normal(len(frame))))


@pytest.mark.parametrize("r_i", [0.05, 0.085])
def test_it_lies_where_the_slope_turns(r_i):
    answer = fitting.inflection_ratio(turning_at(r_i), bootstrap=40)
    found = answer.values["inflection_ratio"]
    assert (answer["below"], answer["above"]) == (max(r for r in RATIOS if r < r_i), min(r for r in RATIOS if r > r_i))
    assert found.value == pytest.approx(r_i, abs=0.004)
    assert found.low < r_i < found.high
    assert found.high - found.low < 0.03
    assert answer.status.message == "the slope dL/dD changes sign"
    assert answer.warnings[0].startswith(f"no run between r = {answer['below']:g} and {answer['above']:g}")


def test_ratio_zero_tells_too_and_one_size_is_enough():
    points = turning_at(0.05, ratios=(0.0, 0.1, 0.3))
    answer = fitting.inflection_ratio(points[points["N"] == 0.5], bootstrap=0)
    assert (answer["below"], answer["above"]) == (0.0, 0.1)
    assert answer["inflection_ratio"] == pytest.approx(0.05, abs=0.005)
    assert np.isnan(answer.values["inflection_ratio"].low)


def test_a_loss_that_falls_everywhere_has_none():
    answer = fitting.inflection_ratio(turning_at(0.01), bootstrap=0)
    assert answer.values["inflection_ratio"] == (0.0, 0.0, 0.02)
    assert answer.status.message == "nothing: the loss falls with D at every ratio, from 0.02 on"


def test_bad_points():
    with pytest.raises(fitting.PointsError, match=r"the loss rises with D up to r = 0.04, the largest"):
        fitting.inflection_ratio(turning_at(0.2, ratios=(0.02, 0.04)))
    refused("one ratio only", fitting.inflection_ratio, turning_at(0.05, ratios=(0.04,)))
    refused("missing column: run", fitting.inflection_ratio, turning_at(0.05).drop(columns="run"))
    refused(r"r = 1.5", fitting.inflection_ratio, turning_at(0.05).assign(r=1.5))
    refused(r"2 points at r = 0.02 are too few", fitting.inflection_ratio, turning_at(0.05).groupby("r").head(2))


@pytest.mark.parametrize("s1", [0.0, 0.5])
def test_the_transfer_law_s_ratio_in_closed_form_and_by_its_curves(s1):
    fit = given("transfer-anchored", MILD, draws=40)
    at = {"rho": 1.0, "s1_pretrain": 3.0}
    answer = fitting.transfer_inflection(fit, s1, at=at)
    ratio = answer.values["inflection_ratio"]
    assert ratio.low < ratio.value == inflection_ratio_at(MILD, s1, 1.0, 3.0) < ratio.high
    rate = 1e-4
    steps = int(s1 / rate)
    for r, sign in ((ratio.value - 0.01, 1), (ratio.value + 0.01, -1)):
        curve = fitting.loss_curve(
            given("transfer-anchored", MILD), np.full(steps + 1, rate), before=rate, at={**at, "r": r, "loss_before": 3}
        )["loss"]
        assert np.sign(curve[steps + 1] - curve[steps]) == sign


def test_a_corpus_that_was_never_seen_has_none():
    answer = fitting.transfer_inflection(given("transfer-anchored", TRANSFER), 0.1, at={"rho": 0.0, "s1_pretrain": 3.0})
    assert answer["inflection_ratio"] == 0.0
    assert answer.status.message == "nothing: the loss falls at any ratio"


def test_bad_questions_of_the_transfer_law():
    fit = given("transfer-anchored", TRANSFER)
    refused("reads rho, s1_pretrain: give them in at", fitting.transfer_inflection, fit, 0.1)
    refused("s1 = -1 is not allowed", fitting.transfer_inflection, fit, -1.0, at={"rho": 1.0, "s1_pretrain": 3.0})
    refused("the law dcpt has no closed form", fitting.transfer_inflection, given("dcpt", TRUE["dcpt"]), 0.1)
