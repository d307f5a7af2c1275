"""The loss at every step of a schedule."""

from dataclasses import replace

import numpy as np
import pytest

import fitting
from fitting.schedule import Schedule
from tests.fitting.given import given
from tests.fitting.refusal import refused
from tests.fitting.synthetic import TRUE, measured, scheduled

DYNAMICS = {
    "L0": 2.5, "A": 0.48, "C1": 0.28, "C2": 0.26, "B": 0.28, "alpha": 0.51, "E": 99.0, "beta": 0.3, "lambda": 0.99,
}  # fmt: skip
PRETRAIN = np.r_[np.linspace(0, 3e-3, 50), np.full(500, 3e-3), np.linspace(3e-3, 3e-4, 200)]
RATES = 1e-3 * (1 + np.cos(np.pi * np.arange(300) / 300)) / 2


def by_hand(t: int, p: dict) -> float:
    """Eq. 4 with the double sums written out; the warm-up of pre-training counts in S1 and not in S2."""
    lifted = np.r_[np.full(49, 3e-3), PRETRAIN[49:]]

    def s2(rates, before):
        m, total = 0.0, 0.0
        for last, rate in zip([before, *rates[:-1]], rates):
            m = p["lambda"] * m + last - rate
            total += m
        return total

    s1_pt, s2_pt = PRETRAIN.sum(), s2(lifted, 3e-3)
    s1, s2_cpt = RATES[:t].sum(), s2(RATES[:t], 3e-4) if t else 0.0
    shift = p["B"] * (1 - (1 + p["E"] * s1) ** -p["beta"])
    return p["L0"] + p["A"] * (s1_pt + s1) ** -p["alpha"] - p["C1"] * s2_pt - p["C2"] * s2_cpt + shift


def test_each_step_is_eq_4():
    fit = given("dynamics", DYNAMICS, draws=20)
    curve = fitting.loss_curve(fit, RATES, before=3e-4, pretrain=PRETRAIN)
    assert list(curve.columns) == ["step", "s1", "s2", "loss", "low", "high"]
    assert curve["step"].tolist() == list(range(301))
    for t in (0, 1, 2, 100, 300):
        assert curve["loss"][t] == pytest.approx(by_hand(t, DYNAMICS), abs=1e-12)
    assert (curve["low"] < curve["loss"]).all()
    assert (curve["loss"] < curve["high"]).all()


def test_each_draw_computes_s2_with_its_own_lambda():
    """Only lambda differs between the draws, and the interval is as wide as it makes the loss."""
    exact = {"run_errors": np.zeros(1), "point_errors": np.zeros(1)}
    fit = replace(given("dynamics", DYNAMICS, draws=2, wobble=0.0), **exact)
    decays = [0.9, 0.999]
    fit.draws[:, list(DYNAMICS).index("lambda")] = decays
    curve = fitting.loss_curve(fit, RATES, before=3e-4, pretrain=PRETRAIN)
    ends = [by_hand(300, {**DYNAMICS, "lambda": decay}) for decay in decays]
    assert abs(ends[0] - ends[1]) > 0.01
    assert (curve["low"][300], curve["high"][300]) == pytest.approx(sorted(ends), abs=1e-4)


def test_a_fit_of_points_predicts_a_schedule_that_it_never_saw():
    decay = 0.9
    frame, of_run = scheduled(decay, ratios=(0.0, 0.25, 1.0), sizes=(0.1,))
    points = measured(frame[frame["step"] > 0], "transfer-anchored", TRUE["transfer-anchored"], 0.001)
    fit = fitting.fit(points, "transfer-anchored", schedules=of_run, bootstrap=20)
    at = {"r": 0.25, "rho": 0.0, "s1_pretrain": 3.0, "loss_before": 3.4}
    rates = np.r_[np.full(100, 6e-4), np.linspace(6e-4, 0, 200)]
    curve = fitting.loss_curve(fit, rates, before=3e-4, at=at)
    truth = given("transfer-anchored", {**TRUE["transfer-anchored"], "lambda": decay})
    exact = fitting.loss_curve(truth, rates, before=3e-4, at=at)
    assert curve["loss"].to_numpy() == pytest.approx(exact["loss"].to_numpy(), abs=0.01)
    assert ((curve["low"] < exact["loss"]) & (exact["loss"] < curve["high"])).mean() > 0.9
    assert exact["low"].isna().all()
    assert exact["loss"][0] == 3.4


def test_a_long_curve_is_drawn_in_blocks_that_do_not_show():
    fit = given("dynamics", DYNAMICS, draws=10)
    rates = np.full(2500, 1e-3)
    curve = fitting.loss_curve(fit, rates, before=1e-3, pretrain=PRETRAIN)
    assert len(curve) == 2501
    assert curve[["low", "high"]].diff().abs().iloc[900:].max().max() < 0.01
    assert curve["low"].notna().all()


def test_a_law_of_tokens_starts_at_the_first_step():
    fit = given("dcpt", TRUE["dcpt"])
    curve = fitting.loss_curve(fit, np.full(10, 1e-3), at={"N": 1.8, "r": 0.5}, tokens_a_step=0.1)
    assert curve["step"].tolist() == list(range(1, 11))
    x = {"N": np.full(10, 1.8), "r": np.full(10, 0.5), "D": 0.1 * np.arange(1, 11)}
    assert curve["loss"].to_numpy() == pytest.approx(fitting.LAWS["dcpt"].loss(x, TRUE["dcpt"]))


def test_annealing_has_no_value_before_the_first_step():
    fit = given("annealing", {"L0": 2.5, "A": 0.5, "C": 0.3, "alpha": 0.5})
    curve = fitting.loss_curve(fit, PRETRAIN[1:], before=3e-3, decay=0.99)
    assert curve["step"].iloc[0] == 1
    schedule = {0: Schedule(PRETRAIN[1:], 3e-3)}
    s2 = fitting.with_areas(curve[["step"]].assign(run=0), schedule, 0.99)["s2"]
    assert curve["loss"].to_numpy() == pytest.approx(2.5 + 0.5 * np.cumsum(PRETRAIN[1:]) ** -0.5 - 0.3 * s2.to_numpy())


def test_bad_questions():
    fit = given("dynamics", DYNAMICS)
    refused("reads s1_pretrain, s2_pretrain: give them in at", fitting.loss_curve, fit, RATES)
    refused("0 or more, one a step", fitting.loss_curve, fit, -RATES, pretrain=PRETRAIN)
    refused("one-dimensional", fitting.loss_curve, fit, [[1e-3]], pretrain=PRETRAIN)
    refused("one-dimensional", fitting.loss_curve, fit, [], pretrain=PRETRAIN)
    refused("one-dimensional", fitting.loss_curve, fit, RATES, pretrain=[np.nan])
    with pytest.raises(fitting.PointsError, match="tokens_a_step = 0"):
        fitting.loss_curve(given("dcpt", TRUE["dcpt"]), RATES, at={"N": 1.8, "r": 0.5}, tokens_a_step=0.0)
