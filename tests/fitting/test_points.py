"""Bad input: one clear line each."""

import re

import numpy as np
import pandas as pd
import pytest

import fitting
from tests.fitting.refusal import refused
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
    r"loss = 3e-317 \(row 3\) is not allowed: loss must be above 0": set_first("loss", 3e-317),
    "8 points are too few: dcpt has 9": lambda p: p.iloc[:8],
    "0 points are too few": lambda p: p.iloc[:0],
    "one ratio only .r = 0.5.*fit chinchilla": lambda p: p[p["r"] == 0.5],
    "one size only .N = 1.8.*two or more": lambda p: p[p["N"] == 1.8],
    "D = .* looks like raw tokens": lambda p: p.assign(D=p["D"] * 1e9),
    "N = .* looks like raw parameters": lambda p: p.assign(N=p["N"] * 1e9),
    r"column r holds something that is not a number: 'half' \(row 0\)": lambda p: p.assign(r="half"),
    "column D is not finite in 1 of 162": lambda p: p.assign(D=p["D"].astype("Float64").where(p.index != 3)),
    "column N is there 2 times": lambda p: pd.concat([p, p["N"]], axis=1),
    "column run is empty in 162": lambda p: p.assign(run=None),
    r"loss = 3e\+09 \(row 3\) is not a mean in nats per token": set_first("loss", 3e9),
    r"r = 100 looks like percent: give ratios between 0 and 1 \(divide by 100\)": lambda p: p.assign(r=100 * p["r"]),
    r"r = -0.5 \(row 3\) is not allowed: r must be in \[0, 1\]": set_first("r", -0.5),
    r"run 0, step 1000 is there twice \(rows 0 and 162; 2 points in all\): keep one": lambda p: pd.concat(
        [p, p.iloc[[0, 7]]]
    ),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_points_are_one_clear_line(message):
    refused(message, fitting.fit, BAD[message](dcpt_points()), "dcpt", bootstrap=0)


def test_bad_areas():
    frame, of_run = scheduled(0.5)
    points = measured(frame, "transfer-anchored", TRUE["transfer-anchored"], 0.0)
    with pytest.raises(fitting.PointsError, match=r"one ratio only .r = 0\.25.*fit dynamics, or add runs at another"):
        fitting.fit(points[points["r"] == 0.25], "transfer-anchored", bootstrap=0)
    points.loc[5, "s1"] = -1.0
    refused("s1 = -1 ", fitting.fit, points, "transfer-anchored", bootstrap=0)
    with pytest.raises(fitting.PointsError, match="missing column: step"):
        fitting.fit(frame.assign(loss=3.0).drop(columns="step"), "transfer-anchored", schedules=of_run)
    refused("missing column: s2", fitting.fit, frame.assign(loss=3.0).drop(columns="s2"), "transfer-anchored")


def test_bad_names_and_settings():
    points = dcpt_points()
    refused("did you mean dcpt", fitting.fit, points, "dctp")
    refused("there are openai, chinchilla", fitting.fit, points, "zzz")
    refused("method 'magic' is unknown", fitting.fit, points, "dcpt", method="magic")
    refused("weights must be 162", fitting.fit, points, "dcpt", point_weights=np.ones(3))


def test_points_without_runs_are_taken_with_a_warning():
    with pytest.warns(UserWarning, match="no column run"):
        fit = fitting.fit(dcpt_points().drop(columns="run"), "dcpt", bootstrap=0)
    assert fit.n_runs == fit.n_points == 162
    assert "no column run" in fit.warnings[0]


def test_points_before_the_first_step_are_left_out_and_said_so():
    points = dcpt_points()
    start = points.groupby("run", as_index=False).first().assign(D=0.0, step=0)
    fit = fitting.fit(pd.concat([start, points]), "dcpt", bootstrap=0)
    assert fit.n_points == 162
    assert fit.warnings == ["27 points at D = 0 left out: dcpt has no value there"]


def test_few_runs_are_said_so():
    points = dcpt_points()
    fit = fitting.fit(points[points["run"].isin([1, 20])], "dcpt", bootstrap=0)
    assert "2 runs only" in fit.warnings[0]
    fit = fitting.fit(points[points["run"] == 1], "dcpt", bootstrap=0, few=True)
    assert any(line.startswith("1 run only: ") for line in fit.warnings)


def test_raw_counts_of_small_models_are_known_too():
    points = measured(grid(sizes=(5e-5, 4e-4, 1e-3), evaluations=6), "dcpt", TRUE["dcpt"], 0.0)
    with pytest.raises(fitting.PointsError, match="N = 1e\\+06 looks like raw parameters"):
        fitting.fit(points.assign(N=points["N"] * 1e9), "dcpt", bootstrap=0)
    with pytest.raises(fitting.PointsError, match="D = 900000 looks like raw tokens"):
        fitting.fit(points.assign(D=150.0 * points["step"]), "dcpt", bootstrap=0)


