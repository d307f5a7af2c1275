"""Bad input: one clear line each."""

import numpy as np
import pandas as pd
import pytest

import fitting
from tests.fitting.synthetic import TRUE, grid, measured, scheduled


def dcpt_points() -> pd.DataFrame:
    return measured(grid(evaluations=6), "dcpt", TRUE["dcpt"], noise=0.001)


def set_first(column, value):
    def change(points):
        points = points.astype({column: float})
        points.loc[3, column] = value
        return points

    return change


BAD = {
    "missing column: r": lambda p: p.drop(columns="r"),
    "missing columns: N, D": lambda p: p.drop(columns=["N", "D"]),
    "column loss is not finite in 1 of": set_first("loss", np.nan),
    "column D is not finite in 1 of": set_first("D", np.inf),
    r"r = 1.5 \(row 3\) is not allowed": set_first("r", 1.5),
    r"loss = -1 \(row 3\) is not allowed": set_first("loss", -1.0),
    r"N = 0 \(row 3\) is not allowed: N must be above 0, in billions": set_first("N", 0.0),
    "8 points are too few: dcpt has 9": lambda p: p.iloc[:8],
    "0 points are too few": lambda p: p.iloc[:0],
    "one ratio only .r = 0.5.*fit chinchilla": lambda p: p[p["r"] == 0.5],
    "one size only .N = 1.8.*two or more": lambda p: p[p["N"] == 1.8],
    "D = .* looks like raw tokens": lambda p: p.assign(D=p["D"] * 1e9),
    "N = .* looks like raw parameters": lambda p: p.assign(N=p["N"] * 1e9),
    "column r holds something that is not a number": lambda p: p.assign(r="half"),
    "column run is empty in 162": lambda p: p.assign(run=None),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_points_are_one_clear_line(message):
    with pytest.raises(fitting.PointsError, match=message) as raised:
        fitting.fit(BAD[message](dcpt_points()), "dcpt", bootstrap=0)
    assert "\n" not in str(raised.value)


def test_bad_areas():
    frame, of_run = scheduled(0.5)
    points = measured(frame, "transfer-anchored", TRUE["transfer-anchored"], 0.0)
    points.loc[5, "s1"] = -1.0
    with pytest.raises(fitting.PointsError, match="s1 = -1 "):
        fitting.fit(points, "transfer-anchored", bootstrap=0)
    with pytest.raises(fitting.PointsError, match="missing column: step"):
        fitting.fit(frame.assign(loss=3.0).drop(columns="step"), "transfer-anchored", schedules=of_run)
    with pytest.raises(fitting.PointsError, match="missing column: s2"):
        fitting.fit(frame.assign(loss=3.0).drop(columns="s2"), "transfer-anchored")


def test_bad_names_and_settings():
    points = dcpt_points()
    with pytest.raises(fitting.PointsError, match="did you mean dcpt"):
        fitting.fit(points, "dctp")
    with pytest.raises(fitting.PointsError, match="there are chinchilla"):
        fitting.fit(points, "zzz")
    with pytest.raises(fitting.PointsError, match="method 'magic' is unknown"):
        fitting.fit(points, "dcpt", method="magic")
    with pytest.raises(fitting.PointsError, match="weights must be 162"):
        fitting.fit(points, "dcpt", weights=np.ones(3))


def test_points_without_runs_are_taken_with_a_warning():
    with pytest.warns(UserWarning, match="no column run"):
        fit = fitting.fit(dcpt_points().drop(columns="run"), "dcpt", bootstrap=0)
    assert fit.n_runs == fit.n_points == 162
    assert "no column run" in fit.warnings[0]


def test_points_before_the_first_step_are_left_out_and_said_so():
    points = dcpt_points()
    start = points.groupby("run", as_index=False).first().assign(D=0.0)
    fit = fitting.fit(pd.concat([start, points]), "dcpt", bootstrap=0)
    assert fit.n_points == 162
    assert fit.warnings == ["27 points at D = 0 left out: dcpt has no value there"]


def test_few_runs_are_said_so():
    points = dcpt_points()
    fit = fitting.fit(points[points["run"].isin([1, 20])], "dcpt", bootstrap=0)
    assert "2 runs only" in fit.warnings[0]
