"""The law of CONTRIBUTING.md, which is not in the package, works like one that is."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import fitting
from tests.docs.pages import assert_same_output, run


@pytest.fixture(scope="module")
def page():
    """What the page leaves behind when it is run; the law is taken out again after the tests."""
    namespace: dict = {"__name__": "page"}
    try:
        printed = run("../CONTRIBUTING.md", namespace)
        yield SimpleNamespace(printed=printed, **namespace)
    finally:
        fitting.LAWS.pop("repeated", None)


def test_the_page_prints_what_it_says(page):
    assert sum(bool(expected) for expected, _ in page.printed) == 2
    assert_same_output(page.printed)


def test_profile_and_cross_validation_work_with_it(page):
    profile = page.fit.profile("R")
    low, high = profile.interval()
    assert profile.closed == (True, True)
    assert low < page.truth["R"] < high
    for by in ("each-size", "rolling-tokens", "rolling-compute"):
        missed = fitting.held_out(page.points, "repeated", by)["relative_error"].abs().mean()
        without = fitting.held_out(page.points, "chinchilla", by)["relative_error"].abs().mean()
        assert missed < 0.005 < without


def test_what_else_the_page_promises(page):
    fit = fitting.Fit.from_json(page.fit.to_json())
    frame = pd.DataFrame({"N": [1.0], "D": [6.0], "U": [2.0]})
    assert fit.predict(frame) == pytest.approx(page.fit.predict(frame))
    once, thrice = (page.worth({"D": np.array([tokens]), "U": np.array([2.0])}, 12.0)[0] for tokens in (2.0, 6.0))
    assert once == 2.0
    assert 2.0 < thrice < 6.0
    given = fitting.fit(page.points, "repeated", fix={"R": 12.0}, point_weights=np.ones(len(page.points)), bootstrap=0)
    assert given.params["R"] == 12.0
    best = fitting.compute_optimal(fit, 1e19, at={"U": 1.0})
    assert best["N"] * best["D"] == pytest.approx(1e19 / 6e18)
    both = pd.concat([page.points.assign(corpus=name) for name in ("one", "other")])
    shared = fitting.fit_shared(both, "repeated", ["R"], bootstrap=0)
    assert shared["one"].params["R"] == shared["other"].params["R"] == pytest.approx(12.0, rel=0.05)
    zero = pd.concat([page.points, page.points.head(1).assign(D=0.0)], ignore_index=True)
    assert fitting.fit(zero, "repeated", bootstrap=0).warnings[0].startswith("1 points at D = 0 or U = 0 left out")
