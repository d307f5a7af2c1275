"""The masked objective: which tokens of a sequence are hidden, decided by the run's seed and the sequence's number."""

from __future__ import annotations

import numpy as np

from training.spec import Objective

IGNORED = -100
"""Target of a position that is not predicted, as torch's cross-entropy reads it."""


def masked(tokens: np.ndarray, numbers: np.ndarray, objective: Objective, vocabulary: int, seed: int) -> np.ndarray:
    """Inputs with hidden tokens and the targets behind them (BERT, Devlin et al. 2019, section 3.1).

    Of each sequence the same number of tokens is predicted; four fifths of them are replaced by the mask token, a tenth
    by a random token, a tenth stays. Nothing depends on other sequences, so neither on batch nor devices.

    Args:
        tokens: (n, T) token ids.
        numbers: (n,) number of each sequence in the run's order.
        objective: share and mask token.
        vocabulary: random tokens are below this.
        seed: of the run.

    Returns:
        (n, 2, T): inputs, and targets that are IGNORED where nothing is predicted.

    >>> pair = masked(np.arange(20).reshape(1, 20), np.array([0]), Objective("masked", 0.15, 99), 50, seed=0)
    >>> int((pair[0, 1] != IGNORED).sum())
    3
    """
    count, length = tokens.shape
    place = np.uint64(seed) << np.uint64(40) ^ numbers.astype(np.uint64)
    draws = _scattered(_scattered(place)[:, None] + np.arange(length, dtype=np.uint64)[None])
    predicted = objective.predictions(length)
    chosen = np.argpartition(draws, predicted - 1, axis=1)[:, :predicted]
    rows = np.arange(count)[:, None]
    targets = np.full_like(tokens, IGNORED)
    targets[rows, chosen] = tokens[rows, chosen]
    second = _scattered(draws[rows, chosen])
    random = (_scattered(second) % np.uint64(vocabulary)).astype(tokens.dtype)
    lot = second / 2.0**64
    inputs = tokens.copy()
    inputs[rows, chosen] = np.where(lot < 0.8, objective.mask_token, np.where(lot < 0.9, random, tokens[rows, chosen]))
    return np.stack([inputs, targets], axis=1)


def _scattered(values: np.ndarray) -> np.ndarray:
    # SplitMix64's finalizer (Steele et al. 2014): the same on every machine, without a generator to carry along.
    with np.errstate(over="ignore"):
        values = values + np.uint64(0x9E3779B97F4A7C15)
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
