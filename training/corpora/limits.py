"""A part of a corpus: documents drawn by lot, or the first ones of a stream, until they hold some bytes."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from training.corpora.document_hash import document_hash
from training.corpora.hub_text import HubReading


def capped(documents: Iterable[tuple[str, str]], max_bytes: int) -> list[tuple[str, str]]:
    """The documents whose lots are lowest, until they hold `max_bytes` of UTF-8; in the order given.

    The choice does not depend on the order, and a larger cap adds to a smaller one. Memory stays near it.

    >>> [name for name, _ in capped([("a", "one"), ("b", "two"), ("c", "six")], max_bytes=4)]
    ['b', 'c']
    """
    kept: list[tuple[int, int, int, tuple[str, str]]] = []  # a heap, the highest lot first
    total = 0
    for place, document in enumerate(documents):
        size = len(document[1].encode())
        heapq.heappush(kept, (-document_hash(document[0], "cap"), place, size, document))
        total += size
        while total - kept[0][2] >= max_bytes:
            total -= heapq.heappop(kept)[2]
    return [document for _, _, _, document in sorted(kept, key=lambda entry: entry[1])]


class ListReading:
    """Documents that are all in memory."""

    def __init__(self, documents: Sequence[tuple[str, str]], place: int | None) -> None:
        self._documents = documents
        self.place = place or 0

    def share(self) -> float:
        """How much has been given, 0 to 1."""
        return self.place / max(len(self._documents), 1)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for document in itertools.islice(self._documents, self.place, None):
            self.place += 1
            yield document


class FirstReading:
    """A stream that ends once its documents hold some bytes."""

    def __init__(self, inner: HubReading, max_bytes: int | None, taken: int) -> None:
        self._inner, self._max_bytes, self._taken = inner, max_bytes, taken

    @property
    def place(self) -> Any:
        """Where the last document given stands; goes into JSON."""
        return [self._inner.place, self._taken]

    def share(self) -> float | None:
        """How much of `max_bytes` has been given, 0 to 1; None: there is no limit."""
        return None if self._max_bytes is None else min(self._taken / self._max_bytes, 1.0)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        if self._max_bytes is not None and self._taken >= self._max_bytes:
            return
        for document, text in self._inner:
            self._taken += len(text.encode())
            yield document, text
            if self._max_bytes is not None and self._taken >= self._max_bytes:
                return
