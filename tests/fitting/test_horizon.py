"""How intervals grow beyond the fitted tokens, and the average of laws that answers there."""

import numpy as np
import pandas as pd
import pytest

import fitting
from fitting.uncertainty.horizon import FACTOR, POWER, PRIOR, STRENGTH, growth_of, half_width, horizons, reach


def test_the_horizon_is_that_of_the_targets_size():
    corners = reach(np.array([0.1, 0.1, 1.0, 0.4, 10.0]), np.array([2.0, 100.0, 20.0, 5.0, 1.0]))
    # 0.4 lies below the line between the longest runs of 0.1 and 1.
    assert corners == [(0.1, 100.0), (1.0, 20.0), (10.0, 1.0)]
    assert horizons(corners, np.ones(2), np.array([20.0, 80.0])) == pytest.approx([1.0, 4.0])
    assert horizons(corners, np.array([0.05, 20.0]), np.array([200.0, 2.0])) == pytest.approx([2.0, 2.0])


def test_origins_of_the_points_update_the_prior():
    far = np.array([16.0])
    prior = FACTOR * PRIOR["law"] * np.log(16.0) ** POWER
    assert half_width(far, [], 0.0)[0] == pytest.approx(prior, rel=1e-3)
    none, small, large = (half_width(far, [one] * 3, 0.0)[0] for one in (0.0, 0.01, 0.1))
    assert none == pytest.approx(prior * np.sqrt(STRENGTH / (STRENGTH + 3)), rel=1e-3)
    assert none < small < prior < large
    assert (np.diff(half_width(np.array([1.0, 2.0, 4.0, 8.0]), [], 0.0)) > 0).all()
    errors = 0.02 * np.log(horizon := np.array([2.0, 4.0, 2.0, 1.1])) ** POWER
    assert growth_of(errors, horizon, np.array([1.0, 1.0, 3.0, 3.0])) == pytest.approx([0.02, 0.02])


@pytest.fixture(scope="module")
def curve() -> pd.DataFrame:
    """A curve that bends down on logarithms, as fine-tuning does: no law of one curve has its form."""
    D = np.geomspace(1e-3, 1.0, 11)
    return pd.DataFrame({"D": D, "loss": 3.0 / (1 + (D / 0.05) ** 0.5) + 0.2 * D**-0.05, "run": range(11)})


def test_an_average_far_beyond_its_points_knows_how_far(curve):
    average = fitting.average(curve[:8])
    low, high = average.predict_interval(curve)
    half = np.log(high / low) / 2
    assert (np.diff(half[7:]) > 0).all()
    assert half[10] > 3 * half[7]
    assert ((low < curve["loss"]) & (curve["loss"] < high)).all()
    assert sum(average.weights.values()) == pytest.approx(1)
    assert len(average.growth or ()) == 3
    assert average.weights["rectified-floorless"] > average.weights["power"]


def test_too_few_points_are_averaged_by_what_others_missed(curve):
    average = fitting.average(curve[:4])
    assert average.growth == ()
    assert set(average.weights.values()) == {0.25}
    assert "every law counts alike" in average.warnings[-1]
    with pytest.raises(fitting.PointsError, match="missing column"):
        fitting.average(curve.drop(columns="D"))
    with pytest.raises(fitting.PointsError, match="holds none"):
        fitting.average(curve, [])
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
    assert not fit.half_width_beyond(curve.drop(columns="D")).any()


def test_the_origin_rolls_to_an_eighth_and_is_judged_on_all_that_follows(curve):
    labels = [(fold.fitted.sum(), fold.judged.sum()) for fold in fitting.folds(curve, "horizon")]
    assert labels == [(9, 2), (8, 3), (7, 4)]
    with pytest.raises(fitting.PointsError, match="cannot roll the origin in D"):
        fitting.folds(curve[:4], "horizon")
    with pytest.raises(fitting.PointsError, match="no fold to hold out"):
        fitting.held_out(curve, "power", [])
