"""Intervals of predictions outside the points, by the errors on what was held out."""

import numpy as np
import pytest

from fitting.uncertainty.misfit import FLOOR, extrapolation, half_width, log_errors

RANGES = {"N": (0.1, 1.0), "D": (1.0, 8.0), "r": (0.1, 0.9)}


KINDS = {"ratio": [(0.5, 4), (1, 8)], "tokens": [(1, 9)], "size": [(2, 8), (0.05, 4)], "size-and-tokens": [(2, 9)]}


@pytest.mark.parametrize(("N", "D", "kind"), [(N, D, kind) for kind, targets in KINDS.items() for N, D in targets])
def test_the_kind_of_extrapolation_is_what_lies_outside(N, D, kind):
    assert extrapolation(RANGES, N, D) == kind


def test_held_out_errors_and_residuals_make_the_half_width():
    inside = half_width(np.array([0.001, -0.001]), 0.002, 0.8, 10**6)
    larger = half_width(np.array([0.02, -0.03]), 0.002, 1.2, 10**6)
    assert inside == pytest.approx(0.8 * np.sqrt(1e-6 + 4e-6 + FLOOR**2))
    assert larger > 3 * inside


def test_few_runs_make_it_wider_as_students_t_does():
    many, twelve, four, two = (half_width(np.array([0.01]), 0.002, 0.8, runs) for runs in (10**6, 12, 4, 2))
    assert [half / many for half in (twelve, four, two)] == pytest.approx(
        [1.812 / 1.645, 2.920 / 1.645, 6.314 / 1.645], 1e-3
    )


def test_log_errors_have_the_half_width():
    low, high = np.quantile(log_errors(0.02), [0.05, 0.95])
    assert (low, high) == (pytest.approx(-0.02, rel=0.03), pytest.approx(0.02, rel=0.03))
