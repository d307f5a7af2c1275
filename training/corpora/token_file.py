"""One file of tokens: documents one after another, each ended by the end of text."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from training.corpora.corpus_error import CorpusError

_BUFFERED_TOKENS = 1 << 20


class EncodedDocument(NamedTuple):
    """A document on its way into a store."""

    name: str
    """Document id; decides its split, see `in_validation`."""
    tokens: np.ndarray
    """(n,) token ids, the end of text not among them."""
    size: int
    """Bytes of its text, UTF-8."""


class TokenFile:
    """The token file of a split being written, a buffer at a time.

    Args:
        path: where.
        dtype: uint16 or uint32, on disk little-endian.
        vocabulary: number of token ids.
        end_of_text: token id put after every document.
        kept: `counts` of what is already there and stays; what lies behind it is cut off. None: nothing.
    """

    def __init__(
        self, path: Path, dtype: str, vocabulary: int, end_of_text: int, kept: dict[str, int] | None = None
    ) -> None:
        # Over 32-bit tokens whatever the file holds: a forced dtype is no other content.
        self.digest = hashlib.blake2b(digest_size=16)
        """Hash of all tokens so far."""
        self.counts = dict(kept or {"tokens": 0, "documents": 0, "bytes": 0})
        """Tokens with the document ends, documents, and bytes of their text so far."""
        self._dtype = np.dtype(dtype).newbyteorder("<")
        self._vocabulary = vocabulary
        self._end = np.array([end_of_text], dtype=np.int64)
        self._waiting: list[np.ndarray] = []
        self._waiting_tokens = 0
        self._stream = path.open("r+b" if kept else "wb")
        for first in range(0, self.counts["tokens"], _BUFFERED_TOKENS):
            count = min(_BUFFERED_TOKENS, self.counts["tokens"] - first)
            tokens = np.frombuffer(self._stream.read(count * self._dtype.itemsize), self._dtype)
            self.digest.update(tokens.astype("<u4").tobytes())
        self._stream.truncate(self.counts["tokens"] * self._dtype.itemsize)

    def add(self, document: EncodedDocument) -> None:
        """Put a document and its end behind the others.

        Raises:
            CorpusError: a token is outside the vocabulary.
        """
        tokens = np.asarray(document.tokens, dtype=np.int64)
        if tokens.size and not (tokens.min() >= 0 and tokens.max() < self._vocabulary):
            raise CorpusError(
                f"document {document.name}: token ids {tokens.min()} to {tokens.max()}; "
                f"allowed: 0 to {self._vocabulary - 1}"
            )
        self._waiting += [tokens, self._end]
        self._waiting_tokens += tokens.size + 1
        self.counts["tokens"] += tokens.size + 1
        self.counts["documents"] += 1
        self.counts["bytes"] += document.size
        if self._waiting_tokens >= _BUFFERED_TOKENS:
            self._write()

    def flush(self) -> None:
        """Have all of it on the disk."""
        self._write()
        self._stream.flush()
        os.fsync(self._stream.fileno())

    def close(self) -> None:
        """Let go of the file; what has not been flushed is lost."""
        self._stream.close()

    def _write(self) -> None:
        if self._waiting:
            tokens = np.concatenate(self._waiting)
            self.digest.update(tokens.astype("<u4").tobytes())
            self._stream.write(tokens.astype(self._dtype).tobytes())
        self._waiting, self._waiting_tokens = [], 0
