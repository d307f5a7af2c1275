"""As much of the domain as the general loss can bear."""

from dataclasses import replace

import numpy as np
import pandas
import pytest
from scipy.optimize import brentq, curve_fit

import fitting
from fitting.answers.trade_off import trade_offs
from tests.fitting.given import given
from tests.fitting.refusal import refused
from tests.fitting.synthetic import TRUE, grid, measured, scheduled

N, D = 1.8, 20.0
BEFORE = 2.3


@pytest.fixture(scope="module")
def general() -> fitting.Fit:
    return fitting.fit(measured(PLAN, "dcpt", TRUE["dcpt"], 0.001, run_noise=0.001), "dcpt", bootstrap=20)


@pytest.fixture(scope="module")
def domain() -> fitting.Fit:
    truth = {**TRUE["dcpt"], "E": 0.4, "C": 0.9}
    return fitting.fit(measured(PLAN, "dcpt", truth, 0.001, seed=1, run_noise=0.001), "dcpt", bootstrap=20)


PLAN = grid(evaluations=12, every=15_000)


def law_loss(p: dict, r: float) -> float:
    return (
        p["E"] + p["A"] / N ** p["alpha"] + p["B"] * r ** p["eta"] / D ** p["beta"]
        + p["C"] / (r + p["eps"]) ** p["gamma"]
    )  # fmt: skip


def true_general_loss(r_d: float) -> float:
    return law_loss(TRUE["dcpt"], 1 - r_d)


@pytest.mark.parametrize("r_true", [0.3, 0.6, 0.95])
def test_the_ratio_is_where_the_general_loss_meets_its_cap(general, domain, r_true):
    tolerance = true_general_loss(r_true) / BEFORE - 1
    answer = fitting.trade_off(general, domain, N, D, tolerance, BEFORE)
    assert answer.domain_ratio == pytest.approx(r_true, abs=0.02)
    assert answer.low <= answer.domain_ratio <= answer.high
    assert answer.high - answer.low < 0.1
    loss, low, high = answer.predicted["general"]
    assert loss == pytest.approx(BEFORE * (1 + tolerance), rel=1e-6)
    assert low < loss < high
    assert answer.predicted["domain"][1] < answer.predicted["domain"][0] < answer.predicted["domain"][2]
    assert answer.status.message == f"general loss reaches {tolerance:+.1%}"
    assert answer.warnings == []


def test_no_ratio_beyond_one_that_is_excluded_is_in_the_interval(general, domain):
    """Near 0 of a corpus, where nothing was fitted, errors are larger: its loss is not less likely too high there."""
    tolerance = true_general_loss(0.6) / BEFORE - 1
    narrow = replace(general, ranges={**general.ranges, "r": (0.3, 1.0)}, held_out={"ratio": 0.004})
    assert narrow.errors_at(pandas.DataFrame({"r": [0.0], "N": N, "D": D}))[0, 0] < -0.1
    answer = fitting.trade_off(narrow, domain, N, D, tolerance, BEFORE)
    assert answer.low < 0.6 < answer.high < 0.8


def test_many_tolerances_at_once_have_the_same_answers(general, domain):
    start, general = true_general_loss(0.0) / BEFORE - 1, replace(general, held_out={"ratio": 0.004})
    tolerances, at = np.array([start - 0.3, start + 0.01, start + 0.06, 9.0]), {"loss_before": BEFORE}
    columns = {"general_at": at, "domain_at": at}
    half = np.array([0.5])
    found = trade_offs(general, domain, N, D, tolerances, BEFORE, half, **columns)
    assert np.isnan([found.domain_ratio[0], found.low[0], *found.predicted["domain"][:, 0]]).all()
    for n, tolerance in list(enumerate(tolerances))[1:]:
        one = fitting.trade_off(general, domain, N, D, tolerance, BEFORE)
        of_many = [found.domain_ratio[n], found.low[n], found.high[n]]
        assert of_many == pytest.approx([one.domain_ratio, one.low, one.high], abs=1e-9)
        for corpus, losses in one.predicted.items():
            assert found.predicted[corpus][:, n] == pytest.approx(losses, rel=1e-9)
    frame = pandas.DataFrame({"N": [N], "D": [D], "r": half})
    there = np.ravel([domain.predict(frame), *domain.predict_interval(frame)])
    assert found.predicted["domain"][:, -1] == pytest.approx(there)


def test_all_domain_when_nothing_binds(general, domain):
    answer = fitting.trade_off(general, domain, N, D, 10.0, BEFORE)
    assert (answer.domain_ratio, answer.high) == (1.0, 1.0)
    assert answer.status.message == "nothing: predicted within tolerance at 100%"


def test_none_when_nothing_helps(general, domain):
    answer = fitting.trade_off(general, domain, N, D, -0.9, BEFORE)
    assert answer.domain_ratio is answer.low is answer.high is None
    assert answer.status.message.startswith("infeasible even at domain ratio 0: general loss would reach ")


