"""Values with intervals, and the warnings of an answer that lies beyond the points."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import fitting
from fitting.answers.answer import beyond, estimate, implied, question, unknown_interval
from tests.fitting.given import given
from tests.fitting.synthetic import TRUE

RANGES = {"N": (0.5, 4.0), "D": (0.1, 26.0), "r": (0.1, 1.0)}


def test_an_interval_holds_its_value_and_the_middle_of_the_draws():
    assert estimate(0.5, np.linspace(0, 1, 101)) == pytest.approx((0.5, 0.05, 0.95))
    assert estimate(2.0, np.linspace(0, 1, 101)) == pytest.approx((2.0, 0.05, 2.0))
    assert estimate(-1.0, np.linspace(0, 1, 101)) == pytest.approx((-1.0, -1.0, 0.95))


def test_infinite_draws_give_an_infinite_end_and_never_nan():
    draws = np.r_[np.arange(90.0), np.full(10, np.inf)]
    assert estimate(40.0, draws) == (40.0, 4.0, np.inf)
    assert estimate(np.inf, np.full(5, np.inf)) == (np.inf, np.inf, np.inf)


def test_without_draws_the_interval_is_unknown_and_that_is_said():
    assert np.isnan(estimate(1.0, np.zeros(0))[1:]).all()
    fit = given("dcpt", TRUE["dcpt"])
    assert np.isnan(implied(fit, pd.DataFrame({"N": [1.0], "D": [1.0], "r": [0.5]}))[1:]).all()
    assert "no bootstrap draws" in unknown_interval("domain", fit)[0]
    assert unknown_interval("domain", given("dcpt", TRUE["dcpt"], draws=3)) == []


def test_the_loss_of_a_new_run_is_less_certain_than_the_curve():
    fit, frame = given("dcpt", TRUE["dcpt"], draws=50), pd.DataFrame({"N": [1.0], "D": [1.0], "r": [0.5]})
    loss, low, high = implied(fit, frame)
    drawn = fit.predict_draws(frame)
    assert low < np.quantile(drawn, 0.05) < loss < np.quantile(drawn, 0.95) < high
    assert implied(replace(fit, held_out={"ratio": 0.1}), frame).high > high


def test_each_column_beyond_the_points_is_named_with_how_far():
    fit = given("dcpt", TRUE["dcpt"], RANGES)
    assert beyond("domain", fit, pd.DataFrame({"N": [4.0], "D": [0.1], "r": [0.5]})) == []
    lines = beyond("domain", fit, pd.DataFrame({"N": [8.0], "D": [0.05], "r": [0.0]}))
    assert lines == [
        "domain: N = 8 billion is beyond the points, 2 times the largest fitted (4)",
        "domain: D = 50 million is beyond the points, 0.5 times the smallest fitted (100)",
        "domain: r = 0 is beyond the points, -0.1 from the smallest fitted (0.1)",
    ]
    many = beyond("domain", fit, pd.DataFrame({"N": [1.0, 5.0, 8.0], "D": 1.0, "r": 0.5}))
    assert many == lines[:1], "of many rows the farthest"


def test_a_question_names_the_columns_that_nobody_gave():
    fit = given("dcpt", TRUE["dcpt"])
    with pytest.raises(fitting.PointsError, match="the domain law dcpt reads D, r: give them in domain_at"):
        question(fit, "domain", {"N": 1.0}, "domain_at")
    assert len(question(fit, "domain", {"N": 1.0, "D": np.ones(3), "r": 0.5})) == 3
