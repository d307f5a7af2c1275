"""The learning rate as a pure function of the step: a chain of pieces, without scheduler state."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from training.keys import MOST_STEPS


# Not frozen: OmegaConf would make it read-only in a question.
@dataclass(unsafe_hash=True)
class Piece:
    """One piece of a learning-rate schedule.

    Step j of a piece of n steps (j = 1 .. n) has the rate at fraction j/n between start and end: the last step of a
    piece has exactly its end, and the next piece continues without repeating it.

    >>> learning_rates([Piece("linear", end=1.0, steps=2), Piece("cosine", end=0.0)], 4).tolist()
    [0.5, 1.0, 0.5, 0.0]
    """

    shape: str
    """constant, linear, cosine (half a period), exponential, one_minus_sqrt or polynomial."""
    start: float | None = None
    """Learning rate before the piece's first step, in a question relative to peak_learning_rate; null: the end of the
    previous piece, or the last rate of the parent run."""
    end: float | None = None
    """Learning rate of the piece's last step, in a question relative to peak_learning_rate; not of constant."""
    steps: int | None = None
    """Length in steps, 0 or more; null: see share."""
    share: float | None = None
    """Length as a ratio of the run's steps, 0 to 1; one piece may have neither steps nor share and takes the rest."""
    power: float = 1.0
    """Shape polynomial: exponent of the remaining fraction of the piece."""


def learning_rates(pieces: Sequence[Piece], steps: int, before: float = 0.0) -> np.ndarray:
    """The learning rate of every step of a run.

    Args:
        pieces: the chain, in order; together they must cover the steps exactly.
        steps: length of the run, at least 1.
        before: learning rate before the first step: 0 from scratch, else the last rate of the parent run.

    Returns:
        Array (steps,) of float64; element i is the rate of step i + 1.

    Raises:
        ValueError: a piece is invalid or the chain does not cover the steps; one line with the key and its value.

    >>> warm, decay = Piece("linear", end=3e-4, share=0.1), Piece("exponential", end=3e-5, share=0.2)
    >>> learning_rates([warm, Piece("constant"), decay], 10)[[0, 5, 9]].tolist()
    [0.0003, 0.0003, 3e-05]
    """
    if not _whole(steps) or not 1 <= steps <= MOST_STEPS:
        raise ValueError(f"steps: {steps!r} is not a number of steps; allowed: an integer, 1 to {MOST_STEPS:,}")
    _check_rate("before", before)
    lengths = piece_lengths(pieces, steps)
    rates = np.empty(steps, dtype=np.float64)
    rate, position = float(before), 0
    for number, (piece, length) in enumerate(zip(pieces, lengths, strict=True)):
        start = rate if piece.start is None else float(piece.start)
        end = start if piece.end is None else float(piece.end)
        key = f"schedule[{number}]"
        if piece.shape == "constant" and start != end:
            allowed = "a constant piece has one rate"
            raise ValueError(f"{key}.end: {end:g} differs from its start {start:g}; allowed: {allowed}")
        if piece.shape == "exponential" and not (start > 0.0 and end > 0.0):
            raise ValueError(f"{key}: from {start:g} to {end:g}; allowed: an exponential piece has both ends above 0")
        done = np.arange(1, length + 1, dtype=np.float64) / max(length, 1)
        rates[position : position + length] = _SHAPES[piece.shape](start, end, done, piece.power)
        if length:
            # Exact, because rounding could leave a decay to zero slightly above it.
            rates[position + length - 1] = end
        rate, position = end, position + length
    return rates


def piece_lengths(pieces: Sequence[Piece], steps: int) -> list[int]:
    """Number of steps of each piece; their sum is `steps`.

    Shares are rounded by largest remainder in exact arithmetic, the earlier first among equals.

    Raises:
        ValueError: as `learning_rates`.

    >>> piece_lengths([Piece("linear", end=1.0, share=0.015), Piece("constant")], 100)
    [2, 98]
    """
    for number, piece in enumerate(pieces):
        _check_piece(f"schedule[{number}]", piece)
    return part_lengths([(piece.steps, piece.share) for piece in pieces], steps, "schedule", "piece")


