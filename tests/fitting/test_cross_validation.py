"""Predicting what was not fitted."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest

import fitting
from fitting import cross_validation as crossval
from fitting.solver.multi_start import local_minima
from tests.fitting.refusal import refused
from tests.fitting.synthetic import RATIOS, TRUE, grid, measured, scheduled

SIZES = (0.2, 0.5, 1.8, 4.0)


@pytest.fixture(scope="module")
def points():
    plan = grid(sizes=SIZES, evaluations=12, every=15_000)
    return measured(plan, "dcpt", TRUE["dcpt"], noise=0.001)


FOLDS = {
    "ratio": {"r = 0.2, 0.67": (336, 96)},
    "tokens": {"D > 15.7286": (288, 144)},
    "size": {"N = 4": (324, 108)},
    "size-and-tokens": {"N = 4 and D > 11.7965": (162, 54)},
    "each-size": dict.fromkeys(("N = 0.2", "N = 0.5", "N = 1.8", "N = 4"), (324, 108)),
    "step-thirds": dict.fromkeys(("step 0 to 60000", "step 60000 to 120000", "step 120000 to 180000"), (288, 144)),
    "ratio-pairs": {f"r = {a:g}, {b:g}": (336, 96) for a, b in combinations(RATIOS, 2)},
    "rolling-tokens": {"D 2.949 to 5.898": (36, 72), "D 5.898 to 11.8": (108, 108), "D 11.8 to 23.59": (216, 216)},
    "rolling-compute": {
        **{"6 N D 70.78 to 141.6": (252, 45), "6 N D 141.6 to 283.1": (297, 81), "6 N D 283.1 to 566.2": (378, 54)}
    },
    "horizon": {"D > 11.8": (216, 216), "D > 5.898": (108, 324), "D > 1.966": (36, 396)},
}
"""Split -> what is held out -> how many of the 432 points are fitted and judged: sizes, ratios, and 12 steps."""


@pytest.mark.parametrize("by", FOLDS)
def test_the_folds_of_a_split(points, by):
    parted = fitting.folds(points, by)
    assert {fold.label: (fold.fitted.sum(), fold.judged.sum()) for fold in parted} == FOLDS[by]
    assert len(parted) == len(FOLDS[by])
    assert not any((fold.fitted & fold.judged).any() for fold in parted)


def test_ratios_that_differ_by_rounding_are_one_and_tokens_stand_for_steps(points):
    inexact = points.assign(r=np.where(points.index % 2, points["r"], points["r"] + 1e-16))
    assert len(fitting.folds(inexact, "ratio-pairs")) == 36, "1 - 0.9 and 0.1 are one ratio"
    by_tokens = [fold.judged for fold in fitting.folds(points.drop(columns="step"), "step-thirds")]
    assert np.array_equal(by_tokens, [fold.judged for fold in fitting.folds(points, "step-thirds")])


def test_domain_is_the_papers_15_pairs():
    points = pd.DataFrame({"field": ["law", "code", "music", "math", "medicine", "chemistry"] * 2})
    parted = fitting.folds(points, "domain-pairs", domain="field")
    assert len(parted) == 15
    assert parted[0].label == "field = chemistry, code"
    assert all(fold.fitted.sum() == 8 for fold in parted)
    refused("missing column: domain; name the one", fitting.folds, points, "domain-pairs")
    refused("three domains or more, there are 2", fitting.folds, points.iloc[:2], "domain-pairs", domain="field")


def test_every_fold_is_fitted_and_predicted(points):
    told = []
    out = fitting.held_out(points, "dcpt", "each-size", log=told.append)
    assert len(out) == len(points)
    assert list(dict.fromkeys(out["split"])) == ["N = 0.2", "N = 0.5", "N = 1.8", "N = 4"]
    assert out["relative_error"].to_numpy() == pytest.approx(out["predicted"] / out["measured"] - 1)
    assert out["measured"].to_numpy() == pytest.approx(points.loc[out.index, "loss"].to_numpy())
    assert out["relative_error"].abs().mean() < 0.02
    assert out.attrs["skipped"] == {}
    assert len(told) == 4
    assert told[0].startswith("dcpt, N = 0.2 held out: mean error ")
    assert fitting.held_out(points, "dcpt", "step-thirds")["relative_error"].abs().mean() < 0.003


def test_held_out_points_are_not_fitted(points):
    """Spoil the largest size: predictions of it must not notice."""
    spoiled = points.assign(loss=np.where(points["N"] == 4.0, 9.0, points["loss"]))
    honest = fitting.held_out(points, "dcpt", "size")["predicted"]
    again = fitting.held_out(spoiled, "dcpt", "size")["predicted"]
    assert again.to_numpy() == pytest.approx(honest.to_numpy())


def test_many_folds_share_a_search_and_end_where_each_alone_would(points, monkeypatch):
    """Of six ratios, 15 pairs; what is held out is spoiled, so that a fit which had seen it would show."""
    some = points[np.isin(points["r"], RATIOS[1:7]) & (points["step"] % 45_000 == 0)]
    searched = []
    monkeypatch.setattr(
        crossval, "local_minima", lambda *given, **how: searched.append(1) or local_minima(*given, **how)
    )
    out = fitting.held_out(some, "dcpt", "ratio-pairs", workers=1)
    assert len(searched) == 1
    assert out["split"].nunique() == 15
    for fold in fitting.folds(some, "ratio-pairs")[::7]:
        alone = fitting.fit(some[fold.fitted], "dcpt", bootstrap=0).predict(some[fold.judged])
        assert out.loc[out["split"] == fold.label, "predicted"].to_numpy() == pytest.approx(alone, rel=1e-5)
    last = fitting.folds(some, "ratio-pairs")[-1]
    again = fitting.held_out(some.assign(loss=some["loss"] * np.where(last.judged, 1.02, 1)), "dcpt", "ratio-pairs")
    honest, spoiled = (found.loc[found["split"] == last.label, "predicted"].to_numpy() for found in (out, again))
    assert spoiled == pytest.approx(honest, rel=1e-5)


def test_the_transfer_law_is_held_out_by_size_with_its_schedules():
    frame, of_run = scheduled(0.5, sizes=(0.1, 0.4, 1.0))
    points = measured(frame, "transfer-anchored", TRUE["transfer-anchored"], noise=0.001).drop(columns="s2")
    out = fitting.held_out(points, "transfer-anchored", "size", schedules=of_run)
    assert set(out["N"]) == {1.0}
    assert out["relative_error"].abs().mean() < 0.002
    given = fitting.held_out(points, "transfer-anchored", "size", schedules=of_run, fix={"lambda": 0.5})
    assert given["relative_error"].abs().mean() < 0.002, "S2 of the judged points follows the lambda that was given"


def test_a_fold_that_cannot_be_fitted_is_passed_over_with_its_reason(points):
    two_sizes = points[points["N"].isin([0.2, 4.0]) & ((points["N"] == 0.2) | (points["step"] > 60_000))]
    out = fitting.held_out(two_sizes, "dcpt", "step-thirds")
    assert set(out["split"]) == {"step 0 to 60000", "step 60000 to 120000", "step 120000 to 180000"}
    early = fitting.held_out(two_sizes, "dcpt", "rolling-tokens")
    assert len(set(early["split"])) == 1
    reasons = list(early.attrs["skipped"].values())
    assert len(reasons) == 2
    assert "one size only (N = 0.2, in billions of parameters)" in reasons[0]


def test_what_cannot_be_held_out_is_said(points):
    two_sizes = points[points["N"] < 1]
    with pytest.raises(fitting.PointsError, match=r"holding out N = 0\.2 leaves too little to fit: one size only"):
        fitting.held_out(two_sizes, "dcpt", "each-size")
    refused("there is one only, N = 4", fitting.held_out, points[points["N"] == 4], "dcpt", "each-size")
    for by in ("ratio-pairs", "ratio"):
        refused("three ratios or more", fitting.held_out, points[points["r"].isin([0.0, 1.0])], "dcpt", by)
    refused("no point has half the largest or less", fitting.folds, points[points["step"] == 180_000], "rolling-tokens")
    refused("cannot roll the origin in D", fitting.folds, points[points["step"] == 180_000], "horizon")
    refused("no fold to hold out", fitting.held_out, points, "dcpt", [])
    with pytest.raises(fitting.PointsError, match="the largest size has no point in the second half"):
        fitting.folds(points[(points["N"] < 4) | (points["step"] < 90_000)], "size-and-tokens")
    refused("cannot hold out by 'seed': there are ratio, tokens, size", fitting.held_out, points, "dcpt", "seed")
    refused("missing column: N", fitting.held_out, points.drop(columns="N"), "transfer-anchored", "each-size")
    refused("there are no points", fitting.folds, points.iloc[:0], "each-size")
