"""Known parameters come back, whatever the seed."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fitting
from fitting import VarPro
from tests.fitting.synthetic import RATIOS, TRUE, grid, measured, pretrained_and_continued, scheduled, small_plan


@pytest.mark.parametrize("law", ["dcpt", "transfer-anchored"])
def test_the_optimum_is_a_minimum_of_the_huber_sum(law):
    points = measured(small_plan(law), law, TRUE[law], noise=0.003)
    fit = fitting.fit(points, law, bootstrap=0)
    chosen = fitting.LAWS[law]
    x = {name: points[name].to_numpy(float) for name in chosen.columns}

    def objective(params):
        size = np.abs(np.log(chosen.loss(x, params)) - np.log(points["loss"].to_numpy()))
        return np.sum(np.where(size <= 1e-3, size**2 / 2, 1e-3 * (size - 0.5e-3)))

    assert objective(fit.params) == pytest.approx(fit.objective)
    assert fit.metrics["huber"] == pytest.approx(fit.objective)
    for name in fit.params:
        for factor in (0.999, 1.001):
            assert objective({**fit.params, name: fit.params[name] * factor}) > fit.objective * (1 - 1e-7)


def test_outliers_barely_move_the_fit():
    points = measured(small_plan("chinchilla"), "chinchilla", TRUE["chinchilla"], noise=0.001)
    rows = np.random.default_rng(1).choice(len(points), 20, replace=False)
    points.loc[rows, "loss"] *= 1.5
    assert fitting.fit(points, "chinchilla", bootstrap=0).params == pytest.approx(TRUE["chinchilla"], rel=0.1)


def test_weights_count_points():
    points = measured(small_plan("chinchilla"), "chinchilla", TRUE["chinchilla"], noise=0.003)
    again = points.iloc[:100].assign(run=points["run"].iloc[:100] + 1000)
    twice = pd.concat([points, again], ignore_index=True)
    weights = np.where(points.index < 100, 2.0, 1.0)
    weighted = fitting.fit(points, "chinchilla", bootstrap=0, point_weights=weights)
    assert weighted.objective == pytest.approx(fitting.fit(twice, "chinchilla", bootstrap=0).objective, rel=1e-6)


@pytest.mark.parametrize(("law", "least"), [("dcpt", 0.1), ("dcpt-convex", 0.0)])
@settings(max_examples=5, deadline=None)
@given(
    B=st.floats(0.01, 0.5),
    C=st.floats(0.0, 1.0),
    beta=st.floats(0.1, 0.8),
    gamma=st.floats(0.05, 1.0),
    eta=st.floats(0.3, 3.0),
)
def test_dcpt_always_falls_with_the_ratio(law, least, B, C, beta, gamma, eta):
    """Even when the truth does not: here C is mostly far below what monotony asks for."""
    truth = {**TRUE["dcpt"], "B": B, "C": C, "beta": beta, "gamma": gamma, "eta": eta}
    points = measured(grid(evaluations=10, every=20_000), "dcpt", truth, noise=0.002)
    fit = fitting.fit(points, law, bootstrap=0)
    probe = grid(sizes=(1.8,), ratios=np.linspace(least, 1, 101), evaluations=1).assign(D=fit.constants["D_min"])
    assert np.all(np.diff(fit.predict(probe)) <= 1e-9)


def test_no_ratio_and_no_step_are_finite():
    dcpt = fitting.fit(measured(grid(evaluations=5), "dcpt", TRUE["dcpt"], 0.0), "dcpt", bootstrap=0)
    at_zero = pd.DataFrame({"N": [1.8, 1.8], "D": [1.0, 20.0], "r": 0.0})
    losses = dcpt.predict(at_zero)
    assert np.isfinite(losses).all()
    assert losses[0] == losses[1], "without its corpus in the mixture, tokens do not help"

    frame, _ = scheduled(decay=0.9, ratios=RATIOS)
    transfer = fitting.fit(
        measured(frame, "transfer-anchored", TRUE["transfer-anchored"], 0.0), "transfer-anchored", bootstrap=0
    )
    start = frame[frame["step"] == 0]
    assert transfer.predict(start) == pytest.approx(start["loss_before"].to_numpy())


@pytest.mark.parametrize("decay", [0.8, 0.99])
def test_the_decay_of_s2_is_found_from_the_schedules(decay):
    frame, of_run = scheduled(decay)
    truth = {**TRUE["transfer-anchored"], "C2": 120.0 * (1 - decay)}
    points = measured(frame, "transfer-anchored", truth, noise=0.0005).drop(columns="s2")
    fit = fitting.fit(points, "transfer-anchored", schedules=of_run, bootstrap=0)
    assert list(fit.params)[-1] == "lambda"
    assert fit.params["lambda"] == pytest.approx(decay, abs=0.2 * (1 - decay))
    filled = fitting.with_areas(points, of_run, fit.params["lambda"])
    assert fit.predict(filled) == pytest.approx(points["loss"].to_numpy(), rel=0.005)
    other = fitting.fit(points, "transfer-anchored", schedules=of_run, bootstrap=0, method=VarPro(first_guesses=5))
    assert other.objective == pytest.approx(fit.objective, rel=1e-6)


@pytest.mark.parametrize("a2", [-6.0, 0.5])
@pytest.mark.parametrize("law", ["dynamics-replay", "dynamics-replay-domain"])
def test_a2_of_eq_8_comes_back_with_its_sign(law, a2):
    plan = pretrained_and_continued()
    kinds = plan.groupby("run", sort=False).ngroup()
    plan["r"] = np.where(
        plan["s1"] > 0, np.array([0.0, 0.2, 0.5, 0.8, 1.0])[kinds % 5], float(law == "dynamics-replay")
    )
    sign = -1 if law == "dynamics-replay-domain" else 1
    B = 0.3 * sign / abs(np.expm1(-a2 if sign > 0 else a2)) * np.sign(a2)
    truth = {**TRUE["dynamics"], "B": B, "a1": 0.1, "a2": a2}
    fit = fitting.fit(measured(plan, law, truth, 0.0), law, bootstrap=0)
    assert fit.params == pytest.approx(truth, rel=1e-3)
