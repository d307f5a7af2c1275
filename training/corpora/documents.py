"""Documents: the hash of their id, by which they are split into train and validation, capped and sampled."""

import hashlib
import heapq
import json
from collections.abc import Iterable
from typing import Any

HASH_RANGE = 2**64
DOCUMENT_BYTES = 32_000_000
"""Longest document, or line of JSON, that is read: a longer one would take more than a gigabyte of memory."""
MOST_BRACKETS = 3_000_000
"""Most objects and lists of a long line of JSON, which would take as much."""


class CorpusError(ValueError):
    """A corpus, token store or tokenizer that cannot be used; the message has one line for each mistake."""


def json_hash(value: Any, digest_size: int = 16) -> str:
    """Hash of plain data, written as JSON with sorted keys; two hexadecimal digits a byte."""
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=digest_size).hexdigest()


def document_hash(name: str, purpose: str) -> int:
    """An integer from 0 to HASH_RANGE - 1, uniform over document ids.

    Hashes for two purposes are independent: a corpus capped to the lowest hashes must not consist of the documents
    that validation holds out.

    >>> document_hash("moby-dick", "split") == document_hash("moby-dick", "cap")
    False
    """
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8, person=purpose.encode())
    return int.from_bytes(digest.digest(), "big")


def in_validation(name: str, ratio: float) -> bool:
    """Whether a document belongs to the validation split, by the hash of its id.

    Of an id with a '#' only the part before it counts: pieces of one book stay in one split.

    >>> in_validation("moby-dick#1", 0.05) == in_validation("moby-dick#135", 0.05)
    True
    """
    return document_hash(name.split("#", 1)[0], "split") < ratio * HASH_RANGE


def capped(documents: Iterable[tuple[str, str]], max_bytes: int) -> list[tuple[str, str]]:
    """The documents with the lowest hashes that hold `max_bytes` of UTF-8, in the order given.

    The choice does not depend on the order, and a larger cap adds to a smaller one. Memory stays near `max_bytes`.

    >>> [name for name, _ in capped([("a", "one"), ("b", "two"), ("c", "six")], max_bytes=4)]
    ['b', 'c']
    """
    kept: list[tuple[int, int, int, tuple[str, str]]] = []  # a heap, the highest hash first
    total = 0
    for number, document in enumerate(documents):
        size = len(document[1].encode())
        heapq.heappush(kept, (-document_hash(document[0], "cap"), number, size, document))
        total += size
        while total - kept[0][2] >= max_bytes:
            total -= heapq.heappop(kept)[2]
    return [document for _, _, _, document in sorted(kept, key=lambda entry: entry[1])]


def sampled(documents: Iterable[tuple[str, str]], count: int) -> list[tuple[str, str]]:
    """`count` documents drawn by the hash of their ids, or all if there are fewer; in the order of the draw.

    A prefix of the sample is a sample too. Memory holds `count` documents.

    >>> [name for name, _ in sampled([("a", "one"), ("b", "two"), ("c", "six")], 2)]
    ['c', 'b']
    """
    entries = ((document_hash(one[0], "validation"), number, one) for number, one in enumerate(documents))
    return [document for _, _, document in heapq.nsmallest(count, entries)]
