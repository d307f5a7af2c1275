"""Random mixtures: reproducible, exact, within the largest weights."""

from fractions import Fraction

import numpy as np
import pytest

import fitting
from fitting.mixtures.random_mixtures import GRAIN

BASE = [0.4, 0.3, 0.2, 0.1]


def test_every_share_is_a_whole_number_of_grains_and_they_sum_to_one():
    drawn = fitting.dirichlet_mixtures(BASE, 300)
    exact = [[Fraction(round(share * GRAIN), GRAIN) for share in row] for row in drawn.tolist()]
    assert all(sum(row) == 1 for row in exact)
    assert [[float(share) for share in row] for row in exact] == drawn.tolist()
    assert len(np.unique(drawn, axis=0)) == 300
    assert drawn[drawn > 0].min() >= 1 / GRAIN


def test_more_mixtures_begin_with_the_fewer_and_another_seed_is_others():
    few, many = fitting.dirichlet_mixtures(BASE, 10), fitting.dirichlet_mixtures(BASE, 200)
    assert few.tolist() == many[:10].tolist()
    assert few.tolist() != fitting.dirichlet_mixtures(BASE, 10, seed=1).tolist()


@pytest.mark.parametrize("concentration", [(0.1, 5.0), (20.0, 20.0)])
def test_their_mean_is_the_base(concentration):
    drawn = fitting.dirichlet_mixtures(BASE, 1500, concentration=concentration)
    assert drawn.mean(axis=0) == pytest.approx(BASE, abs=0.04)


def test_concentration_says_how_far_from_the_base_they_lie():
    near, far = (fitting.dirichlet_mixtures(BASE, 100, concentration=(c, c)) for c in (50.0, 0.5))
    assert near.std(axis=0).max() < 0.08 < 0.2 < far.std(axis=0).min()
    assert (far.max(axis=1) > 0.9).mean() > 0.3


def test_no_share_is_above_the_largest():
    high = [0.5, 1.0, 0.303, 0.02]
    drawn = fitting.dirichlet_mixtures(BASE, 200, high=high)
    assert (drawn <= np.array(high) + 1e-12).all()
    assert np.isclose(drawn[:, 2], 0.3).any()


def test_a_domain_at_zero_stays_there():
    assert (fitting.dirichlet_mixtures([1, 1, 0], 50)[:, 2] == 0).all()
    assert (fitting.dirichlet_mixtures([1, 1, 0], 50, high=[0.6, 1, 1])[:, 2] == 0).all()


@pytest.mark.parametrize(
    ("base", "options", "says"),
    [
        ([1.0], {}, "two or more weights"),
        ([1, -1], {}, "0 or more"),
        (BASE, {"high": [0.2] * 4}, "no mixture is within"),
        (BASE, {"high": [1, 1, 1]}, "4 weights"),
        ([1, 1, 0], {"high": [0.4, 0.4, 1]}, "sum to 0.8"),
        (BASE, {"concentration": (0, 1)}, "0 < low <= high"),
        ([1, 0], {}, "only 1 different mixtures"),
    ],
)
def test_refusals(base, options, says):
    with pytest.raises(fitting.PointsError, match=says):
        fitting.dirichlet_mixtures(base, 20, **options)
