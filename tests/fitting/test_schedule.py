"""Areas under a schedule."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fitting
from fitting.schedule import LAMBDA, Schedule, annealing_curve
from tests.fitting.refusal import refused
from tests.fitting.synthetic import schedules

rates = st.lists(st.floats(0, 1e-2), min_size=1, max_size=30)


# the first call imports scipy.signal, which is no slowness of areas
@settings(deadline=None)
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


def test_with_areas_takes_each_runs_schedule_and_zero_at_step_zero():
    of_run = {"a": Schedule(np.array([1e-3, 5e-4])), "b": Schedule(np.array([2e-3, 2e-3]), before=2e-3)}
    points = pd.DataFrame({"run": ["b", "a", "a", "b"], "step": [0, 1, 2, 2], "loss": 3.0}, index=[7, 7, 3, 0])
    filled = fitting.with_areas(points, of_run, decay=0.5)
    assert filled["s1"].tolist() == pytest.approx([0.0, 1e-3, 1.5e-3, 4e-3])
    assert filled["s2"].tolist() == pytest.approx([0.0, -1e-3, -1e-3, 0.0])
    assert "s1" not in points.columns


def test_the_tabulated_curve_is_s2():
    of_run = schedules(steps=3000)
    points = pd.DataFrame([(run, step) for run in of_run for step in (0, 1, 10, 500, 3000)], columns=["run", "step"])
    curve_at = annealing_curve(points, of_run)
    for decay in (0.0, 0.31, 0.9, 0.999, 0.9999):
        exact, curve = fitting.with_areas(points, of_run, decay), curve_at(LAMBDA.coordinate(decay))
        assert list(curve) == ["s2", "s2_square"], "nothing is known of pre-training here"
        for name, values in curve.items():
            assert values == pytest.approx(exact[name].to_numpy(), abs=1e-4 * exact[name].abs().max()), decay


def test_areas_of_powers_are_sums_over_the_steps():
    """From a rate of 0, S2 is minus the sum of what each rate still counts."""
    rates, decay = np.array([1e-4, 8e-4, 2e-4]), 0.9
    root, square = fitting.areas_of_powers(rates, decay)
    assert root == pytest.approx(np.cumsum([1.0, 4.0, 2 ** (2 / 3)]))
    assert square == pytest.approx([-1.0, -64.9, -4.0 - 0.9 * 64.9])
    lasting = fitting.areas_of_powers(np.full(5, 3e-4), decay, before=3e-4)[1]
    assert lasting == pytest.approx(np.zeros(5))
    points = pd.DataFrame({"run": "a", "step": [0, 3]})
    filled = fitting.with_areas(points, {"a": Schedule(rates)}, decay)
    assert filled["s1_root"].tolist() == [0.0, root[-1]]
    assert filled["s2_square"].tolist() == [0.0, square[-1]]


def test_bad_schedules_say_what_is_wrong():
    points = pd.DataFrame({"run": ["a"], "step": [3]})
    refused("no schedule for run a", fitting.with_areas, points, {})
    with pytest.raises(fitting.PointsError, match="step 3 is beyond its run's schedule of 2 steps"):
        fitting.with_areas(points, {"a": Schedule(np.array([1e-3, 1e-3]))})
    for step in (1.5, -1):
        of_run = {"a": Schedule(np.array([1e-3, 1e-3]))}
        refused(f"step {step} is no step of its run's", fitting.with_areas, points.assign(step=step), of_run)
    refused("decay = 1 is outside", fitting.areas, [1e-3], decay=1.0)
    refused("one-dimensional", fitting.areas, [[1e-3]])


def test_pretraining_counts_its_own_areas_and_those_who_continue_it_keep_the_last():
    """The warm-up is learned from (S1) and anneals nothing (S2)."""
    first = np.array([1e-3, 2e-3, 2e-3, 1e-3])
    of_run = {
        "first": Schedule(first, is_pretraining=True),
        "then": Schedule(np.array([5e-4, 5e-4]), before=1e-3, pretrain=first),
    }
    points = pd.DataFrame({"run": ["first", "first", "first", "then", "then"], "step": [1, 3, 4, 0, 2]})
    filled = fitting.with_areas(points, of_run, decay=0.5)
    assert filled["s1_pretrain"].tolist() == pytest.approx([1e-3, 5e-3, 6e-3, 6e-3, 6e-3])
    assert filled["s2_pretrain"].tolist() == pytest.approx([0.0, 0.0, 1e-3, 1e-3, 1e-3])
    assert filled["s1"].tolist() == pytest.approx([0.0, 0.0, 0.0, 0.0, 1e-3])
    assert filled["s2"].tolist() == pytest.approx([0.0, 0.0, 0.0, 0.0, 5e-4 + 2.5e-4])
    curve = annealing_curve(points, of_run)(LAMBDA.coordinate(0.5))
    assert curve["s2_pretrain"] == pytest.approx(filled["s2_pretrain"].to_numpy(), abs=1e-9)


def test_what_the_schedules_do_not_tell_stays_what_it_was():
    first = np.array([1e-3, 1e-3])
    of_run = {"open": Schedule(first), "ours": Schedule(first, before=1e-3, pretrain=first)}
    points = pd.DataFrame({"run": ["open", "ours"], "step": [1, 1], "s1_pretrain": [50.0, np.nan]})
    assert fitting.with_areas(points, of_run)["s1_pretrain"].tolist() == pytest.approx([50.0, 2e-3])
    only_open = fitting.with_areas(points.iloc[:1], of_run)
    assert only_open["s1_pretrain"].tolist() == [50.0]
    assert "s2_pretrain" not in only_open


def test_a_table_without_points_gets_its_columns():
    nothing = pd.DataFrame({"run": [], "step": []})
    assert {"s1", "s2", "s1_root", "s2_square"} <= {*fitting.with_areas(nothing, {}).columns}
    with pytest.raises(fitting.PointsError, match="0 points are too few"):
        fitting.fit(nothing.assign(loss=[], r=[], loss_before=[]), "transfer-open", schedules={}, few=True)
