"""The i-th sequence of a run as a pure function of i: its corpus, and its window there.

There is no state and no index file: resuming costs nothing, batches do not depend on the number of devices, and runs of
one seed and sequence length read the same k-th sequence of each corpus at every ratio.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from training.spec import RunSpec

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""What SplitMix64 adds before it mixes."""
_ROUNDS = 8
# The largest one for which `_left_counts` is exact.
_LARGEST_DENOMINATOR = 2**50
# Large enough to hide numpy's overhead, small enough that the intermediate arrays stay in the cache.
_BLOCK = 1 << 14


class Sampler:
    """The order of a run's sequences.

    In every prefix of n sequences the count of each of m corpora is within log2(m) + 1 of n times its ratio, and within
    1 for two corpora. Where the mixture changes, this holds in every prefix of each phase, and each corpus is read on
    from where the phase before left it. Each corpus is read in epochs; an epoch has every window once, in a random
    order that depends on the seed, the corpus' name and the epoch's number.

    Args:
        mixture: corpus -> ratio of the sequences, each 0 to 1, with sum 1: a Fraction or a string ("1/3", "0.25").
        windows: corpus -> number of its windows; needed where the ratio is above 0.
        seed: of the order within the corpora; the order of the corpora depends on the ratios only.
        later: (index of its first sequence, mixture) of each further phase, in increasing order.

    Raises:
        ValueError: impossible ratios, or a corpus with a ratio above 0 but no window; one line with the key and its
            value.

    >>> sampler = Sampler({"general": "1/4", "law": "3/4"}, {"general": 5, "law": 1000}, seed=0)
    >>> [sampler.corpora[corpus] for corpus in sampler.sample(np.arange(4))[0]]
    ['law', 'general', 'law', 'law']
    >>> sampler.counts(10**12)
    {'general': 250000000000, 'law': 750000000000}
    >>> Sampler({"general": 1}, {"general": 5, "law": 9}, 0, [(8, {"general": "1/2", "law": "1/2"})]).counts(12)
    {'general': 10, 'law': 2}
    """

    corpora: tuple[str, ...]
    """Names of the corpora, sorted; `sample` returns indices into this tuple."""

    def __init__(
        self,
        mixture: Mapping[str, Fraction | str],
        windows: Mapping[str, int],
        seed: int,
        later: Sequence[tuple[int, Mapping[str, Fraction | str]]] = (),
    ) -> None:
        mixtures = [(0, mixture), *later]
        self.corpora = tuple(sorted({name for _, ratios in mixtures for name in ratios}))
        self._windows = [int(windows.get(name, 0)) for name in self.corpora]
        self._keys = [_corpus_key(seed, name) for name in self.corpora]
        self._phases: list[_Phase] = []
        for start, ratios in mixtures:
            if self._phases and start <= self._phases[-1].start:
                raise ValueError(f"mixture: a phase at sequence {start}; allowed: above {self._phases[-1].start}")
            before = self._counts(start) if self._phases else [0] * len(self.corpora)
            self._phases.append(_Phase(start, before, self._tree(ratios)))

    def sample(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Corpus, window and epoch of the sequences with these indices.

        Args:
            indices: (n,) integers, 0 or more, in any order.

        Returns:
            corpus (n,) int16, indices into `corpora`; position (n,) int64, window of that corpus; epoch (n,) int64,
            complete passes over the corpus before.
        """
        indices = indices.astype(np.int64)
        corpus = np.empty(indices.size, dtype=np.int16)
        position, epoch = np.empty((2, indices.size), dtype=np.int64)
        for start in range(0, indices.size, _BLOCK):
            rows = np.arange(start, min(start + _BLOCK, indices.size))
            phases = np.searchsorted([phase.start for phase in self._phases], indices[rows], side="right") - 1
            for number in range(phases.min(), phases.max() + 1):
                phase, own = self._phases[number], rows[phases == number]
                self._fill(phase.tree, indices[own] - phase.start, own, phase.before, (corpus, position, epoch))
        return corpus, position, epoch

    def counts(self, sequences: int) -> dict[str, int]:
        """How many of the first `sequences` sequences each corpus has."""
        return dict(zip(self.corpora, self._counts(sequences)))

    def _counts(self, sequences: int) -> list[int]:
        phase = self._phases[bisect_right([phase.start for phase in self._phases], sequences) - 1]
        counts = [*phase.before]

        def add(node: _Split | int, count: int) -> None:
            if isinstance(node, int):
                counts[node] += count
            else:
                left = (count * node.part + node.whole // 2) // node.whole
                add(node.left, left)
                add(node.right, count - left)

        add(phase.tree, sequences - phase.start)
        return counts

    def _tree(self, mixture: Mapping[str, Fraction | str]) -> _Split | int:
        weights = _weights({name: mixture.get(name, "0") for name in self.corpora})
        for (name, weight), windows in zip(weights.items(), self._windows):
            if weight and not 0 < windows < 2**62:
                raise ValueError(
                    f"mixture.{name}: its ratio is {mixture[name]} and it has {windows} windows; "
                    "allowed: at least one window, or ratio 0"
                )
        return _tree([(number, weights[name]) for number, name in enumerate(self.corpora) if weights[name]])

    def _fill(
        self,
        node: _Split | int,
        ranks: np.ndarray,
        rows: np.ndarray,
        before: Sequence[int],
        filled: tuple[np.ndarray, ...],
    ) -> None:
        """Fill in corpus, position and epoch at `rows` for the sequences with these ranks at a node of the tree.

        `before`: sequences of each corpus in the phases before.
        """
        if isinstance(node, int):
            epochs, within = np.divmod(ranks + before[node], self._windows[node])
            keys = mixed(self._keys[node] + GOLDEN * epochs.astype(np.uint64))
            values = (node, permuted(within, self._windows[node], keys), epochs)
            for array, value in zip(filled, values, strict=True):
                array[rows] = value
            return
        lefts, is_left = _left_counts(ranks, node.part, node.whole)
        self._fill(node.left, lefts[is_left], rows[is_left], before, filled)
        self._fill(node.right, (ranks - lefts)[~is_left], rows[~is_left], before, filled)


def sampler_of(spec: RunSpec, windows: Mapping[str, int]) -> Sampler:
    """The order of the sequences of a run, whose corpora have these numbers of windows."""
    return Sampler(spec.mixture, windows, spec.seed, [(phase.first_sequence, phase.mixture) for phase in spec.phases])


@dataclass(frozen=True)
class _Phase:
    """Sequences from index `start` on, drawn by a tree; each corpus has `before` in the phases before."""

    start: int
    before: list[int]
    tree: _Split | int


@dataclass(frozen=True)
class _Split:
    """A node of the tree: `part` of every `whole` sequences go left, evenly spaced."""

    part: int
    whole: int
    left: _Split | int
    right: _Split | int


def permuted(values: np.ndarray, size: int, keys: np.ndarray) -> np.ndarray:
    """Images of these values under keyed permutations of 0 .. size - 1.

    A Feistel network over the next power of two, repeated until the value is below `size` (cycle walking; Black and
    Rogaway, "Ciphers with arbitrary finite domains", 2002): a bijection for each key, at most two rounds on average.

    Args:
        values: (n,) int64, each in 0 .. size - 1.
        size: at least 1, below 2^62.
        keys: (n,) uint64, a key for each value.

    Returns:
        Array (n,) of int64.
    """
    bits = max((size - 1).bit_length(), 2)
    low_bits = np.uint64(bits // 2)
    low_mask = np.uint64((1 << (bits // 2)) - 1)
    high_mask = np.uint64((1 << (bits - bits // 2)) - 1)
    result, walking = np.empty_like(values), np.arange(values.size)
    current = values.astype(np.uint64)
    while current.size:
        high, low = current >> low_bits, current & low_mask
        for number in range(0, _ROUNDS, 2):
            high ^= _round(low, keys, number) & high_mask
            low ^= _round(high, keys, number + 1) & low_mask
        current = (high << low_bits) | low
        result[walking] = current
        outside = current >= np.uint64(size)
        walking, current, keys = walking[outside], current[outside], keys[outside]
    return result


def _round(half: np.ndarray, keys: np.ndarray, number: int) -> np.ndarray:
    # Every (round, half) has its own position in the key's stream: half is below 2^31.
    return mixed(keys + GOLDEN * (half + np.uint64((number + 1) << 32)))


def mixed(values: np.ndarray) -> np.ndarray:
    """SplitMix64's finalizer (Steele, Lea and Flood, 2014): 64 bits in, 64 well-mixed bits out."""
    values = values ^ (values >> np.uint64(30))
    values *= np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(27)
    values *= np.uint64(0x94D049BB133111EB)
    values ^= values >> np.uint64(31)
    return values


def _left_counts(ranks: np.ndarray, part: int, whole: int) -> tuple[np.ndarray, np.ndarray]:
    """Number of sequences before each rank that go left; and whether the one at that rank does.

    Bresenham's line: the number is floor((rank part + whole/2) / whole). The products overflow 64 bits, but their
    difference does not when the quotient is first estimated in floating point: the estimate is off by less than 2^12,
    and `whole` is at most 2^50. The exact remainder then corrects it.
    """
    estimate = (ranks * (part / whole)).astype(np.int64)
    remainder = ranks * part - estimate * whole + whole // 2
    correction, remainder = np.divmod(remainder, whole)
    return estimate + correction, remainder >= whole - part


def _tree(leaves: list[tuple[int, int]]) -> _Split | int:
    if len(leaves) == 1:
        return leaves[0][0]
    middle = len(leaves) // 2
    part, whole = (sum(weight for _, weight in side) for side in (leaves[:middle], leaves))
    divisor = math.gcd(part, whole)
    return _Split(part // divisor, whole // divisor, _tree(leaves[:middle]), _tree(leaves[middle:]))


def _weights(mixture: Mapping[str, Fraction | str]) -> dict[str, int]:
    """Ratios as integers over one denominator, small enough for 64-bit arithmetic."""
    exact = dict.fromkeys(mixture, Fraction(-1))
    for name, ratio in mixture.items():
        with contextlib.suppress(ValueError, ZeroDivisionError):
            exact[name] = Fraction(ratio)
        if not 0 <= exact[name] <= 1:
            raise ValueError(f"mixture.{name}: {ratio!r} is not a ratio; allowed: 0 to 1")
    total = sum(exact.values())
    if abs(total - 1) > Fraction(1, 10**9):
        raise ValueError(f"mixture: its ratios sum to {float(total):.9g}; allowed: 1")
    denominator = math.lcm(*((ratio / total).denominator for ratio in exact.values()))
    if denominator <= _LARGEST_DENOMINATOR:
        return {name: int(ratio / total * denominator) for name, ratio in exact.items()}
    # Off by at most 2^-50: a thousandth of a sequence after 10^12 of them. A ratio above 0 stays above 0.
    return {name: math.ceil(ratio / total * _LARGEST_DENOMINATOR) for name, ratio in exact.items()}


def _corpus_key(seed: int, name: str) -> np.uint64:
    digest = hashlib.blake2b(name.encode(), digest_size=8, key=str(int(seed)).encode(), person=b"cptlaw.sample")
    return np.uint64(int.from_bytes(digest.digest(), "big"))
