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


def test_json_of_what_no_fit_is_is_refused(fit):
    plain = json.loads(fit.to_json())
    params, metrics, profile, r = plain["params"], plain["metrics"], plain["profiles"]["E"], {"r": [0.1, 0.9]}
    damages = {
        r"held_out\.size = nan is too large, or not finite: fit again": {"held_out": {"size": float("nan")}},
        r"n_runs = 1e\+30 is too large": {"n_runs": 10**30},
        r"draws\.0\.0 = 1e\+308 is too large": {"draws": [[1e308, *plain["draws"][0][1:]]]},
        "draws of other parameters": {"draws": [plain["draws"][0][1:]]},
        "unknown: chinchilla has no column 'rho' that may be": {"unknown": ["rho"]},
        "columns: chinchilla reads N, D": {"columns": ["N", "../.."]},
        "params: chinchilla has E, A": {"params": {**params, "x": 1.0}, "draws": []},
        r"alpha = \S+ to 9, allowed: 0\.01 to 3": {"params": {**params, "alpha": 9.0}},
        "a bootstrap gives all three": {"draws": []},
        r"profiles\.E: not the profile": {"profiles": {"E": {**profile, "roots": profile["roots"][1:]}}},
        r"profiles\.Ex: not the profile": {"profiles": {"Ex": profile}},
        r"ranges\.r = 0\.9 to 0\.1": {"ranges": {"r": [0.9, 0.1]}},
        r"ranges\.N = -1 to 2, .* above 0": {"ranges": {**r, "N": [-1.0, 2.0]}},
        "reach = .*sizes and tokens above 0": {"reach": [[1.0, -1.0]]},
        "reach = .* by size": {"reach": [[2.0, 1.0], [1.0, 1.0]]},
        "metrics: a fit has r2": {"metrics": {}},
        r"metrics\.log_rmse = -1, allowed: 0 or more": {"metrics": {**metrics, "log_rmse": -1.0}},
        "growth = -2": {"growth": [1.0, -2.0]},
        "0 points of": {"n_points": 0},
    }
    for message, changed in damages.items():
        refused(message, fitting.Fit.from_json, json.dumps({**plain, **changed}))
    few = {**plain, "metrics": {**metrics, "r2": float("nan"), "aicc": float("inf")}, "ranges": r}
    assert fitting.Fit.from_json(json.dumps(few)).ranges == {"r": (0.1, 0.9)}


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
