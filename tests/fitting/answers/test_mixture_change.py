"""The best change of the mixture against every change on a grid."""

import itertools

import numpy as np
import pandas as pd
import pytest

from fitting import Fit, PointsError
from fitting.answers.mixture_change import mixture_change
from tests.fitting.given import given

LAW = "transfer-two-mixtures"
BEFORE = 3.0
END = {"s1": 1.0, "s2": 0.1, "s1_pretrain": 2.0, "N": 0.1, "D": 1.0}
AT = {"general": {**END, "loss_before": BEFORE, "rho": 1.0}, "domain": {**END, "loss_before": 5.0, "rho": 0.0}}
PARAMS = {"C2": 0.5, "C": 0.1, "G": 0.2, "eps": 0.01, "E": 300.0, "beta": 0.1, "delta": 0.17, "eta": 0.05}
REMEMBERS = {**PARAMS, "delta": 0.9}
"""Of a domain that is hardly forgotten once it is read: read it first."""
FORGETS = {**PARAMS, "delta": 0.002, "eta": 50.0}
"""Of a domain that is soon forgotten and learned again as fast as at first: read it last."""


def fits(domain: dict[str, float], general: dict[str, float] = PARAMS) -> dict[str, Fit]:
    return {name: given(LAW, params) for name, params in (("general", general), ("domain", domain))}


def change(found: dict[str, Fit], s1_first: float, tolerance: float):
    general, domain = found["general"], found["domain"]
    at = {"general_at": AT["general"], "domain_at": AT["domain"]}
    return mixture_change(general, domain, s1_first, tolerance, BEFORE, **at)


def losses(found: dict[str, Fit], pairs: list[tuple[float, float]], s1_first: float) -> dict[str, np.ndarray]:
    """Losses of (before, after) pairs of domain ratios."""
    before, after = np.array(pairs).T
    ratios = {"general": (1 - before, 1 - after), "domain": (before, after)}
    columns = {name: {"r_first": first, "r": last, "s1_first": s1_first} for name, (first, last) in ratios.items()}
    return {name: fit.predict(pd.DataFrame({**AT[name], **columns[name]})) for name, fit in found.items()}


@pytest.mark.parametrize("domain", [PARAMS, REMEMBERS, FORGETS], ids=["neither", "remembers", "forgets"])
@pytest.mark.parametrize("s1_first", [0.5, 0.9])
def test_no_change_on_a_grid_is_better(domain, s1_first):
    found, cap = fits(domain), BEFORE * 1.05
    answer = change(found, s1_first, 0.05)
    ratios = np.linspace(0, 1, 101)
    grid = losses(found, list(itertools.product(ratios, ratios)), s1_first)
    assert answer.domain <= grid["domain"][grid["general"] <= cap].min() + 1e-4
    own = losses(found, [(answer.before, answer.after)], s1_first)
    assert own["domain"] == pytest.approx(answer.domain)
    # Between two hundredths the ratio is found by a straight line.
    assert own["general"] == pytest.approx(answer.general)
    assert answer.general <= cap + 1e-3


def test_a_domain_that_is_remembered_goes_first_and_one_that_is_forgotten_last():
    first, last = change(fits(REMEMBERS), 0.5, 0.05), change(fits(FORGETS), 0.9, 0.05)
    assert first.before > first.after + 0.1
    assert first.difference < -0.01
    assert last.before < last.after - 0.1
    assert last.difference < -0.01


def test_the_difference_is_to_one_mixture_within_the_tolerance():
    found = fits(REMEMBERS)
    answer = change(found, 0.5, 0.05)
    ratios = np.linspace(0, 1, 10001)
    one = losses(found, list(zip(ratios, ratios)), 0.5)
    best = one["domain"][one["general"] <= BEFORE * 1.05].min()
    assert answer.difference == pytest.approx(answer.domain - best, abs=1e-3)


def test_no_mixture_within_the_tolerance_is_no_answer():
    assert change(fits(PARAMS), 0.5, -0.5) is None


@pytest.mark.parametrize("s1_first", [0.0, 1.0])
def test_a_change_outside_the_run_is_refused(s1_first):
    with pytest.raises(PointsError, match="outside the run"):
        change(fits(PARAMS), s1_first, 0.05)


def test_a_law_of_one_mixture_is_refused():
    anchored = {name: value for name, value in PARAMS.items() if name not in ("beta", "delta", "eta")}
    with pytest.raises(PointsError, match="transfer-anchored does not know changes"):
        change({**fits(PARAMS), "domain": given("transfer-anchored", anchored)}, 0.5, 0.05)
