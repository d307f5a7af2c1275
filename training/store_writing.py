"""Writing a token store: documents in, two token files and their meta.json out, all of it or nothing."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from training.corpus_error import CorpusError
from training.document_hash import RANGE, document_hash
from training.durable import whole_folder, write_whole
from training.store import SCHEMA, SPLITS, StoreMeta, TokenStore

_LARGEST = {"uint16": 2**16, "uint32": 2**32}
_BUFFERED_TOKENS = 1 << 20


class EncodedDocument(NamedTuple):
    """A document on its way into a store."""

    name: str
    """Document id; decides its split, see `in_validation`."""
    tokens: np.ndarray
    """(n,) token ids, the end of text not among them."""
    size: int
    """Bytes of its text, UTF-8."""


def write_store(
    folder: str | os.PathLike[str],
    documents: Iterable[EncodedDocument],
    *,
    vocabulary: int,
    end_of_text: int,
    tokenizer: str,
    validation_share: float = 0.05,
    dtype: str | None = None,
) -> TokenStore:
    """Write a token store in one piece: until it is complete, nothing is seen under its name.

    Args:
        folder: where; must not exist. Its parent is made if need be.
        documents: taken one by one, memory stays flat.
        vocabulary: number of token ids.
        end_of_text: token id put after every document.
        tokenizer: fingerprint of the tokenizer.
        validation_share: share of the documents that go to validation, see `in_validation`.
        dtype: "uint16" or "uint32"; None takes the smaller one that holds the vocabulary.

    Raises:
        CorpusError: the vocabulary is too large for the dtype, a token is outside the vocabulary, there is no
            document, or a split is left without one.
        FileExistsError: there is something under that name.
    """
    folder = Path(folder)
    dtype = _fitting_dtype(dtype, vocabulary)
    if not 0.0 < validation_share < 1.0:
        raise CorpusError(f"validation_share: {validation_share!r}; allowed: above 0, below 1")
    if not 0 <= end_of_text < vocabulary:
        raise CorpusError(f"end_of_text: {end_of_text}; allowed: 0 to {vocabulary - 1}")
    with whole_folder(folder) as temporary:
        writers = {split: _SplitWriter(temporary / f"{split}.bin", dtype, vocabulary, end_of_text) for split in SPLITS}
        try:
            for document in documents:
                split = "validation" if in_validation(document.name, validation_share) else "train"
                writers[split].add(document)
        finally:
            for writer in writers.values():
                writer.close()
        counts = {split: writer.documents for split, writer in writers.items()}
        _check_documents(counts, validation_share)
        content = _hash(*(writer.digest.hexdigest() for writer in writers.values()))
        meta = StoreMeta(
            schema=SCHEMA,
            dtype=dtype,
            vocabulary=vocabulary,
            end_of_text=end_of_text,
            tokenizer=tokenizer,
            validation_share=validation_share,
            tokens={split: writer.tokens for split, writer in writers.items()},
            documents=counts,
            bytes={split: writer.bytes for split, writer in writers.items()},
            content=content,
            fingerprint=_hash(content, tokenizer, repr(float(validation_share))),
        )
        write_whole(temporary / "meta.json", json.dumps(asdict(meta), indent=2) + "\n")
    return TokenStore.open(folder)


def in_validation(name: str, share: float) -> bool:
    """Whether a document is held out: by a hash of its id, so the same on every machine and in any order.

    Of an id with a '#' only the part before it decides: pieces of one book stay on one side.

    >>> in_validation("moby-dick#1", 0.05) == in_validation("moby-dick#135", 0.05)
    True
    """
    group = name.split("#", 1)[0]
    return document_hash(group, "split") < share * RANGE


class _SplitWriter:
    """One token file being written, a buffer at a time."""

    def __init__(self, path: Path, dtype: str, vocabulary: int, end_of_text: int) -> None:
        self.tokens = 0
        self.documents = 0
        self.bytes = 0
        # Over 32-bit tokens whatever the file holds: a forced dtype is no other content.
        self.digest = hashlib.blake2b(digest_size=16)
        self._stream = path.open("wb")
        self._dtype = np.dtype(dtype).newbyteorder("<")
        self._vocabulary = vocabulary
        self._end = np.array([end_of_text], dtype=np.int64)
        self._waiting: list[np.ndarray] = []
        self._waiting_tokens = 0

    def add(self, document: EncodedDocument) -> None:
        tokens = np.asarray(document.tokens, dtype=np.int64)
        if tokens.size and not (tokens.min() >= 0 and tokens.max() < self._vocabulary):
            raise CorpusError(
                f"document {document.name}: token ids {tokens.min()} to {tokens.max()}; "
                f"allowed: 0 to {self._vocabulary - 1}"
            )
        self._waiting += [tokens, self._end]
        self._waiting_tokens += tokens.size + 1
        self.tokens += tokens.size + 1
        self.documents += 1
        self.bytes += document.size
        if self._waiting_tokens >= _BUFFERED_TOKENS:
            self._write()

    def close(self) -> None:
        with self._stream:
            self._write()

    def _write(self) -> None:
        if self._waiting:
            tokens = np.concatenate(self._waiting)
            self.digest.update(tokens.astype("<u4").tobytes())
            self._stream.write(tokens.astype(self._dtype).tobytes())
        self._waiting, self._waiting_tokens = [], 0


def _check_documents(documents: dict[str, int], share: float) -> None:
    total = sum(documents.values())
    if total == 0:
        raise CorpusError("no documents in the corpus")
    for split, count in documents.items():
        if count == 0:
            raise CorpusError(
                f"none of its {total} documents falls to {split} at validation_share {share:g}; "
                "give more documents (a # in an id keeps a group together) or another share"
            )


def _fitting_dtype(dtype: str | None, vocabulary: int) -> str:
    if dtype is None:
        return "uint16" if vocabulary <= _LARGEST["uint16"] else "uint32"
    if dtype not in _LARGEST:
        raise CorpusError(f"dtype: {dtype!r}; allowed: {', '.join(_LARGEST)}")
    if vocabulary > _LARGEST[dtype]:
        raise CorpusError(
            f"dtype: {dtype} holds ids below {_LARGEST[dtype]}, the tokenizer has {vocabulary}; allowed: uint32"
        )
    return dtype


def _hash(*parts: str) -> str:
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()
