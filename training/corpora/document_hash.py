"""A document's lot: a number drawn from its name, the same on every machine and in any order."""

import hashlib

RANGE = 2**64


def document_hash(name: str, purpose: str) -> int:
    """A whole number from 0 to RANGE - 1, evenly spread over names.

    Lots for two purposes have nothing to do with each other: a corpus cut down to the documents with the
    lowest lots must not consist of those that validation holds out.

    >>> document_hash("moby-dick", "split") == document_hash("moby-dick", "cap")
    False
    """
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8, person=purpose.encode())
    return int.from_bytes(digest.digest(), "big")
