"""Areas under a schedule."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fitting
from fitting.schedule import LAMBDA, annealing_curve
from tests.fitting.synthetic import schedules

rates = st.lists(st.floats(0, 1e-2), min_size=1, max_size=30)


@given(rates, st.floats(0, 0.9999), st.floats(0, 1e-2))
def test_areas_are_the_double_sums_of_the_paper(eta, decay, before):
    s1, s2 = fitting.areas(eta, decay, before)
    path = [before, *eta]
    double = [
        sum((path[k - 1] - path[k]) * decay ** (i - k) for i in range(1, t + 1) for k in range(1, i + 1))
        for t in range(1, len(path))
    ]
    assert s1 == pytest.approx(np.cumsum(eta), abs=1e-12)
    assert s2 == pytest.approx(double, abs=1e-12)


def test_a_rewarmup_makes_s2_negative_and_a_decay_makes_it_positive():
    assert fitting.areas([1e-3] * 5, before=3e-4)[1][-1] < 0
    assert fitting.areas([1e-3] * 5 + [1e-4] * 5, before=1e-3)[1][-1] > 0


def test_with_areas_takes_each_runs_schedule_and_zero_at_step_zero():
    of_run = {"a": ([1e-3, 5e-4], 0.0), "b": ([2e-3, 2e-3], 2e-3)}
    points = pd.DataFrame({"run": ["b", "a", "a", "b"], "step": [0, 1, 2, 2], "loss": 3.0}, index=[7, 7, 3, 0])
    filled = fitting.with_areas(points, of_run, decay=0.5)
    assert filled["s1"].tolist() == pytest.approx([0.0, 1e-3, 1.5e-3, 4e-3])
    assert filled["s2"].tolist() == pytest.approx([0.0, -1e-3, -1e-3, 0.0])
    assert "s1" not in points.columns


@pytest.mark.parametrize("decay", [0.0, 0.31, 0.9, 0.999, 0.9999])
def test_the_tabulated_curve_is_s2(decay):
    of_run = {run: (np.asarray(eta), before) for run, (eta, before) in schedules(steps=3000).items()}
    points = pd.DataFrame([(run, step) for run in of_run for step in (0, 1, 10, 500, 3000)], columns=["run", "step"])
    exact = fitting.with_areas(points, of_run, decay)["s2"].to_numpy()
    curve = annealing_curve(points, of_run)(LAMBDA.coordinate(decay))
    assert curve == pytest.approx(exact, abs=1e-4 * np.abs(exact).max())


def test_bad_schedules_say_what_is_wrong():
    points = pd.DataFrame({"run": ["a"], "step": [3]})
    with pytest.raises(fitting.PointsError, match="no schedule for run a"):
        fitting.with_areas(points, {})
    with pytest.raises(fitting.PointsError, match="step 3 is beyond its run's schedule of 2 steps"):
        fitting.with_areas(points, {"a": ([1e-3, 1e-3], 0.0)})
    with pytest.raises(fitting.PointsError, match="decay = 1 is outside"):
        fitting.areas([1e-3], decay=1.0)
    with pytest.raises(fitting.PointsError, match="one-dimensional"):
        fitting.areas([[1e-3]])