def test_bits_and_perplexities_are_not_guessed_at():
    points = dcpt_points()
    for same in (points["loss"] / np.log(2), np.exp(points["loss"])):
        assert fitting.problems(points.assign(loss=same), "dcpt") == []


def test_the_same_step_of_two_corpora_is_no_duplicate():
    points = dcpt_points()
    both = pd.concat([points.assign(corpus="law"), points.assign(corpus="general", loss=points["loss"] + 0.01)])
    assert fitting.problems(both, "dcpt") == []
    (line,) = fitting.problems(pd.concat([both, both.iloc[[3]]]), "dcpt")
    assert line.startswith("run 0, step 4000, corpus law is there twice (rows 3 and 324; 1 points in all)")


def test_all_problems_at_once():
    points = dcpt_points().assign(D=lambda p: p["D"] * 1e9, r=lambda p: p["r"] * 100).drop(columns="N")
    points.loc[2, "loss"] = np.nan
    points = pd.concat([points, points.iloc[[0]]], ignore_index=True)
    assert fitting.problems(points, "dcpt") == [
        "missing column: N; the table has r, step, run, D, loss",
        "D = 7.86432e+08 looks like raw tokens: give billions (divide by 1e9)",
        "r = 100 looks like percent: give ratios between 0 and 1 (divide by 100)",
        "column loss is not finite in 1 of 163 points (first: row 2): leave them out",
        "run 0, step 1000 is there twice (rows 0 and 162; 1 points in all): keep one of each, or give every run a name "
        "of its own",
    ]


def test_problems_says_too_that_points_do_not_suffice():
    points = dcpt_points()
    assert fitting.problems(points, "dcpt") == []
    assert fitting.problems(points[(points["N"] == 0.5) & (points["r"] == 0.5)], "dcpt") == [
        "6 points are too few: dcpt has 9 parameters",
        "one size only (N = 0.5, in billions of parameters): dcpt needs two or more; fix={A: 0, alpha: 0.3} leaves out "
        "its term of sizes, or add runs at another N",
        "one ratio only (r = 0.5): dcpt needs two or more; fit chinchilla, or add runs at another ratio",
    ]
    assert fitting.problems(points, "dctp") == ["no law is called 'dctp'; did you mean dcpt?"]
    frame, _ = scheduled(0.5)
    transfer = measured(frame, "transfer-anchored", TRUE["transfer-anchored"], 0.0).drop(columns="s1_pretrain")
    assert fitting.problems(transfer, "transfer-anchored")[0].startswith("missing column: s1_pretrain; the table has")
    assert fitting.problems(transfer, "transfer-anchored", unknown=["s1_pretrain"]) == []
    assert fitting.problems(transfer, "transfer-switched", unknown=["s1_pretrain"]) == []
    changed = transfer.assign(mixture_phase=2, r_first=0.5, s1_first=transfer["s1"] / 2)
    assert fitting.problems(changed, "transfer-switched", unknown=["s1_pretrain"]) == []
    (line,) = fitting.problems(changed, "transfer-anchored", unknown=["s1_pretrain"])
    refused(re.escape(line), fitting.fit, changed, "transfer-anchored", unknown=["s1_pretrain"])
    fixed = fitting.problems(points.iloc[[0, 30, 60, 90, 120, 150, 161]], "dcpt", fix={"E": 0.9})
    assert fixed == ["7 points are too few: dcpt has 8 parameters"]


@pytest.mark.parametrize(
    ("law", "advice", "options"),
    [
        ("chinchilla", "fit power or rectified", {}),
        ("dcpt", "fix={A: 0, alpha: 0.3} leaves out its term of sizes", {"A": 0, "alpha": 0.3}),
        ("transfer-scaled", "fit transfer-anchored", {}),
        ("dynamics-size", "fit dynamics", {}),
    ],
)
def test_of_one_size_a_law_that_fits_it_is_named(law: str, advice: str, options: dict[str, float]) -> None:
    points = dcpt_points()
    points = points[points["N"] == 0.5]
    areas = dict.fromkeys(
        ("s1", "s2", "s1_pretrain", "s2_pretrain", "rho", "loss_before"), points["D"] / points["D"].max()
    )
    (line,) = [line for line in fitting.problems(points.assign(**areas), law) if line.startswith("one size")]
    assert f"needs two or more; {advice}, or add runs at another N" in line
    if options:
        assert fitting.fit(points, law, fix=options, bootstrap=0).metrics["log_rmse"] < 0.005