def part_lengths(parts: Sequence[tuple[int | None, float | None]], steps: int, key: str, part: str) -> list[int]:
    """Number of steps of each part of a chain; their sum is `steps`.

    Args:
        parts: (steps, share) of each, one of them or neither given; as `Piece.steps` and `Piece.share`.
        steps: length of the run.
        key, part: the list's name, and what one of it is called, in messages.

    Raises:
        ValueError: the parts do not sum to the run; one line with the key and its value.
    """
    # Through repr, so that 0.1 means exactly one tenth.
    quotas = [Fraction(given or 0) if share is None else Fraction(repr(float(share))) * steps for given, share in parts]
    taken = sum(quotas, Fraction(0))
    opened = [number for number, (given, share) in enumerate(parts) if given is None and share is None]
    if len(opened) > 1:
        keys = ", ".join(f"{key}[{number}]" for number in opened)
        raise ValueError(f"{keys}: without steps and share; allowed: one {part} that takes the rest")
    # Shares may miss a number of steps that they do not divide by less than one step.
    if taken > steps if opened else abs(steps - taken) >= 1:
        plain = str(taken) if taken.denominator == 1 else f"{float(taken):.6g}"
        allowed = f"at most {steps}" if opened else f"{steps}, the run's"
        raise ValueError(f"{key}: its {part}s take {plain} steps; allowed: {allowed}")
    if opened:
        quotas[opened[0]] = steps - taken
    lengths = [math.floor(quota) for quota in quotas]
    flexible = [number for number, (given, _) in enumerate(parts) if given is None]
    flexible.sort(key=lambda number: (lengths[number] - quotas[number], number))
    for number in flexible[: steps - sum(lengths)]:
        lengths[number] += 1
    return lengths


_SHAPES: dict[str, Callable[[float, float, np.ndarray, float], np.ndarray]] = {
    **dict.fromkeys(("constant", "linear"), lambda start, end, done, _: start + (end - start) * done),
    "cosine": lambda start, end, done, _: end + (start - end) * (1.0 + np.cos(np.pi * done)) / 2.0,
    "exponential": lambda start, end, done, _: start * (end / start) ** done,
    "one_minus_sqrt": lambda start, end, done, _: end + (start - end) * (1.0 - np.sqrt(done)),
    "polynomial": lambda start, end, done, power: end + (start - end) * (1.0 - done) ** power,
}
"""Shape -> function of start, end, the fraction done of the piece (steps,), and power, whose values only rise or only
fall."""


def _check_piece(key: str, piece: Piece) -> None:
    if piece.shape not in _SHAPES:
        raise ValueError(f"{key}.shape: {piece.shape!r} is not a shape; allowed: {', '.join(_SHAPES)}")
    if piece.steps is not None and piece.share is not None:
        raise ValueError(f"{key}: has steps {piece.steps!r} and share {piece.share!r}; allowed: one of them")
    if piece.steps is not None and (not _whole(piece.steps) or piece.steps < 0):
        raise ValueError(f"{key}.steps: {piece.steps!r} is not a length; allowed: an integer, 0 or more")
    if piece.share is not None and not (_number(piece.share) and 0.0 <= piece.share <= 1.0):
        raise ValueError(f"{key}.share: {piece.share!r} is not a ratio of the steps; allowed: 0 to 1")
    for name in ("start", "end"):
        if (rate := getattr(piece, name)) is not None:
            _check_rate(f"{key}.{name}", rate)
    if not (_number(piece.power) and 0.0 < piece.power < math.inf):
        raise ValueError(f"{key}.power: {piece.power!r}; allowed: above 0")
    if piece.end is None and piece.shape != "constant":
        raise ValueError(f"{key}.end: missing; a {piece.shape} piece needs the learning rate that it ends at")


def _check_rate(key: str, rate: float) -> None:
    if not (_number(rate) and 0.0 <= rate <= 1000.0):
        raise ValueError(f"{key}: {rate!r} is not a learning rate; allowed: a number, 0 to 1000")


def _whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
