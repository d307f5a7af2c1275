"""Screen training documents against validation documents and their near-duplicates.

The prints of a document are the hashes of its 32-byte windows of which one in 8 is kept, the same in every text (Manber
1994; Schleimer, Wilkerson and Aiken 2003, section 3.1). The prints of all validation documents fit in memory, so the
comparison is exact, unlike MinHash. Shared prints are counted relative to the shorter of two documents, so that a
validation page inside a longer training document is found too.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

KEPT, SAME, NEAR = "kept", "same", "near"
NEAR_RATIO = 0.5
"""Ratio of the shorter document's prints above which two documents are near-duplicates. About 0.7 of the prints remain
if one word in twenty changes."""
RULES = 1
"""Increased when the verdicts change, so that older stores are not reused."""

_WINDOW = 32
_ONE_IN = 8
# Shorter texts are only compared as a whole: a ratio of fewer prints is unreliable.
_FEWEST = 4
_BYTES_AT_ONCE = 1 << 20
_LONG = 1 << 20
_WHITE = re.compile(r"\s+")
_FACTOR = 0x9E3779B97F4A7C15
_MIX = 0xBF58476D1CE4E5B9


class Screen(NamedTuple):
    """The prints of validation documents, with which training documents are compared."""

    wholes: np.ndarray
    """Sorted hashes (uint64) of whole documents."""
    prints: np.ndarray
    """Sorted prints (uint64) of all documents."""
    owners: np.ndarray
    """Number (int32) of the document of each print."""
    sizes: np.ndarray
    """Number (int32) of the prints of each document."""

    @classmethod
    def of(cls, texts: Iterable[str]) -> Screen:
        """The screen of validation texts; needs one to two bytes of memory per byte of text."""
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
        for name, array in self._asdict().items():
            np.save(folder / f"{name}.npy", array)

    @classmethod
    def open(cls, folder: Path) -> Screen:
        """A saved screen; its arrays are mapped, so that processes share one copy."""
        return cls(*(np.load(folder / f"{name}.npy", mmap_mode="r") for name in cls._fields))

    def verdicts(self, texts: Sequence[str]) -> list[str]:
        """KEPT, SAME (equal to a validation document up to letter case and white space) or NEAR for each text.

        >>> line = "The court finds for the plaintiff, who had asked for the return of the cow and its calf. " * 3
        >>> Screen.of([line]).verdicts([line.upper(), "Another matter altogether."])
        ['same', 'kept']
        """
        plains = [_plain(text) for text in texts]
        wholes = np.array([_whole(plain) for plain in plains], dtype=np.uint64)
        verdicts = [SAME if same else KEPT for same in np.isin(wholes, self.wholes)]
        if not len(self.prints):
            return verdicts
        # All texts at once: few share a print, and a call per text would take longer than the look-up.
        hashes, starts = _sampled(b"".join(plains))
        ends = np.cumsum([len(plain) for plain in plains], dtype=np.int64)
        owners = np.searchsorted(ends, starts, "right")
        inside = starts + _WINDOW <= ends[owners]
        hashes, owners = hashes[inside], owners[inside]
        # Sorted queries access the array in order.
        order, hits = np.argsort(hashes), np.empty(len(hashes), dtype=bool)
        hits[order] = self.prints[np.searchsorted(self.prints[:-1], hashes[order])] == hashes[order]
        for text in np.unique(owners[hits]).tolist():
            first, last = np.searchsorted(owners, [text, text + 1])
            shared = np.unique(hashes[first:last][hits[first:last]])
            if verdicts[text] == KEPT and self._near(shared, len(np.unique(hashes[first:last]))):
                verdicts[text] = NEAR
        return verdicts

    def _near(self, shared: np.ndarray, size: int) -> bool:
        """Whether a text of `size` prints, of which `shared` are in validation, is near one validation document."""
        first = np.searchsorted(self.prints, shared, "left")
        counts = np.searchsorted(self.prints, shared, "right") - first
        # A print may belong to several validation documents: `counts` entries from `first` on.
        starts = np.repeat(first - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
        owners, times = np.unique(self.owners[starts + np.arange(counts.sum())], return_counts=True)
        shorter = np.minimum(self.sizes[owners], size)
        return bool(np.any((times >= NEAR_RATIO * shorter) & (shorter >= _FEWEST)))


def _plain(text: str) -> bytes:
    # The words of a long text would take twenty times its memory.
    words = _WHITE.sub(" ", text.lower()).strip() if len(text) > _LONG else " ".join(text.lower().split())
    return words.encode()


def _whole(plain: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(plain, digest_size=8).digest(), "little")


def _sampled(plain: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Hashes (uint64) of the kept windows, and where each starts, in text order."""
    hashes, starts = [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
    for start in range(0, max(len(plain) - _WINDOW + 1, 0), _BYTES_AT_ONCE):
        piece = np.frombuffer(plain[start : start + _BYTES_AT_ONCE + _WINDOW - 1], np.uint8).astype(np.uint64)
        powers, inverses = _powers(1 << max(10, len(piece).bit_length()))
        # A polynomial modulo 2^64 of each window, as a difference of prefix sums, shifted to its first byte.
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum((piece + np.uint64(1)) * powers[: len(piece)])])
        windows = (sums[_WINDOW:] - sums[:-_WINDOW]) * inverses[: len(piece) - _WINDOW + 1]
        # Its low bits depend only on the low bits of the text.
        windows = (windows ^ (windows >> np.uint64(31))) * np.uint64(_MIX)
        windows ^= windows >> np.uint64(29)
        kept = np.flatnonzero(windows & np.uint64(_ONE_IN - 1) == 0)
        hashes.append(windows[kept])
        starts.append(kept + start)
    return np.concatenate(hashes), np.concatenate(starts)


@functools.cache
def _powers(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Powers 0 to count - 1 of the factor and of its inverse, modulo 2^64."""
    steps = np.full((2, count), [[_FACTOR], [pow(_FACTOR, -1, 2**64)]], np.uint64)
    steps[:, 0] = 1
    powers, inverses = np.cumprod(steps, axis=1)
    return powers, inverses
