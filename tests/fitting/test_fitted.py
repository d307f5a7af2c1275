"""What a fit knows about itself."""

import dataclasses
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import fitting
from fitting.solver.newton import refine_all
from tests.fitting.refusal import refused
from tests.fitting.synthetic import TRUE, grid, measured, small_plan


@pytest.fixture(scope="module")
def fit() -> fitting.Fit:
    points = measured(small_plan("chinchilla"), "chinchilla", TRUE["chinchilla"], noise=0.002, run_noise=0.002)
    return fitting.fit(points, "chinchilla", bootstrap=60)


def test_json_keeps_every_bit(fit):
    text = fit.to_json()
    again = fitting.Fit.from_json(text)
    frame = small_plan("chinchilla").iloc[::50]
    assert again.to_json() == text
    assert again.params == fit.params
    assert again.ranges == fit.ranges
    assert np.array_equal(again.draws, fit.draws)
    assert np.array_equal(again.predict(frame), fit.predict(frame))
    assert np.array_equal(again.predict_interval(frame), fit.predict_interval(frame))


def test_json_of_another_schema_or_law_is_refused(fit):
    plain = json.loads(fit.to_json())
    refused("schema 99", fitting.Fit.from_json, json.dumps({**plain, "schema": 99}))
    refused("law 'gone'", fitting.Fit.from_json, json.dumps({**plain, "law": "gone"}))


def test_one_seed_one_fit(fit):
    points = measured(small_plan("chinchilla"), "chinchilla", TRUE["chinchilla"], noise=0.002, run_noise=0.002)
    again = fitting.fit(points, "chinchilla", bootstrap=60)
    assert again.to_json() == fit.to_json()
    assert not np.array_equal(fitting.fit(points, "chinchilla", bootstrap=60, seed=1).draws, fit.draws)


def test_text_in_a_column_that_no_law_reads_changes_nothing(fit):
    points = measured(small_plan("chinchilla"), "chinchilla", TRUE["chinchilla"], noise=0.002, run_noise=0.002)
    steps = points["step"].map("{:,} steps".format)
    assert fitting.fit(points.assign(step=steps), "chinchilla", bootstrap=60).to_json() == fit.to_json()


def test_held_out_errors_take_the_place_of_the_residuals(fit):
    frame = pd.DataFrame({"N": [1.0], "D": [10.0]})
    low, high = fit.predict_interval(frame)
    tested = replace(fit, held_out={"ratio": 0.05})
    low_wide, high_wide = tested.predict_interval(frame)
    assert low_wide < low < fit.predict(frame) < high < high_wide
    assert high_wide / low_wide == pytest.approx(np.exp(2 * tested.spread.half_width(1.0, 10.0)), rel=0.02)


def test_intervals_come_from_runs_not_points():
    """Ten times the evaluations of the same runs teach nothing more about errors that a whole run shares."""
    plan = small_plan("chinchilla")
    noise = {"noise": 0.0, "run_noise": 0.003, "seed": 2}
    dense = fitting.fit(measured(plan, "chinchilla", TRUE["chinchilla"], **noise), "chinchilla", bootstrap=80)
    sparse_plan = plan[plan.groupby("run").cumcount() % 5 == 0].reset_index(drop=True)
    sparse = fitting.fit(measured(sparse_plan, "chinchilla", TRUE["chinchilla"], **noise), "chinchilla", bootstrap=80)
    widths = [np.ptp(fit.intervals()["alpha"]) for fit in (dense, sparse)]
    assert widths[0] > 0.6 * widths[1]


def test_what_the_points_leave_free_is_said(fit):
    assert all(fit.identified.values())
    one_token_count = small_plan("chinchilla").query("step > 170000").reset_index(drop=True)
    points = measured(one_token_count, "chinchilla", TRUE["chinchilla"], noise=0.002)
    loose = fitting.fit(points, "chinchilla", bootstrap=60)
    assert not loose.identified["beta"]
    assert loose.metrics["r2"] > 0.99, "free parameters, and yet a good fit"


def test_an_interval_holds_its_estimate(fit):
    """Also where the optimum lies in another minimum than the draws of a parameter that is not profiled."""
    far = dataclasses.replace(fit, profiles={}, params={name: 2 * value for name, value in fit.params.items()})
    assert all(low <= far.params[name] <= high for name, (low, high) in far.intervals().items())
    assert not all(low <= far.params[name] <= high for name, (low, high) in far.intervals("bootstrap").items())


def test_no_draws_no_intervals():
    points = measured(small_plan("chinchilla"), "chinchilla", TRUE["chinchilla"], noise=0.002)
    fit = fitting.fit(points, "chinchilla", bootstrap=0)
    for ask in (fit.intervals, lambda: fit.identified, lambda: fit.predict_interval(points)):
        refused("bootstrap=200", ask)
    assert fitting.Fit.from_json(fit.to_json()).draws.shape == fit.draws.shape


def test_bad_questions(fit):
    refused("missing column: D", fit.predict, pd.DataFrame({"N": [1.0]}))
    refused(r"D = 0 .* must be above 0", fit.predict, pd.DataFrame({"N": [1.0], "D": [0.0]}))


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    """A short look; docs/studies/parameter_coverage.py measures it."""
    plan, truth, inside = small_plan("chinchilla"), TRUE["chinchilla"], []
    frame = plan.iloc[::60]
    for seed in range(12):
        fit = fitting.fit(measured(plan, "chinchilla", truth, 0.002, seed, 0.002), "chinchilla", bootstrap=40)
        new = measured(frame, "chinchilla", truth, 0.002, 1000 + seed, 0.002)["loss"].to_numpy()
        low, high = fit.predict_interval(frame)
        inside.append(np.mean((low <= new) & (new <= high)))
    assert 0.82 < np.mean(inside) < 0.97


def test_a_profile_goes_to_no_place_twice(monkeypatch):
    plan = grid(sizes=(0.5, 1.8), ratios=(0.5, 1.0), evaluations=6, every=20_000)
    fit = fitting.fit(measured(plan, "chinchilla", TRUE["chinchilla"], noise=0.003), "chinchilla", bootstrap=0)
    targets = []

    def recorded(problems, thetas, tolerance, penalties):
        targets.extend(penalty.target for penalty in penalties)
        return refine_all(problems, thetas, tolerance, penalties)

    monkeypatch.setattr("fitting.uncertainty.profile.refine_all", recorded)
    fit.profile("A")
    assert np.diff(np.sort(targets)).min() > 1e-7 * fit.params["A"]