def test_held_out_errors_widen_the_interval(general, domain):
    tolerance = true_general_loss(0.6) / BEFORE - 1
    plain = fitting.trade_off(general, domain, N, D, tolerance, BEFORE)
    wide = fitting.trade_off(replace(general, held_out={"ratio": 0.02}), domain, N, D, tolerance, BEFORE)
    assert wide.low < plain.low <= plain.high < wide.high
    assert wide.predicted["general"][2] > plain.predicted["general"][2]
    assert wide.predicted["domain"] == plain.predicted["domain"]


def test_extrapolation_is_said(general, domain):
    lines = fitting.trade_off(general, domain, 8.0, 260.0, 0.1, BEFORE).warnings
    assert "general: N = 8 billion is beyond the points, 2 times the largest fitted (4)" in lines
    assert any(line.startswith("domain: D = 260 billion is beyond the points, 11") for line in lines)
    cut = given("dcpt", TRUE["dcpt"], {"r": (0.3, 0.9)}, draws=2)
    lines = fitting.trade_off(cut, domain, N, D, 10.0, BEFORE).warnings
    assert any(line.startswith("general: r = 0 is beyond the points") for line in lines)


def test_the_transfer_law_needs_its_columns_and_takes_the_loss_before(domain):
    frame, _ = scheduled(0.5)
    points = measured(frame.assign(rho=1.0), "transfer-anchored", TRUE["transfer-anchored"], noise=0.0)
    general = fitting.fit(points, "transfer-anchored", bootstrap=20)
    with pytest.raises(fitting.PointsError, match="general law transfer-anchored reads rho, s1, s2, s1_pretrain"):
        fitting.trade_off(general, domain, N, D, 0.03, 3.0)
    at = {"rho": 1.0, "s1": 0.2, "s2": 0.001, "s1_pretrain": 3.0}
    answer = fitting.trade_off(general, domain, N, D, 0.03, 3.0, general_at=at)
    t = TRUE["transfer-anchored"]
    steady = -t["C2"] * 0.001 - t["G"] * np.log1p(0.2 / 3.0)
    way = np.exp((0.09 - steady) / (t["C"] * np.log1p(t["E"] * 0.2)))
    assert answer.domain_ratio == pytest.approx(1 - ((1 + t["eps"]) / way - t["eps"]), abs=1e-4)


def test_bad_questions(general, domain):
    refused("general_before = 0", fitting.trade_off, general, domain, N, D, 0.03, 0.0)
    refused("looks like raw tokens", fitting.trade_off, general, domain, N, 20e9, 0.03, BEFORE)
    refused("tolerance", fitting.trade_off, general, domain, N, D, float("nan"), BEFORE)


MEASURED = {0.1: 2.9052, 0.09: 2.9193, 0.08: 2.9376, 0.076: 2.9445, 0.07: 2.9644, 0.06: 2.9848, 0.0: 3.4667}
"""Que et al. 2024, table 5: share of general -> measured general loss, chemistry, N = 1.8, D = 10."""


def test_the_paper_s_worked_number(domain):
    """Sec. 4.3: 2.8602 before, 3% allowed, predicted 2.9458 at r_d = 0.924, which is where a law through it stops."""
    cap = 2.8602 * 1.03
    assert cap == pytest.approx(2.9458, abs=0.0003)
    r, loss = np.array(list(MEASURED)), np.array(list(MEASURED.values()))
    (E, C, gamma, eps), _ = curve_fit(lambda r, E, C, g, e: E + C * (r + e) ** -g, r, loss, p0=(2.5, 0.2, 0.5, 0.02))
    E += 2.9458 - (E + C * (0.076 + eps) ** -gamma)
    rest = {"A": 0.0, "B": 0.0, "alpha": 0.3, "beta": 0.3, "eta": 1.4}
    law = given("dcpt", {"E": E, "C": C, "gamma": gamma, "eps": eps, **rest}, draws=10)
    answer = fitting.trade_off(law, domain, 1.8, 10.0, 0.03, 2.8602)
    assert answer.domain_ratio == pytest.approx(0.924, abs=0.0005)
    assert answer.predicted["general"][0] == pytest.approx(cap)


def test_columns_that_were_fitted_as_unknown_need_not_be_given(domain):
    general = given("transfer-anchored", {**TRUE["transfer-anchored"], "rho": 1.0}, draws=10, unknown=["rho"])
    at = {"s1": 0.2, "s2": 0.001, "s1_pretrain": 3.0}
    answer = fitting.trade_off(general, domain, N, D, 0.03, 3.0, general_at=at)
    assert 0 < answer.domain_ratio < 1


def test_each_draw_is_stopped_at_its_own_crossing(domain):
    law = given("dcpt", TRUE["dcpt"], draws=30, wobble=0.003)
    tolerance = true_general_loss(0.6) / BEFORE - 1
    answer = fitting.trade_off(law, domain, N, D, tolerance, BEFORE)

    def crossing(p):
        return brentq(lambda r: law_loss(p, 1 - r) - BEFORE * (1 + tolerance), 0, 1)

    each = [crossing(dict(zip(law.params, draw, strict=True))) for draw in law.draws]
    assert (answer.low, answer.high) == pytest.approx(np.quantile(each, [0.05, 0.95]), abs=1e-5)
