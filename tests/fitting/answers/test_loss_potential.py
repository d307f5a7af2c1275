"""Pre-trainings that end at another rate, and tables of areas that agree with the areas themselves."""

import numpy as np
import pytest

import fitting
from fitting.answers.balance import cosine
from fitting.answers.loss_curve import pretraining_areas
from fitting.answers.loss_potential import areas_table, with_potential
from tests.fitting.answers.test_loss_curve import DYNAMICS, PRETRAIN
from tests.fitting.given import given


@pytest.mark.parametrize("potential", [0.0, 0.1, 0.55, 1.0])
def test_only_the_descent_is_stretched(potential):
    rates = with_potential(PRETRAIN, potential)
    assert rates[-1] == pytest.approx(potential * 3e-3)
    assert rates[:550].tolist() == PRETRAIN[:550].tolist()
    assert with_potential(PRETRAIN, 0.1) == pytest.approx(PRETRAIN)


@pytest.mark.parametrize("law", ["dynamics", "dynamics-lr-weighted"])
def test_the_table_is_the_areas(law):
    fit = given(law, {**DYNAMICS, "lambda": 0.95}, draws=2)
    fit.draws[:, -1] = 0.9, 0.999
    steps, potentials = np.array([137.0, 400.0, 1999.0]), np.array([0.0, 0.31, 0.9])
    table = areas_table(fit, cosine, (100, 2000), PRETRAIN, (0.0, 0.9))
    design = {"steps": steps, "peak": np.array([1e-4, 5e-4, 2e-3]), "loss_potential": potentials}
    power = fit.equation.s2.rate_power
    for decay in (0.9, 0.999):
        found = table({**DYNAMICS, "lambda": decay})(design)
        for i in range(3):
            past, rates = with_potential(PRETRAIN, potentials[i]), design["peak"][i] * cosine(int(steps[i]))
            s1, s2 = fitting.areas(rates, decay, past[-1], power)
            root, square = fitting.areas_of_powers(rates, decay, past[-1])
            powers = {"s1_root": root[-1], "s2_square": square[-1]}
            exact = {"s1": s1[-1], "s2": s2[-1], **powers, **pretraining_areas(past, decay, power)}
            for name, value in exact.items():
                assert found[name][i] == pytest.approx(value, rel=2e-4, abs=1e-5), (name, decay)


def test_a_rate_that_never_comes_down_has_no_descent():
    with pytest.raises(fitting.PointsError, match="ends at its peak rate"):
        with_potential(np.full(10, 1e-3), 0.5)
