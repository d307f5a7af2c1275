"""Learning rates: known values, joints without jumps, lengths that add up, mistakes named."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.schedule import _SHAPES, Piece, learning_rates, piece_lengths

SHAPES = tuple(name for name in _SHAPES if name != "constant")
"""All that move: from start to end, one way."""
rates = st.floats(1e-7, 1.0)


def test_known_values_of_each_shape():
    def of(shape, start, end):
        return learning_rates([Piece(shape, start, end)], 4)

    np.testing.assert_allclose(of("linear", 0.0, 1.0), [0.25, 0.5, 0.75, 1.0])
    half = math.sqrt(0.5)
    np.testing.assert_allclose(of("cosine", 1.0, 0.0), [(1 + half) / 2, 0.5, (1 - half) / 2, 0.0], atol=1e-16)
    np.testing.assert_allclose(of("exponential", 16.0, 1.0), [8.0, 4.0, 2.0, 1.0])
    np.testing.assert_allclose(of("one_minus_sqrt", 1.0, 0.0), [0.5, 1 - half, 1 - math.sqrt(0.75), 0.0])
    np.testing.assert_array_equal(learning_rates([Piece("constant", 0.3)], 3), [0.3] * 3)


@pytest.mark.parametrize(
    ("pieces", "before", "expected"),
    [
        (
            [Piece("linear", end=1.0, steps=2), Piece("constant"), Piece("linear", end=0.0, share=0.2)],
            0.0,
            [0.5] + [1.0] * 7 + [0.5, 0.0],
        ),
        ([Piece("linear", end=1.0)], 0.5, [0.75, 1.0]),
        ([Piece("constant", 1.0, steps=1), Piece("linear", 0.5, 0.0, steps=2)], 0.0, [1.0, 0.25, 0.0]),
        # Too short for its warm-up, it starts at the peak.
        ([Piece("linear", end=1.0, share=0.01), Piece("constant")], 0.0, [1.0] * 5),
    ],
    ids=["warm-up, stable, decay", "re-warm-up from the rate before", "a start of its own", "no step of warm-up"],
)
def test_chains_of_pieces(pieces, before, expected):
    np.testing.assert_allclose(learning_rates(pieces, len(expected), before), expected)


@settings(deadline=None)
@given(st.sampled_from(SHAPES), rates, rates, st.integers(1, 300))
def test_each_shape_moves_one_way_from_start_to_end(shape, start, end, steps):
    values = np.concatenate([[start], learning_rates([Piece(shape, start, end)], steps)])
    assert values[-1] == end
    moves = np.diff(values) * np.sign(end - start)
    assert (moves >= -1e-15 * max(start, end)).all()
    assert values.min() >= min(start, end) * (1 - 1e-12)
    assert values.max() <= max(start, end) * (1 + 1e-12)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(SHAPES), rates, st.integers(1, 60)), min_size=1, max_size=6), rates)
def test_a_chain_joins_without_a_jump(chain, before):
    pieces = [Piece(shape, end=end, steps=steps) for shape, end, steps in chain]
    values = learning_rates(pieces, sum(steps for _, _, steps in chain), before)
    assert len(values) == sum(steps for _, _, steps in chain)
    position, start = 0, before
    for shape, end, steps in chain:
        alone = learning_rates([Piece(shape, start, end)], steps)
        np.testing.assert_array_equal(values[position : position + steps], alone)
        position, start = position + steps, end


@settings(deadline=None)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=6).filter(sum), st.integers(1, 10**6))
def test_shares_are_rounded_by_less_than_a_step(parts, steps):
    shares = [part / sum(parts) for part in parts]
    lengths = piece_lengths([Piece("linear", end=1.0, share=share) for share in shares], steps)
    assert sum(lengths) == steps
    assert all(abs(length - share * steps) < 1 + 1e-6 for length, share in zip(lengths, shares, strict=True))


def test_shares_are_rounded_by_largest_remainder_and_exactly():
    assert piece_lengths([Piece("constant", share=share) for share in (0.25, 0.35, 0.4)], 10) == [3, 3, 4]
    # In binary 0.1 * 30 is a little above 3 and 0.7 * 30 a little below 21.
    pieces = [Piece("constant", share=0.1), Piece("constant", share=0.7), Piece("constant")]
    assert piece_lengths(pieces, 30) == [3, 21, 6]
    assert piece_lengths([Piece("linear", end=1.0, share=0.01), Piece("constant")], 5) == [0, 5]


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ([Piece("cos", end=1.0)], r"schedule\[0\]\.shape: 'cos' is not a shape; allowed: constant, linear"),
        ([Piece("linear")], r"schedule\[0\]\.end: missing"),
        ([Piece("constant", steps=4), Piece("linear", end=-1.0)], r"schedule\[1\]\.end: -1\.0 is not a learning"),
        ([Piece("linear", float("nan"), 1.0)], r"schedule\[0\]\.start: nan"),
        ([Piece("linear", end=float("inf"))], r"schedule\[0\]\.end: inf"),
        ([Piece("constant", 0.1, 0.2)], r"schedule\[0\]\.end: 0\.2 differs from its start 0\.1"),
        ([Piece("exponential", 1.0, 0.0)], r"schedule\[0\]: from 1 to 0; allowed: .* above 0"),
        ([Piece("exponential", end=1.0)], r"schedule\[0\]: from 0 to 1"),
        ([Piece("constant", steps=2, share=0.1)], r"schedule\[0\]: has steps 2 and share 0\.1"),
        ([Piece("constant", steps=-1)], r"schedule\[0\]\.steps: -1"),
        ([Piece("constant", steps=2.5)], r"schedule\[0\]\.steps: 2\.5"),  # pyright: ignore
        ([Piece("constant", share=1.5)], r"schedule\[0\]\.share: 1\.5"),
        ([Piece("constant"), Piece("constant")], r"schedule\[0\], schedule\[1\]: without steps and share"),
        ([Piece("constant", steps=9)], r"its pieces take 9 steps; allowed: 10"),
        ([Piece("constant", steps=11), Piece("constant")], r"its pieces take 11 steps; allowed: at most 10"),
        ([Piece("constant", share=0.9)], r"its pieces take 9 steps; allowed: 10"),
        ([Piece("constant", share=0.9), Piece("constant", steps=2)], r"its pieces take 11 steps; allowed: 10"),
        ([], r"its pieces take 0 steps; allowed: 10"),
    ],
)
def test_mistakes_are_named(pieces, message):
    with pytest.raises(ValueError, match=message) as error:
        learning_rates(pieces, 10)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("steps", [0, -1, 2.0, True])
def test_impossible_lengths(steps):
    with pytest.raises(ValueError, match="steps: "):
        learning_rates([Piece("constant", 1.0)], steps)


def test_an_impossible_rate_before():
    with pytest.raises(ValueError, match="before: -1"):
        learning_rates([Piece("constant")], 1, before=-1.0)
