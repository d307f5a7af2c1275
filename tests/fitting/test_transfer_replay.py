"""transfer-replay: its limit at beta = 0, and the loss at r = 0 from runs at larger ratios."""

import numpy as np

import fitting
from fitting.laws import LAWS
from tests.fitting.synthetic import scheduled

LAW = LAWS["transfer-replay"]
TRUTH = {"C2": 60.0, "C": 0.04, "G": 0.6, "K": 4000.0, "b": 1.0, "E": 230.0, "beta": 0.0, "nu": -0.1}


def test_beta_0_is_the_limit_of_small_beta():
    at = {"loss_before": 3.0, "rho": 1.0, "s1": 0.2, "s2": 0.0, "s1_pretrain": 3.0, "N": 0.5}
    x = {"r": np.array([0.0, 0.5, 1.0]), **{name: np.full(3, value) for name, value in at.items()}}
    at_0, near, beyond = (LAW.loss(x, {**TRUTH, "beta": beta}) for beta in (0.0, 1.5e-4, 4e-4))
    np.testing.assert_allclose(near, at_0, rtol=1e-4)
    # Across the border of the series: a jump would be of its first term left out.
    np.testing.assert_allclose((beyond - at_0) / 4e-4, (near - at_0) / 1.5e-4, rtol=2e-3, atol=1e-9)


def test_runs_at_larger_ratios_determine_r_0():
    points, schedules = scheduled(decay=0.5, ratios=(0.0, 0.1, 0.25, 0.5, 0.75, 1.0))
    points = fitting.with_areas(points.assign(rho=1.0), schedules, decay=0.5)
    points = points[points["step"] > 0].reset_index(drop=True)
    errors = 0.0005 * np.random.default_rng(0).standard_normal(len(points))
    exact = LAW.loss({name: points[name].to_numpy(float) for name in LAW.columns}, TRUTH)
    points = points.assign(loss=exact * np.exp(errors))
    known, asked = points[points["r"] >= 0.1], points["r"] == 0
    missed = {}
    for law in ("transfer-replay", "transfer-anchored"):
        fit = fitting.fit(known, law, schedules=schedules, bootstrap=0)
        rows = fitting.with_areas(points[asked], schedules, fit.params["lambda"])
        missed[law] = float(np.abs(fit.predict(rows) / exact[asked] - 1).mean())
    assert missed["transfer-replay"] < 0.003
    assert missed["transfer-anchored"] > 0.02
