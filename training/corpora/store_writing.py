"""Writing a token store: documents in, two token files and their meta.json out, all of it or nothing."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from training.corpora.corpus_error import CorpusError
from training.corpora.document_hash import RANGE, document_hash
from training.corpora.store import SCHEMA, SPLITS, StoreMeta, TokenStore
from training.corpora.token_file import EncodedDocument, TokenFile
from training.durable import append_flushed, read_lines_whole, whole_folder, write_whole

_LARGEST = {"uint16": 2**16, "uint32": 2**32}
_MARKS = "marks.jsonl"


def write_store(
    folder: str | os.PathLike[str],
    documents: Iterable[EncodedDocument],
    *,
    vocabulary: int,
    end_of_text: int,
    tokenizer: str,
    validation_ratio: float = 0.05,
    dtype: str | None = None,
) -> TokenStore:
    """Write a token store in one piece: until it is complete, nothing is seen under its name.

    Args:
        folder: where; must not exist. Its parent is made if need be.
        documents: taken one by one, memory stays flat.
        vocabulary: number of token ids.
        end_of_text: token id put after every document.
        tokenizer: fingerprint of the tokenizer.
        validation_ratio: share of the documents that go to validation, see `in_validation`.
        dtype: "uint16" or "uint32"; None takes the smaller one that holds the vocabulary.

    Raises:
        CorpusError: the vocabulary is too large for the dtype, a token is outside the vocabulary, there is no
            document, or a split is left without one.
        FileExistsError: there is something under that name.
    """
    folder = Path(folder)
    if not 0.0 < validation_ratio < 1.0:
        raise CorpusError(f"validation_ratio: {validation_ratio!r}; allowed: above 0, below 1")
    with whole_folder(folder) as temporary, StoreWriter(temporary, vocabulary, end_of_text, dtype) as writer:
        for document in documents:
            writer.add(document, "validation" if in_validation(document.name, validation_ratio) else "train")
        writer.complete(tokenizer, validation_ratio)
    return TokenStore.open(folder)


class StoreWriter:
    """A token store while it is written, in a folder of its own; a killed one goes on from its last mark.

    Args:
        folder: exists; holds nothing, or what a writer with the same arguments left there.
        vocabulary, end_of_text, dtype: see `write_store`.

    Raises:
        CorpusError: the vocabulary is too large for the dtype, or the end of text is outside it.
    """

    def __init__(self, folder: Path, vocabulary: int, end_of_text: int, dtype: str | None = None) -> None:
        self._folder = folder
        self._dtype = _fitting_dtype(dtype, vocabulary)
        self._vocabulary, self._end = vocabulary, end_of_text
        if not 0 <= end_of_text < vocabulary:
            raise CorpusError(f"end_of_text: {end_of_text}; allowed: 0 to {vocabulary - 1}")
        mark = _last_mark(folder, np.dtype(self._dtype).itemsize)
        self.place: Any = mark["place"] if mark else None
        """What `mark` was given last; None: nothing is kept, begin at the beginning."""
        self._writers = {
            split: TokenFile(folder / f"{split}.bin", self._dtype, vocabulary, end_of_text, mark and mark[split])
            for split in SPLITS
        }

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._writers.values():
            writer.close()

    @property
    def bytes(self) -> int:
        """Bytes of text so far, UTF-8."""
        return sum(writer.counts["bytes"] for writer in self._writers.values())

    @property
    def documents(self) -> int:
        """Documents so far."""
        return sum(writer.counts["documents"] for writer in self._writers.values())

    def add(self, document: EncodedDocument, split: str) -> None:
        """Put a document at the end of a split.

        Raises:
            CorpusError: a token is outside the vocabulary.
        """
        self._writers[split].add(document)

    def mark(self, place: Any) -> None:
        """Have all that was added on the disk, so that a kill from here on costs only what comes after.

        Args:
            place: how the caller finds the documents after these; JSON.
        """
        for writer in self._writers.values():
            writer.flush()
        counts = {split: writer.counts for split, writer in self._writers.items()}
        append_flushed(self._folder / _MARKS, json.dumps({"place": place, **counts}) + "\n")

    def complete(self, tokenizer: str, validation_ratio: float, dropped: Mapping[str, int] | None = None) -> None:
        """Write meta.json: from here on the folder is a token store.

        Raises:
            CorpusError: there is no document, or a split is left without one.
        """
        for writer in self._writers.values():
            writer.flush()
        counts = {split: writer.counts for split, writer in self._writers.items()}
        documents = {split: count["documents"] for split, count in counts.items()}
        _check_documents(documents, validation_ratio)
        content = _hash(*(writer.digest.hexdigest() for writer in self._writers.values()))
        meta = StoreMeta(
            schema=SCHEMA,
            dtype=self._dtype,
            vocabulary=self._vocabulary,
            end_of_text=self._end,
            tokenizer=tokenizer,
            validation_ratio=validation_ratio,
            tokens={split: count["tokens"] for split, count in counts.items()},
            documents=documents,
            bytes={split: count["bytes"] for split, count in counts.items()},
            content=content,
            fingerprint=_hash(content, tokenizer, repr(float(validation_ratio))),
            dropped=dict(dropped or {}),
        )
        write_whole(self._folder / "meta.json", json.dumps(asdict(meta), indent=2) + "\n")
        (self._folder / _MARKS).unlink(missing_ok=True)


def in_validation(name: str, share: float) -> bool:
    """Whether a document is held out: by a hash of its id, so the same on every machine and in any order.

    Of an id with a '#' only the part before it decides: pieces of one book stay on one side.

    >>> in_validation("moby-dick#1", 0.05) == in_validation("moby-dick#135", 0.05)
    True
    """
    group = name.split("#", 1)[0]
    return document_hash(group, "split") < share * RANGE


def _last_mark(folder: Path, itemsize: int) -> dict[str, Any] | None:
    """The last mark that the files of the folder reach up to."""
    try:
        mark = read_lines_whole(folder / _MARKS)[-1]
        sizes = [(folder / f"{split}.bin").stat().st_size for split in SPLITS]
        if all(size >= mark[split]["tokens"] * itemsize for split, size in zip(SPLITS, sizes, strict=True)):
            return mark
    except (OSError, ValueError, IndexError, KeyError, TypeError):
        pass
    (folder / _MARKS).unlink(missing_ok=True)
    return None


def _check_documents(documents: dict[str, int], share: float) -> None:
    total = sum(documents.values())
    if total == 0:
        raise CorpusError("no documents in the corpus")
    for split, count in documents.items():
        if count == 0:
            raise CorpusError(
                f"none of its {total} documents falls to {split} at validation_ratio {share:g}; "
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
