"""Predicting what was not fitted."""

import numpy as np
import pytest

import fitting
from tests.fitting.synthetic import TRUE, grid, measured, scheduled


@pytest.fixture(scope="module")
def points():
    plan = grid(sizes=(0.2, 0.5, 1.8, 4.0), evaluations=12, every=15_000)
    return measured(plan, "dcpt", TRUE["dcpt"], noise=0.001)


def test_size_holds_out_the_largest(points):
    out = fitting.held_out(points, "dcpt", "size")
    assert set(out["N"]) == {4.0}
    assert len(out) == 9 * 12
    assert set(out["split"]) == {"N = 4"}
    assert out["relative_error"].to_numpy() == pytest.approx(out["predicted"] / out["measured"] - 1)
    assert out["relative_error"].abs().mean() < 0.02


def test_steps_holds_out_the_last_third(points):
    out = fitting.held_out(points, "dcpt", "steps")
    assert out["step"].min() == 9 * 15_000
    assert out["relative_error"].abs().mean() < 0.003


def test_ratio_holds_out_every_third_interior_one(points):
    out = fitting.held_out(points, "dcpt", "ratio")
    assert set(out["r"]) == {0.2, 0.67}
    assert out["relative_error"].abs().mean() < 0.003


def test_held_out_points_are_not_fitted(points):
    """Spoil the largest size: predictions of it must not notice."""
    spoiled = points.assign(loss=np.where(points["N"] == 4.0, 9.0, points["loss"]))
    honest = fitting.held_out(points, "dcpt", "size")["predicted"]
    assert fitting.held_out(spoiled, "dcpt", "size")["predicted"].to_numpy() == pytest.approx(honest.to_numpy())


def test_the_transfer_law_is_held_out_by_size_with_its_schedules():
    frame, of_run = scheduled(0.5, sizes=(0.1, 0.4, 1.0))
    points = measured(frame, "transfer-anchored", TRUE["transfer-anchored"], noise=0.001).drop(columns="s2")
    out = fitting.held_out(points, "transfer-anchored", "size", schedules=of_run)
    assert set(out["N"]) == {1.0}
    assert out["relative_error"].abs().mean() < 0.002


def test_what_cannot_be_held_out_is_said(points):
    two_sizes = points[points["N"] < 1]
    with pytest.raises(fitting.PointsError, match=r"holding out N = 0\.5 leaves too little to fit: one size only"):
        fitting.held_out(two_sizes, "dcpt", "size")
    with pytest.raises(fitting.PointsError, match="three ratios or more"):
        fitting.held_out(points[points["r"].isin([0.0, 1.0])], "dcpt", "ratio")
    with pytest.raises(fitting.PointsError, match="cannot hold out by 'seed': there are size, steps, ratio"):
        fitting.held_out(points, "dcpt", "seed")
    with pytest.raises(fitting.PointsError, match="missing column: N"):
        fitting.held_out(points.drop(columns="N"), "transfer-anchored", "size")
