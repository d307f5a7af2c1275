"""Predicting what was not fitted."""

import numpy as np
import pandas as pd
import pytest

import fitting
from fitting import cross_validation as crossval
from fitting.cross_validation import SPLITS
from fitting.solver.multi_start import local_minima
from tests.fitting.refusal import refused
from tests.fitting.synthetic import RATIOS, TRUE, grid, measured, scheduled

SIZES = (0.2, 0.5, 1.8, 4.0)


@pytest.fixture(scope="module")
def points():
    plan = grid(sizes=SIZES, evaluations=12, every=15_000)
    return measured(plan, "dcpt", TRUE["dcpt"], noise=0.001)


def judged_rows(points, by, **how):
    return [points[fold.judged] for fold in fitting.folds(points, by, **how)]


@pytest.mark.parametrize("by", sorted(set(SPLITS) - {"domain-pairs"}))
def test_no_point_is_both_fitted_and_judged_and_some_are_each(points, by):
    for fold in fitting.folds(points, by):
        assert not (fold.fitted & fold.judged).any()
        assert fold.fitted.any()
        assert fold.judged.any()


def test_size_leaves_each_out_in_turn(points):
    assert [set(rows["N"]) for rows in judged_rows(points, "each-size")] == [{size} for size in SIZES]
    assert all(len(rows) == 9 * 12 for rows in judged_rows(points, "each-size"))


def test_steps_are_three_equal_segments(points):
    thirds = [sorted(set(rows["step"] // 15_000)) for rows in judged_rows(points, "step-thirds")]
    assert thirds == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]
    by_tokens = [fold.judged for fold in fitting.folds(points.drop(columns="step"), "step-thirds")]
    assert np.array_equal(by_tokens, [fold.judged for fold in fitting.folds(points, "step-thirds")])


def test_ratio_is_the_papers_36_pairs(points):
    pairs = [frozenset(rows["r"]) for rows in judged_rows(points, "ratio-pairs")]
    assert len(set(pairs)) == len(pairs) == 36
    assert set.union(*map(set, pairs)) == set(RATIOS)
    assert {len(pair) for pair in pairs} == {2}
    inexact = points.assign(r=np.where(points.index % 2, points["r"], points["r"] + 1e-16))
    assert len(fitting.folds(inexact, "ratio-pairs")) == 36, "1 - 0.9 and 0.1 are one ratio"


def test_domain_is_the_papers_15_pairs():
    points = pd.DataFrame({"field": ["law", "code", "music", "math", "medicine", "chemistry"] * 2})
    parted = fitting.folds(points, "domain-pairs", domain="field")
    assert len(parted) == 15
    assert parted[0].label == "field = chemistry, code"
    assert all(fold.fitted.sum() == 8 for fold in parted)
    refused("missing column: domain; name the one", fitting.folds, points, "domain-pairs")
    refused("three domains or more, there are 2", fitting.folds, points.iloc[:2], "domain-pairs", domain="field")


@pytest.mark.parametrize("by", ["rolling-tokens", "rolling-compute"])
def test_a_rolling_origin_never_looks_ahead_and_goes_up_to_twice_as_far(points, by):
    far = 6 * points["N"] * points["D"] if by == "rolling-compute" else points["D"]
    parted = fitting.folds(points, by)
    assert len(parted) == 3
    for fold, origin in zip(parted, far.max() * np.array([1 / 8, 1 / 4, 1 / 2]), strict=True):
        assert far[fold.fitted].max() <= origin
        assert origin < far[fold.judged].min()
        assert far[fold.judged].max() <= 2 * origin * (1 + 1e-9)
    assert far[parted[-1].judged].max() == far.max()


def test_one_fold_splits_ask_as_a_recommendation_does(points):
    (rows,) = judged_rows(points, "size")
    assert set(rows["N"]) == {4.0}
    (rows,) = judged_rows(points, "tokens")
    assert rows["step"].min() == 9 * 15_000
    (rows,) = judged_rows(points, "ratio")
    assert set(rows["r"]) == {0.2, 0.67}
    (fold,) = fitting.folds(points, "size-and-tokens")
    assert set(points[fold.judged]["N"]) == {4.0}
    assert points[fold.judged]["step"].min() == 7 * 15_000
    assert points[fold.fitted]["step"].max() == 6 * 15_000
    assert points[fold.fitted]["N"].max() == 1.8


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
    with pytest.raises(fitting.PointsError, match="the largest size has no point in the second half"):
        fitting.folds(points[(points["N"] < 4) | (points["step"] < 90_000)], "size-and-tokens")
    refused("cannot hold out by 'seed': there are ratio, tokens, size", fitting.held_out, points, "dcpt", "seed")
    refused("missing column: N", fitting.held_out, points.drop(columns="N"), "transfer-anchored", "each-size")
    refused("there are no points", fitting.folds, points.iloc[:0], "each-size")
