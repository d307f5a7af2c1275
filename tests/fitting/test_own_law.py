"""Laws given as objects: bounds other than 0, losses of any sign, few points, and files."""

from dataclasses import replace
from math import inf

import numpy as np
import pandas as pd
import pytest

import fitting
from fitting import Law, Parameter
from fitting.laws.law import Solving, exponent, power
from tests.fitting.refusal import refused


def basis(x, psi) -> np.ndarray:
    return np.column_stack([np.ones_like(x["n"]), power(x["n"], -psi[0])])


POWER = Law(
    name="own-power",
    equation="L = c + k n^{-a}",
    source="this test",
    parameters=(Parameter("c", "nats", low=-inf), Parameter("k", "nats"), exponent("a", "n")),
    columns=("n",),
    varies={"n": "a"},
    basis=basis,
    solving=Solving(residual="loss"),
)


def bounded(**bounds: tuple[float, float]) -> Law:
    parameters = (
        replace(p, low=bounds[p.name][0], high=bounds[p.name][1]) if p.name in bounds else p for p in POWER.parameters
    )
    return replace(POWER, parameters=tuple(parameters))


def points(law: Law, params: dict[str, float], noise: float = 0.0, scale: float = 1.0) -> pd.DataFrame:
    n = np.geomspace(1, 100, 12)
    errors = noise * np.random.default_rng(0).standard_normal(len(n))
    loss = scale * (law.loss({"n": n}, params) + errors)
    return pd.DataFrame({"n": n, "loss": loss, "run": range(len(n))})


@pytest.mark.parametrize("c", [-2.0, 0.4, 30.0])
def test_losses_of_any_sign_are_fitted(c):
    truth = {"c": c, "k": 3.0, "a": 0.5}
    fit = fitting.fit(points(POWER, truth, noise=1e-3), POWER, bootstrap=20)
    assert fit.params == pytest.approx(truth, rel=0.02, abs=0.02)
    low, high = fit.predict_interval(pd.DataFrame({"n": [10.0]}))
    assert low[0] < c + 3 / np.sqrt(10) < high[0]
    assert high[0] - low[0] < 0.02


def test_a_name_that_is_taken_is_one_clear_line():
    with pytest.raises(fitting.PointsError, match=r"name='power', \.\.\.\) has the name of a law.*like own-power$"):
        fitting.fit(points(POWER, {"c": 1.0, "k": 3.0, "a": 0.5}), replace(POWER, name="power"), bootstrap=0)


@pytest.mark.parametrize("count", [1, 11])
def test_points_are_held_out_of_a_law_of_ones_own(count):
    table = points(POWER, {"c": -2.0, "k": 3.0, "a": 0.5})
    last = np.arange(len(table)) == len(table) - 1
    held = fitting.held_out(table, POWER, [fitting.Fold(str(number), ~last, last) for number in range(count)])
    assert held["predicted"].to_numpy() == pytest.approx(held["measured"].to_numpy(), abs=1e-4)


def test_the_unit_of_the_loss_does_not_matter():
    table = points(POWER, {"c": -2.0, "k": 3.0, "a": 0.5}, noise=0.01)
    one = fitting.fit(table, POWER, bootstrap=0)
    other = fitting.fit(table.assign(loss=1e4 * table["loss"]), POWER, bootstrap=0)
    assert other.params["a"] == pytest.approx(one.params["a"], rel=1e-4)
    assert other.params["c"] == pytest.approx(1e4 * one.params["c"], rel=1e-4)


@pytest.mark.parametrize(
    ("bounds", "truth"),
    [
        ({"c": (1.0, inf)}, {"c": 1.3, "k": 3.0, "a": 0.5}),
        ({"c": (-inf, -1.0)}, {"c": -1.3, "k": 3.0, "a": 0.5}),
        ({"c": (-5.0, 5.0), "k": (-4.0, -2.0)}, {"c": 1.3, "k": -3.0, "a": 0.5}),
        ({"c": (1.0, 2.0), "k": (2.0, 10.0)}, {"c": 1.3, "k": 3.0, "a": 0.5}),
    ],
)
def test_linear_parameters_keep_their_bounds(bounds, truth):
    law = bounded(**bounds)
    assert fitting.fit(points(law, truth), law, bootstrap=0).params == pytest.approx(truth, rel=1e-3)
    low, high = bounds["c"]
    outside = {**truth, "c": high + 1 if np.isfinite(high) else low - 1}
    there = fitting.fit(points(law, outside), law, bootstrap=0).params["c"]
    assert low - 1e-12 <= there <= high + 1e-12


def test_a_law_may_have_nonlinear_parameters_alone():
    law = replace(
        POWER,
        parameters=(exponent("a", "n"), Parameter("k", "nats", -10.0, 10.0, linear=False, start=(-5.0, 5.0))),
        basis=lambda x, psi: np.zeros((len(x["n"]), 0)),
        offset=lambda x, psi: psi[1] * power(x["n"], -psi[0]),
    )
    truth = {"a": 0.5, "k": -3.0}
    assert fitting.fit(points(law, truth), law, bootstrap=0).params == pytest.approx(truth, rel=1e-3)


def test_few_points_need_a_word():
    table = points(POWER, {"c": 1.0, "k": 3.0, "a": 0.5}).iloc[:2]
    refused(r"2 points are too few: own-power has 3 parameters; few=True lets", fitting.fit, table, POWER, bootstrap=0)
    fit = fitting.fit(table, POWER, bootstrap=0, few=True)
    assert fit.predict(table) == pytest.approx(table["loss"], rel=1e-3)
    assert fit.warnings[0] == "2 points are too few: own-power has 3 parameters"
    # Its covariance and intervals exist too.
    assert len(fitting.fit(table, POWER, bootstrap=3, few=True).draws) == 3
    with pytest.raises(fitting.PointsError, match="few=True needs the prior"):
        fitting.fit(table, POWER, bootstrap=0, few=True, method=fitting.VarPro(prior=False))
    refused("0 points are too few", fitting.fit, table.iloc[:0], POWER, bootstrap=0, few=True)


def test_a_file_holds_no_law_object():
    table = points(POWER, {"c": 1.0, "k": 3.0, "a": 0.5})
    text = fitting.fit(table, POWER, bootstrap=0).to_json()
    refused("'own-power', a Law given as an object, which no file holds", fitting.Fit.from_json, text)
    registered = fitting.fit(
        pd.DataFrame({"x": [0.3, 1.0, 3.0], "loss": [1.2, 1.0, 0.9]}).assign(run=range(3)),
        fitting.LAWS["ddo"],
        bootstrap=0,
    )
    assert fitting.Fit.from_json(registered.to_json()).params == registered.params


def test_columns_of_an_own_law_are_its_own():
    """N as a count is refused for the package's laws only."""
    law = replace(POWER, columns=("N",), varies={}, basis=lambda x, psi: basis({"n": x["N"] / 1e9}, psi))
    table = points(POWER, {"c": 1.0, "k": 3.0, "a": 0.5}).rename(columns={"n": "N"})
    assert fitting.fit(table.assign(N=table["N"] * 1e9), law, bootstrap=0).params["a"] == pytest.approx(0.5, rel=1e-3)
    refused("law = 3 is neither", fitting.fit, table, 3, bootstrap=0)
