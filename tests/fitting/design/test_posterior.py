"""Draws of the posterior, beside what is known exactly."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm, truncnorm

import fitting
from fitting import Law, Parameter
from fitting.laws.law import power
from fitting.uncertainty import posterior as posteriors
from fitting.uncertainty.posterior import law_at, posterior
from tests.fitting.synthetic import TRUE

NO_POINTS = np.zeros(0)
ONE = Law(
    name="one",
    equation="L = 3 n^{-a}",
    source="this test",
    parameters=(Parameter("a", "exponent", 0.1, 2.0, linear=False, start=(0.3, 1.3)),),
    columns=("n",),
    varies={},
    basis=lambda x, psi: np.zeros((len(x["n"]), 0)),
    offset=lambda x, psi: 3 * power(x["n"], -psi[0]),
)


def draws_of(law: Law, x: dict, loss: np.ndarray, reference: dict, seed: int = 0):
    return posterior(law, x, loss, np.zeros((len(loss), 1)), reference, np.random.default_rng(seed))


def test_without_points_it_is_the_prior():
    n = np.geomspace(1, 100, 5)
    drawn = draws_of(ONE, {"n": NO_POINTS}, NO_POINTS, {"n": n}).psi[:, 0]
    prior = truncnorm(-0.7, 1.2, loc=0.8, scale=1.0)
    assert drawn.mean() == pytest.approx(prior.mean(), abs=0.02)
    assert drawn.std() == pytest.approx(prior.std(), abs=0.02)
    assert drawn.min() >= 0.1
    assert drawn.max() <= 2.0


def test_one_parameter_agrees_with_its_integral():
    n = np.geomspace(1.5, 4, 4)
    loss = 3 * n**-0.5 * np.exp([0.01, -0.012, 0.004, -0.008])
    drawn = draws_of(ONE, {"n": n}, loss, {"n": n})
    a, log_s = np.meshgrid(np.linspace(0.4, 0.6, 801), np.log(0.004) + 0.8 * np.linspace(-4, 4, 161), indexing="ij")
    squares = sum(((3 * k**-a - value) / value) ** 2 for k, value in zip(n, loss, strict=True))
    density = (
        -squares / 2 / np.exp(2 * log_s) - 4 * log_s - (a - 0.8) ** 2 / 2 - ((log_s - np.log(0.004)) / 0.8) ** 2 / 2
    )
    weight = np.exp(density - density.max())
    mean = np.sum(weight * a) / weight.sum()
    sd = np.sqrt(np.sum(weight * (a - mean) ** 2) / weight.sum())
    assert drawn.psi.mean() == pytest.approx(mean, abs=0.3 * sd)
    assert drawn.psi.std() == pytest.approx(sd, rel=0.15)
    assert drawn.noise.mean() == pytest.approx(np.sum(weight * np.exp(log_s)) / weight.sum(), rel=0.1)


def test_it_agrees_with_a_long_run():
    """From a hundred steps of each particle on, where it started from is forgotten."""
    law, count = fitting.LAWS["chinchilla"], 4
    x = {"N": np.geomspace(0.1, 3, count), "D": np.tile([1.0, 16.0], count // 2)}
    loss = law.loss(x, TRUE["chinchilla"]) * np.exp(0.003 * np.random.default_rng(1).standard_normal(count))
    target = {"N": np.array([1.0, 6.0]), "D": np.array([8.0, 60.0])}
    short, long = (
        np.log(posterior(law, x, loss, np.zeros((count, 1)), x, np.random.default_rng(0), moves=n).losses(target))
        for n in (posteriors.LAST_MOVES, 40.0)
    )
    low, middle, high = np.quantile(long, [0.05, 0.5, 0.95], axis=0)
    assert (np.abs(np.quantile(short, 0.5, axis=0) - middle) < 0.15 * (high - low)).all()
    assert np.ptp(np.quantile(short, [0.05, 0.95], axis=0), axis=0) == pytest.approx(high - low, rel=0.35)


def test_bounds_of_linear_parameters_hold_in_every_draw():
    bounds = {"E": (1.6, 1.8), "A": (-1.0, 0.3), "B": (0.2, np.inf)}
    law = fitting.LAWS["chinchilla"]
    parameters = (replace(p, low=bounds[p.name][0], high=bounds[p.name][1]) if p.linear else p for p in law.parameters)
    law = replace(law, parameters=tuple(parameters))
    x = {"N": np.geomspace(0.1, 3, 6), "D": np.tile([1.0, 16.0], 3)}
    for loss in (NO_POINTS, law.loss(x, TRUE["chinchilla"])):
        seen = x if len(loss) else {name: NO_POINTS for name in x}
        drawn = draws_of(law, seen, loss, x).coefficients
        for j, (low, high) in enumerate(bounds.values()):
            assert drawn[:, j].min() >= low - 1e-9
            assert drawn[:, j].max() <= high + 1e-9
    assert drawn[:, 1].min() < 0.29


def test_a_law_is_computed_row_by_row_where_it_must_be():
    def basis(x, psi):
        return np.column_stack([x["n"] * float(psi[0])])

    law = replace(ONE, basis=basis, offset=lambda x, psi: 0.0)
    psi = np.array([[1.0], [2.0], [3.0]])
    _, columns = law_at(law, {"n": np.array([1.0, 5.0])}, psi)
    assert columns[:, :, 0].tolist() == [[1, 5], [2, 10], [3, 15]]

    def of_the_mean(x, psi):
        return np.column_stack([x["n"] / x["n"].mean() * psi[0]])

    _, columns = law_at(replace(law, basis=of_the_mean), {"n": np.array([1.0, 3.0])}, psi)
    assert columns[:, :, 0].tolist() == [[0.5, 1.5], [1, 3], [1.5, 4.5]]


def log_difference(low: float, high: float) -> float:
    """Log of the probability between two values in the right tail."""
    return norm.logsf(low) + np.log1p(-np.exp(norm.logsf(high) - norm.logsf(low)))


def test_the_tails_of_a_normal_variate_are_exact():
    uniform = np.array([0.1, 0.5, 0.9])
    for mean, low, high in ((0.0, -np.inf, np.inf), (-40.0, 0.0, np.inf), (5.0, -np.inf, 1.0), (-3.0, 0.0, 0.5)):
        ends = [np.full(3, value) for value in (mean, 1.0, low, high)]
        drawn, log_part = posteriors._truncated(*ends, uniform)
        exact = truncnorm(low - mean, high - mean, loc=mean)
        assert np.sort(drawn) == pytest.approx(np.sort(exact.ppf(uniform)), rel=1e-6, abs=1e-9)
        assert log_part == pytest.approx(
            norm.logcdf(high - mean) if mean >= 0 else log_difference(low - mean, high - mean)
        )
