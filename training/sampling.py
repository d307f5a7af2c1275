"""What the i-th sequence of a run is, as a pure function of i: which corpus, and which of its windows.

There is no state and no index file, so resuming is free, the batch does not depend on how many devices share
it, and runs at different ratios read the same k-th sequence of each corpus.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ROUNDS = 8
# What `_passed` can do exactly.
_LARGEST_DENOMINATOR = 2**50
# Large enough that numpy's overhead vanishes, small enough that the intermediate arrays stay in the cache.
_BLOCK = 1 << 14


class Sampler:
    """The order of a run's sequences.

    After every prefix of n sequences each of m corpora has had n times its share, give or take log2(m) + 1
    sequences (give or take 1 for two corpora). Each corpus is read in epochs; in an epoch every window comes
    once, in an order drawn anew for it from the seed, the corpus' name and the epoch's number.

    Args:
        shares: corpus -> share of the sequences, each 0 to 1, together 1. A Fraction or a string ("1/3",
            "0.25") is taken exactly, a float as the short decimal or fraction that it stands for.
        windows: corpus -> number of its windows; needed where the share is above 0.
        seed: of the order within the corpora; the sequence of corpora depends on the shares alone.

    Raises:
        ValueError: impossible shares, or a corpus with a share but no window; one line with the key and its
            value.

    >>> sampler = Sampler({"general": "1/4", "law": "3/4"}, {"general": 5, "law": 1000}, seed=0)
    >>> [sampler.corpora[corpus] for corpus in sampler.sample(np.arange(4))[0]]
    ['law', 'general', 'law', 'law']
    >>> sampler.counts(10**12)
    {'general': 250000000000, 'law': 750000000000}
    """

    corpora: tuple[str, ...]
    """Names of the corpora; `sample` gives places in this tuple. Sorted, so that the order of `shares` is
    nothing."""

    def __init__(self, shares: Mapping[str, Fraction | str | float], windows: Mapping[str, int], seed: int) -> None:
        self.corpora = tuple(sorted(shares))
        weights = _weights({name: shares[name] for name in self.corpora})
        for name, weight in weights.items():
            if weight and not 0 < windows.get(name, 0) < 2**62:
                raise ValueError(
                    f"mixture.{name}: its share is {shares[name]} and it has {windows.get(name, 0)} windows; "
                    "allowed: at least one window, or share 0"
                )
        self._windows = [int(windows.get(name, 0)) for name in self.corpora]
        self._keys = [_corpus_key(seed, name) for name in self.corpora]
        self._tree = _tree([(place, weights[name]) for place, name in enumerate(self.corpora) if weights[name]])

    def sample(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What the sequences with these indices are.

        Args:
            indices: (n,) whole numbers, 0 or more, in any order; beyond 10^12 is fine.

        Returns:
            corpus (n,) int16, places in `corpora`; position (n,) int64, window of that corpus; epoch (n,)
            int64, how often the corpus had been read through before.

        Raises:
            ValueError: an index below 0, or not a whole number.
        """
        indices = np.asarray(indices)
        if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
            raise ValueError(f"indices: {indices.dtype} of shape {indices.shape}; allowed: a row of whole numbers")
        indices = indices.astype(np.int64)
        if indices.size and indices.min() < 0:
            raise ValueError(f"indices: {indices.min()}; allowed: 0 or more")
        corpus = np.empty(indices.size, dtype=np.int16)
        position, epoch = np.empty((2, indices.size), dtype=np.int64)
        for start in range(0, indices.size, _BLOCK):
            block = slice(start, start + _BLOCK)
            self._fill(self._tree, indices[block], slice(None), corpus[block], position[block], epoch[block])
        return corpus, position, epoch

    def counts(self, sequences: int) -> dict[str, int]:
        """How many of the first `sequences` sequences each corpus has; over its windows that is its
        epochs."""
        counts = dict.fromkeys(self.corpora, 0)
        waiting = [(self._tree, sequences)]
        while waiting:
            node, count = waiting.pop()
            if isinstance(node, int):
                counts[self.corpora[node]] = count
            else:
                left = (count * node.part + node.whole // 2) // node.whole
                waiting += [(node.left, left), (node.right, count - left)]
        return counts

    def _fill(
        self,
        node: _Split | int,
        ranks: np.ndarray,
        places: np.ndarray | slice,
        corpus: np.ndarray,
        position: np.ndarray,
        epoch: np.ndarray,
    ) -> None:
        """Sort the sequences with these ranks at a node of the tree into its corpora; write at `places`."""
        if isinstance(node, int):
            epochs, within = np.divmod(ranks, self._windows[node])
            corpus[places] = node
            epoch[places] = epochs
            position[places] = permuted(
                within, self._windows[node], _mixed(self._keys[node] + _GOLDEN * epochs.astype(np.uint64))
            )
            return
        lefts, is_left = _passed(ranks, node.part, node.whole)
        every = np.arange(ranks.size) if isinstance(places, slice) else places
        is_right = ~is_left
        self._fill(node.left, lefts[is_left], every[is_left], corpus, position, epoch)
        self._fill(node.right, (ranks - lefts)[is_right], every[is_right], corpus, position, epoch)


@dataclass(frozen=True)
class _Split:
    """A node of the tree: `part` of every `whole` sequences go left, as evenly spread as whole numbers
    allow."""

    part: int
    whole: int
    left: _Split | int
    right: _Split | int


def permuted(values: np.ndarray, size: int, keys: np.ndarray) -> np.ndarray:
    """Where keyed permutations of 0 .. size - 1 send these values.

    A Feistel network over the next power of two, walked until it is back below `size` (Black and Rogaway,
    "Ciphers with arbitrary finite domains", 2002): one to one for each key, two walks on average at most.

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
    found = values.astype(np.uint64)
    walking: np.ndarray | None = None
    current = found
    while current.size:
        high, low = current >> low_bits, current & low_mask
        for number in range(0, _ROUNDS, 2):
            high ^= _round(low, keys, number) & high_mask
            low ^= _round(high, keys, number + 1) & low_mask
        current = (high << low_bits) | low
        outside = current >= np.uint64(size)
        if walking is None:
            found, walking = current, np.flatnonzero(outside)
        else:
            found[walking] = current
            walking = walking[outside]
        current, keys = current[outside], keys[outside]
    return found.astype(np.int64)


def _round(half: np.ndarray, keys: np.ndarray, number: int) -> np.ndarray:
    # Every (round, half) is its own place in the key's stream: half is below 2^31.
    return _mixed(keys + _GOLDEN * (half + np.uint64((number + 1) << 32)))


def _mixed(values: np.ndarray) -> np.ndarray:
    """SplitMix64's finalizer (Steele, Lea and Flood, 2014): 64 bits in, 64 well-mixed bits out."""
    values = values ^ (values >> np.uint64(30))
    values *= np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(27)
    values *= np.uint64(0x94D049BB133111EB)
    values ^= values >> np.uint64(31)
    return values


def _passed(ranks: np.ndarray, part: int, whole: int) -> tuple[np.ndarray, np.ndarray]:
    """Of the sequences before each rank, how many went left; and whether the one at that rank does.

    Bresenham's line: floor((rank part + whole/2) / whole) went left before it. The products overflow 64
    bits, but their difference does not when the quotient is first estimated in floating point: the estimate
    is off by less than 2^12, and `whole` is at most 2^50. The exact remainder then puts it right.
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


def _weights(shares: Mapping[str, Fraction | str | float]) -> dict[str, int]:
    """Shares as whole numbers over one denominator, small enough for 64-bit arithmetic."""
    exact = {name: _exact_share(name, share) for name, share in shares.items()}
    total = sum(exact.values())
    if abs(total - 1) > Fraction(1, 10**9):
        raise ValueError(f"mixture: its shares sum to {float(total):.9g}; allowed: 1")
    denominator = math.lcm(*((share / total).denominator for share in exact.values()))
    if denominator <= _LARGEST_DENOMINATOR:
        return {name: int(share / total * denominator) for name, share in exact.items()}
    # Off by at most 2^-50: a thousandth of a sequence after 10^12 of them. A share above 0 stays above 0.
    return {name: math.ceil(share / total * _LARGEST_DENOMINATOR) for name, share in exact.items()}


def _exact_share(name: str, share: Fraction | str | float) -> Fraction:
    try:
        exact = Fraction(repr(float(share))) if isinstance(share, float) else Fraction(share)
    except (ValueError, TypeError, ZeroDivisionError):
        raise ValueError(f"mixture.{name}: {share!r} is not a share; allowed: 0 to 1") from None
    if not 0 <= exact <= 1:
        raise ValueError(f"mixture.{name}: {share!r} is not a share; allowed: 0 to 1")
    if isinstance(share, float):
        short = exact.limit_denominator(10**9)
        # 0.30000000000000004 and 0.3333333333333333 mean 3/10 and 1/3; 0.5000000004 means itself.
        exact = short if abs(short - exact) < Fraction(1, 10**15) else exact
    return exact


def _corpus_key(seed: int, name: str) -> np.uint64:
    digest = hashlib.blake2b(name.encode(), digest_size=8, key=str(int(seed)).encode(), person=b"cptlaw.sample")
    return np.uint64(int.from_bytes(digest.digest(), "big"))
