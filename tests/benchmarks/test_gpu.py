"""The GPU benchmark runs where there is no GPU too, and says so."""

import pytest

from tests.benchmarks.gpu import HEADS, SHAPES, measured
from training.parameters import model_size


@pytest.mark.parametrize("head", HEADS)
def test_a_variant_is_measured(head):
    row = measured("tiny", "no", head, 2, 16, 1)
    assert row["tokens_per_second"] > 0
    assert row["memory"] > 1e7


def test_the_shapes_have_the_sizes_of_their_names():
    found = {name: model_size(SHAPES[name], 2048).total / 1e9 for name in ("0.5B", "1.8B")}
    assert found == pytest.approx({"0.5B": 0.464, "1.8B": 1.837}, rel=0.01)
