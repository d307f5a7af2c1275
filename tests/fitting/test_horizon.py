"""How intervals grow beyond the fitted tokens, and the average of laws that answers there."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import fitting
from fitting.law_average import LawAverage
from fitting.uncertainty.horizon import (
    MOST,
    POWER,
    PRIOR,
    SIZE,
    STRENGTH,
    below,
    growth_of,
    half_width,
    horizons,
    reach,
)
from tests.fitting.given import given
from tests.fitting.refusal import refused


def test_the_horizon_is_that_of_the_targets_size():
    corners = reach(np.array([0.1, 0.1, 1.0, 0.4, 10.0]), np.array([2.0, 100.0, 20.0, 5.0, 1.0]))
    # 0.4 lies below the line between the longest runs of 0.1 and 1.
    assert corners == [(0.1, 100.0), (1.0, 20.0), (10.0, 1.0)]
    assert horizons(corners, np.ones(2), np.array([20.0, 80.0])) == pytest.approx([1.0, 4.0])
    assert horizons(corners, np.array([0.05, 20.0]), np.array([200.0, 2.0])) == pytest.approx([2.0, 2.0])


def test_origins_of_the_points_update_the_prior():
    far = np.array([16.0])
    prior = PRIOR["law"] * np.log(16.0) ** POWER
    assert half_width(far, [], 0.0)[0] == pytest.approx(prior, rel=1e-3)
    none, small, large, absurd = (half_width(far, [one] * 3, 0.0)[0] for one in (0.0, 0.01, 0.1, 3.0))
    assert none == pytest.approx(prior * np.sqrt(STRENGTH / (STRENGTH + 3)), rel=1e-3)
    assert none < small < prior < large
    assert absurd == pytest.approx(prior * np.sqrt((STRENGTH + 3 * MOST**2) / (STRENGTH + 3)), rel=1e-3)
    assert (np.diff(half_width(np.array([1.0, 2.0, 4.0, 8.0]), [], 0.0)) > 0).all()
    errors = 0.02 * np.log(horizon := np.array([2.0, 4.0, 2.0, 1.1])) ** POWER
    assert growth_of(errors, horizon, np.array([1.0, 1.0, 3.0, 3.0])) == pytest.approx([0.02, 0.02])


def test_a_size_that_was_not_fitted_is_farther_the_larger_it_is():
    ladder = {"ranges": {"N": (0.1, 1.0), "D": (1.0, 8.0)}, "reach": [(0.1, 8.0), (1.0, 8.0)]}
    fit = given("chinchilla", {"E": 1.0, "A": 1.0, "B": 1.0, "alpha": 0.5, "beta": 0.5}, draws=20, **ladder)
    frame = pd.DataFrame({"N": [0.5, 2.0, 8.0, 32.0, 1 / 80], "D": 8.0})
    assert fit.spread.beyond(frame) == pytest.approx(SIZE * np.log([1.0, 2.0, 8.0, 32.0, 8.0]))
    low, high = fit.predict_interval(frame)
    assert (np.diff(np.log(high / low)[:4]) > 0).all()
    tested = replace(fit, held_out={"size": 0.004})
    low, high = tested.predict_interval(frame)
    # Near the fitted sizes the errors on those held out decide, far from them the distance.
    halves = np.log(high / low) / 2
    assert halves[1] == pytest.approx(tested.spread.half_width(2.0, 8.0), rel=0.02)
    assert halves[2:] == pytest.approx(SIZE * np.log([8.0, 32.0, 8.0]), rel=0.02)
    both_ways = tested.spread.half_width(8.0, 64.0)
    assert both_ways == pytest.approx(np.hypot(SIZE * np.log(8.0), half_width(np.array([8.0]), [], 0.001)[0]), rel=1e-6)


def test_every_interval_is_wider_below_the_fitted_ratios():
    seen = {"ranges": {"N": (1.0, 1.0), "D": (1.0, 8.0), "r": (0.2, 0.8)}, "reach": [(1.0, 8.0)]}
    params = {"E": 1.0, "A": 1.0, "B": 1.0, "C": 0.1, "alpha": 0.5, "beta": 0.5, "gamma": 0.5, "eta": 1.5, "eps": 0.1}
    plain = given("dcpt", params, draws=20, **seen)
    tested = replace(plain, held_out={"ratio": 0.004})
    laws = {"dcpt": plain, "dcpt-free": replace(plain, law="dcpt-free")}
    both = LawAverage(laws, {"dcpt": 0.5, "dcpt-free": 0.5}, held_out={"ratio": 0.004})
    frame = pd.DataFrame({"N": 1.0, "D": 8.0, "r": [0.9, 0.2, 0.1, 0.0]})
    for fit in (plain, tested, both):
        low, high = fit.predict_interval(frame)
        halves = np.log(high / low) / 2
        least = below(0.2, frame["r"].to_numpy(), "average" if fit is both else "law")
        assert halves[0] == pytest.approx(halves[1], rel=0.02)
        assert (halves[2:] > 0.98 * least[2:]).all()
        assert halves[1] < halves[2] < halves[3]
        if fit is not plain:
            assert halves == pytest.approx(np.hypot(fit.spread.half_width(1.0, 8.0), least), rel=0.02)


@pytest.fixture(scope="module")
def curve() -> pd.DataFrame:
    """A curve that bends down on logarithms, as fine-tuning does: no law of one curve has its form."""
    D = np.geomspace(1e-3, 1.0, 11)
    return pd.DataFrame({"D": D, "loss": 3.0 / (1 + (D / 0.05) ** 0.5) + 0.2 * D**-0.05, "run": range(11)})


def test_an_average_far_beyond_its_points_knows_how_far(curve):
    average = fitting.average(curve[:8], ["power", "power-offset", "rectified", "rectified-floorless"])
    low, high = average.predict_interval(curve)
    half = np.log(high / low) / 2
    assert (np.diff(half[7:]) > 0).all()
    assert half[10] > 3 * half[7]
    assert ((low < curve["loss"]) & (curve["loss"] < high)).all()
    assert sum(average.weights.values()) == pytest.approx(1)
    assert len(average.growth or ()) == 3
    assert average.weights["rectified-floorless"] > average.weights["power"]


def test_a_law_that_does_not_follow_its_points_is_left_out_of_an_average():
    """A fall that is over early: a line on logarithms goes on."""
    D = np.geomspace(0.1, 1.0, 16)
    late = pd.DataFrame({"D": D, "loss": 2.0 + 0.001 * np.cos(6 * D) + 0.1 * (D / 0.1) ** -4.0, "run": 0})
    average = fitting.average(late)
    left = [line.split()[0] for line in average.warnings if " left out: R2 " in line]
    assert "power-floorless" in left
    assert not {*left} & {*average.fits}


def test_laws_of_all_sizes_count_where_they_know_more_of_a_curve():
    """The size that is asked about was trained for a quarter of the tokens of the others."""
    grid = [(N, D) for N in (1.0, 2.0, 4.0) for D in np.geomspace(0.25, 16.0 if N < 4 else 4.0, 12 if N < 4 else 8)]
    ladder = pd.DataFrame(grid, columns=["N", "D"])
    noise = 1 + 0.004 * np.random.default_rng(1).standard_normal(len(ladder))
    ladder = ladder.assign(loss=(1.5 + 0.4 * ladder["N"] ** -0.4 + 0.8 * ladder["D"] ** -0.3) * noise, run=ladder.index)
    far = pd.DataFrame({"N": [4.0], "D": [64.0]})
    laws, true = [*fitting.ONE_CURVE, "chinchilla"], 1.5 + 0.4 * 4**-0.4 + 0.8 * 64**-0.3
    curve, both = (fitting.average(ladder[ladder["N"] == 4.0]), fitting.average(ladder, laws, curve={"N": 4.0}))
    assert abs(both.predict(far)[0] - true) < 0.8 * abs(curve.predict(far)[0] - true)
    assert both.fits["chinchilla"].n_points == 32
    assert both.fits["power"].n_points == 8
    assert both.spread.reach == [(4.0, 4.0)]
    low, high = both.predict_interval(far)
    assert low[0] < true < high[0]
    refused(r"curve = .*no point is of it; there are N = 1, 2, 4", fitting.average, ladder, laws, curve={"N": 3.0})


def test_too_few_points_are_averaged_by_what_others_missed(curve):
    average = fitting.average(curve[:4])
    assert average.growth == ()
    assert set(average.weights.values()) == {0.2}
    assert "every law counts alike" in average.warnings[-1]
    refused("missing column", fitting.average, curve.drop(columns="D"))
    refused("holds none", fitting.average, curve, [])
    # One law has no other to make up for it.
    one = fitting.average(curve[:4], ["power"])
    low, high = one.predict_interval(curve[10:])
    far = half_width(curve["D"][10:].to_numpy() / curve["D"][3], (), one.metrics["log_rmse"], "law")
    assert np.log(high / low)[0] / 2 == pytest.approx(far[0], rel=0.02)


def test_the_interval_of_a_fit_grows_beyond_its_tokens_and_stays_within(curve):
    fit = fitting.fit(curve[:8], "rectified", bootstrap=40)
    assert fit.reach == [(1.0, pytest.approx(curve["D"][7]))]
    plain = fit.measured_interval(fit.predict_draws(curve))
    low, high = fit.predict_interval(curve)
    assert np.array_equal([low[:8], high[:8]], [side[:8] for side in plain])
    half = np.log(high / low) / 2
    assert (np.diff(half[8:]) > 0).all()
    assert (half[8:] > half_width(np.ones(1), [], 0.0)[0] * 0.99).all()
    assert np.array_equal(fitting.Fit.from_json(fit.to_json()).predict_interval(curve), (low, high))
    # A frame without D does not say how far it is.
    assert not fit.spread.beyond(curve.drop(columns="D")).any()
