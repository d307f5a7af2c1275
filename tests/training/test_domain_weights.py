"""How an excess loss moves the weights of domains, against numbers worked out by hand."""

import math

import numpy as np
import pytest

from training.domain_weights import (
    PATH,
    DomainWeights,
    as_line,
    equal_weights,
    excess_losses,
    logged_steps,
    read_path,
    updated,
)
from training.spec import Reweighting


def test_two_steps_worked_out_by_hand():
    rule = Reweighting("", step_size=1.0, smoothing=0.1)
    first = updated(equal_weights(2), np.array([math.log(2), 0.0]), rule)
    assert first.now == pytest.approx([0.9 * 2 / 3 + 0.05, 0.9 / 3 + 0.05])
    second = updated(first, np.array([0.0, math.log(2)]), rule)
    # .65 and .35 times 1 and 2 are .65 and .70.
    expected = [0.9 * 0.65 / 1.35 + 0.05, 0.9 * 0.70 / 1.35 + 0.05]
    assert second.now == pytest.approx(expected)
    assert second.total == pytest.approx([0.65 + expected[0], 0.35 + expected[1]])


def test_an_excess_beyond_what_a_power_can_hold_is_no_trouble():
    found = updated(equal_weights(2), np.array([5000.0, 4999.0]), Reweighting("", step_size=1.0, smoothing=0.0))
    assert found.now == pytest.approx([math.e / (1 + math.e), 1 / (1 + math.e)])


def test_a_domain_without_a_sequence_keeps_its_last_excess_or_counts_as_the_mean():
    known = np.full(3, np.nan)
    first = excess_losses(np.array([0.2, 0.4]), np.array([0, 1]), known)
    assert first[:2].tolist() == [0.2, 0.4]
    assert math.isnan(first[2])
    weights = updated(equal_weights(3), first, Reweighting("", smoothing=0.0))
    assert weights.now[2] / weights.now[0] == pytest.approx(math.exp(0.1))
    second = excess_losses(np.array([0.0, 0.6]), np.array([2, 1]), weights.excess)
    assert second.tolist() == [0.2, 0.6, 0.0]


@pytest.mark.parametrize("steps", [1, 7, 200, 201, 1200, 50_000])
def test_noted_steps_are_few_and_end_with_the_last(steps):
    noted = list(logged_steps(steps))
    assert len(noted) <= 200
    assert noted[0] >= 1
    assert noted[-1] == steps
    assert len(set(np.diff(noted))) <= 1


def test_a_line_is_read_back_exactly(tmp_path):
    weights = DomainWeights(np.array([0.1, 0.9]), np.array([0.3, 1.7]), np.array([1 / 3, np.nan]))
    (tmp_path / PATH).write_text(as_line(2, ["a", "b"], weights) + '{"step": 3')
    assert read_path(tmp_path) == [
        {"step": 2, "weights": {"a": 0.1, "b": 0.9}, "mean": {"a": 0.15, "b": 0.85}, "excess": {"a": 1 / 3, "b": None}}
    ]
