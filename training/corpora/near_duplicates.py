"""Which training documents are validation documents, wholly or for the greater part: they would be trained on what
they are later judged by.

A document is known by prints of it: hashes of its 32-byte windows, of which one in 8 is kept, the same in every
text (Manber 1994; Schleimer, Wilkerson and Aiken 2003, section 3.1). Validation is small and known, so its prints
fit in memory and the comparison is a look-up without the misses of MinHash; and because windows are counted against the
shorter of two documents, a validation page inside a longer training document is found too.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

KEPT, SAME, NEAR = "kept", "same", "near"
NEAR_SHARE = 0.5
"""Share of the shorter document's prints from which on two documents are near-duplicates. A word changed in every
twenty leaves some 0.7 of them."""
RULES = 1
"""Raised whenever the verdicts change, so that stores made under the old rules are not reused."""

_WINDOW = 32
_ONE_IN = 8
# With fewer prints a share says little; such short texts are compared as a whole.
_FEWEST = 4
_BYTES_AT_ONCE = 1 << 20
_FACTOR = 0x9E3779B97F4A7C15
_MIX = 0xBF58476D1CE4E5B9


class Screen:
    """The validation documents of all corpora, against which a training document is held."""

    def __init__(self, wholes: np.ndarray, prints: np.ndarray, owners: np.ndarray, sizes: np.ndarray) -> None:
        self._wholes = wholes
        self._prints, self._owners = prints, owners
        self._sizes = sizes

    @classmethod
    def of(cls, texts: Iterable[str]) -> Screen:
        """The screen of validation texts; memory is a byte or two a byte of text."""
        wholes, prints = [], []
        for text in texts:
            plain = _plain(text)
            wholes.append(_whole(plain))
            prints.append(np.unique(_sampled(plain)[0]))
        sizes = np.array([len(one) for one in prints], dtype=np.int32)
        owners = np.repeat(np.arange(len(prints), dtype=np.int32), sizes)
        flat = np.concatenate([np.empty(0, np.uint64), *prints])
        order = np.argsort(flat, kind="stable")
        return cls(np.unique(np.array(wholes, dtype=np.uint64)), flat[order], owners[order], sizes)

    def save(self, folder: Path) -> None:
        """Write the screen into an existing folder."""
        for name in ("wholes", "prints", "owners", "sizes"):
            np.save(folder / f"{name}.npy", getattr(self, f"_{name}"))

    @classmethod
    def open(cls, folder: Path) -> Screen:
        """A saved screen; its arrays are mapped, so that processes share one copy."""
        names = ("wholes", "prints", "owners", "sizes")
        return cls(*(np.load(folder / f"{name}.npy", mmap_mode="r") for name in names))

    def verdicts(self, texts: Sequence[str]) -> list[str]:
        """Of each text KEPT, SAME (a validation document but for letter case and white space) or NEAR.

        >>> line = "The court finds for the plaintiff, who had asked for the return of the cow and its calf. " * 3
        >>> Screen.of([line]).verdicts([line.upper(), "Another matter altogether."])
        ['same', 'kept']
        """
        plains = [_plain(text) for text in texts]
        wholes = np.array([_whole(plain) for plain in plains], dtype=np.uint64)
        verdicts = [SAME if same else KEPT for same in np.isin(wholes, self._wholes)]
        if not len(self._prints):
            return verdicts
        # All texts at once: nearly none shares a print, and a call for each would cost more than the look-up.
        hashes, starts = _sampled(b"".join(plains))
        ends = np.cumsum([len(plain) for plain in plains], dtype=np.int64)
        owners = np.searchsorted(ends, starts, "right")
        inside = starts + _WINDOW <= ends[owners]
        hashes, owners = hashes[inside], owners[inside]
        hits = self._known(hashes)
        for place in np.unique(owners[hits]).tolist():
            first, last = np.searchsorted(owners, [place, place + 1])
            shared = np.unique(hashes[first:last][hits[first:last]])
            if verdicts[place] == KEPT and self._near(shared, len(np.unique(hashes[first:last]))):
                verdicts[place] = NEAR
        return verdicts

    def _known(self, hashes: np.ndarray) -> np.ndarray:
        # In rising order the searches run along the array instead of all over it.
        order = np.argsort(hashes)
        places = np.searchsorted(self._prints[:-1], hashes[order])
        known = np.empty(len(hashes), dtype=bool)
        known[order] = self._prints[places] == hashes[order]
        return known

    def _near(self, shared: np.ndarray, size: int) -> bool:
        """Whether a text of `size` prints, of which `shared` are also in validation, is near one document of it."""
        first = np.searchsorted(self._prints, shared, "left")
        counts = np.searchsorted(self._prints, shared, "right") - first
        # A print may be of several validation documents: all places from `first` on, `counts` of them.
        starts = np.repeat(first - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
        owners, times = np.unique(self._owners[starts + np.arange(counts.sum())], return_counts=True)
        shorter = np.minimum(self._sizes[owners], size)
        return bool(np.any((times >= NEAR_SHARE * shorter) & (shorter >= _FEWEST)))


def _plain(text: str) -> bytes:
    return " ".join(text.lower().split()).encode()


def _whole(plain: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(plain, digest_size=8).digest(), "little")


def _sampled(plain: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Hashes (uint64) of the windows that are kept, and where each begins, in the order of the text."""
    hashes, starts = [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
    for start in range(0, max(len(plain) - _WINDOW + 1, 0), _BYTES_AT_ONCE):
        piece = np.frombuffer(plain[start : start + _BYTES_AT_ONCE + _WINDOW - 1], np.uint8).astype(np.uint64)
        powers, inverses = _powers(1 << max(10, len(piece).bit_length()))
        # A polynomial modulo 2^64 of each window, as a difference of sums from the start, moved to its first byte.
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum((piece + np.uint64(1)) * powers[: len(piece)])])
        windows = (sums[_WINDOW:] - sums[:-_WINDOW]) * inverses[: len(piece) - _WINDOW + 1]
        # Its low bits know only the low bits of the text.
        windows = (windows ^ (windows >> np.uint64(31))) * np.uint64(_MIX)
        windows ^= windows >> np.uint64(29)
        kept = np.flatnonzero(windows & np.uint64(_ONE_IN - 1) == 0)
        hashes.append(windows[kept])
        starts.append(kept + start)
    return np.concatenate(hashes), np.concatenate(starts)


@functools.cache
def _powers(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Powers 0 to count - 1 of the factor and of its inverse, modulo 2^64."""
    both = []
    for factor in (_FACTOR, pow(_FACTOR, -1, 2**64)):
        steps = np.full(count, factor, np.uint64)
        steps[0] = 1
        both.append(np.cumprod(steps))
    return both[0], both[1]
