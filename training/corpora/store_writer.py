"""Write a token store: documents into shards, each whole or absent, and the shards into one store."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from training.corpora.documents import CorpusError
from training.corpora.store import SCHEMA, SPLITS, StoreMeta
from training.durable import append_flushed, read_lines_whole, write_whole

_MARKS, _COUNTS = "marks.jsonl", "counts.json"
UNITS = ("tokens", "documents", "bytes")
_BUFFERED_TOKENS = 1 << 20


class EncodedDocument(NamedTuple):
    """A tokenised document."""

    name: str
    """Document id; decides its split, see `documents.in_validation`."""
    tokens: np.ndarray
    """(n,) token ids, without the end of text."""
    size: int
    """Bytes of its text, UTF-8."""


class StoreWriter:
    """Writes a shard of a token store in a folder of its own; after a kill it continues from the last mark.

    Args:
        folder: exists; holds nothing, or what a writer with the same arguments left there.
        vocabulary: number of token ids; tokens are stored as uint16 where they fit, else as uint32.
        end_of_text: token id that follows every document.

    Raises:
        CorpusError: end_of_text is outside the vocabulary.
    """

    def __init__(self, folder: Path, vocabulary: int, end_of_text: int) -> None:
        if not 0 <= end_of_text < vocabulary:
            raise CorpusError(f"end_of_text: {end_of_text}; allowed: 0 to {vocabulary - 1}")
        self._folder, self._vocabulary, self._end = folder, vocabulary, end_of_text
        dtype = _dtype(vocabulary)
        mark = _last_mark(folder, dtype.itemsize)
        self.place: Any = mark["place"] if mark else None
        """Argument of the last `mark`; None: start at the first document."""
        self._files = {split: _TokenFile(folder / f"{split}.bin", dtype, mark and mark[split]) for split in SPLITS}

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.stream.close()

    @property
    def bytes(self) -> int:
        """Bytes of text so far, UTF-8."""
        return sum(self._counts("bytes").values())

    @property
    def documents(self) -> int:
        """Documents so far."""
        return sum(self._counts("documents").values())

    def add(self, document: EncodedDocument, split: str) -> None:
        """Append a document and its end of text to a split.

        Raises:
            CorpusError: a token is outside the vocabulary.
        """
        tokens = np.asarray(document.tokens, dtype=np.int64)
        if tokens.size and not (tokens.min() >= 0 and tokens.max() < self._vocabulary):
            raise CorpusError(
                f"document {document.name}: token ids {tokens.min()} to {tokens.max()}; "
                f"allowed: 0 to {self._vocabulary - 1}"
            )
        self._files[split].add(np.append(tokens, self._end), document.size)

    def mark(self, place: Any) -> None:
        """Flush everything to disk; a later kill loses only what comes after.

        Args:
            place: where the caller continues reading; JSON.
        """
        for file in self._files.values():
            file.flush()
        counts = {split: file.counts for split, file in self._files.items()}
        append_flushed(self._folder / _MARKS, json.dumps({"place": place, **counts}) + "\n")

    def complete(self, dropped: Mapping[str, int] | None = None, screened: Mapping[str, int] | None = None) -> None:
        """Flush everything, with the documents dropped: reason -> number, by filters and by the screen."""
        for file in self._files.values():
            file.flush()
        counts = {unit: self._counts(unit) for unit in UNITS}
        counts |= {"dropped": dict(dropped or {}), "screened": dict(screened or {})}
        write_whole(self._folder / _COUNTS, json.dumps(counts) + "\n")
        (self._folder / _MARKS).unlink(missing_ok=True)

    def _counts(self, unit: str) -> dict[str, int]:
        return {split: file.counts[unit] for split, file in self._files.items()}


class _TokenFile:
    """The token file of one split, written through a buffer.

    Args:
        path: where.
        dtype: uint16 or uint32, little-endian.
        kept: `counts` of the content to keep; the rest of the file is cut off. None: nothing.
    """

    def __init__(self, path: Path, dtype: np.dtype, kept: dict[str, int] | None = None) -> None:
        self.counts = dict(kept or {"tokens": 0, "documents": 0, "bytes": 0})
        """Tokens including the ends of text, documents, and bytes of their text so far."""
        self._dtype = dtype
        self._buffer: list[np.ndarray] = []
        self._buffered = 0
        self.stream = path.open("r+b" if kept else "wb")
        self.stream.truncate(self.counts["tokens"] * dtype.itemsize)
        self.stream.seek(0, os.SEEK_END)

    def add(self, tokens: np.ndarray, size: int) -> None:
        """Append the tokens of a document of so many bytes."""
        self._buffer.append(tokens)
        self._buffered += tokens.size
        for unit, count in (("tokens", tokens.size), ("documents", 1), ("bytes", size)):
            self.counts[unit] += count
        if self._buffered >= _BUFFERED_TOKENS:
            self._write()

    def flush(self) -> None:
        """Flush all tokens to disk."""
        self._write()
        _flush(self.stream)

    def _write(self) -> None:
        if self._buffer:
            self.stream.write(np.concatenate(self._buffer).astype(self._dtype).tobytes())
        self._buffer, self._buffered = [], 0


def shard_counts(folder: Path, vocabulary: int) -> dict[str, dict[str, int]]:
    """What a complete shard holds: tokens, documents and bytes by split, documents dropped and screened by reason; of
    another what its last mark holds; empty: nothing."""
    if (folder / _COUNTS).exists():
        return json.loads((folder / _COUNTS).read_bytes())
    mark = _last_mark(folder, _dtype(vocabulary).itemsize)
    return {unit: {split: mark[split][unit] for split in SPLITS} for unit in UNITS} if mark else {}


def merge_shards(
    folder: Path, shards: Sequence[Path], vocabulary: int, end_of_text: int, tokenizer: str, validation_ratio: float
) -> None:
    """Make a token store of complete shards, in their order: train.bin, validation.bin, and last meta.json.

    The token files of the shards are removed one by one, so that the disk holds the text once; their counts stay. After
    a kill the same call continues.

    Raises:
        CorpusError: there is no document, or a split has none.
    """
    all_counts = [shard_counts(shard, vocabulary) for shard in shards]
    total = {unit: {split: sum(one[unit][split] for one in all_counts) for split in SPLITS} for unit in UNITS}
    documents = total["documents"]
    if not sum(documents.values()):
        raise CorpusError("no documents in the corpus")
    for split, count in documents.items():
        if count == 0:
            raise CorpusError(
                f"none of its {sum(documents.values())} documents falls to {split} at validation_ratio "
                f"{validation_ratio:g}; give more documents (a # in an id keeps a group together) or another "
                "validation_ratio"
            )
    dtype = _dtype(vocabulary)
    content = _hash(
        *(
            _merge_split(
                folder, split, [(shard, one["tokens"][split]) for shard, one in zip(shards, all_counts)], dtype
            )
            for split in SPLITS
        )
    )
    dropped: Counter[str] = Counter()
    for kind in ("dropped", "screened"):
        for one in all_counts:
            dropped.update(one[kind])
    meta = StoreMeta(
        schema=SCHEMA,
        dtype=dtype.name,
        vocabulary=vocabulary,
        end_of_text=end_of_text,
        tokenizer=tokenizer,
        validation_ratio=validation_ratio,
        **total,
        content=content,
        fingerprint=_hash(content, tokenizer, repr(float(validation_ratio))),
        dropped=dict(dropped),
    )
    write_whole(folder / "meta.json", json.dumps(asdict(meta), indent=2) + "\n")


def _merge_split(folder: Path, split: str, parts: Sequence[tuple[Path, int]], dtype: np.dtype) -> str:
    """Append the shards' files of a split and remove them; returns the hash of all tokens."""
    # Over 32-bit tokens for either dtype: the fingerprint does not depend on it.
    digest = hashlib.blake2b(digest_size=16)
    path = folder / f"{split}.bin"
    path.touch()
    with path.open("r+b") as whole:
        for shard, tokens in parts:
            part = shard / f"{split}.bin"
            with contextlib.ExitStack() as opened:
                # A file that is gone was appended and flushed before it was removed.
                source = opened.enter_context(part.open("rb")) if part.exists() else whole
                for first in range(0, tokens, _BUFFERED_TOKENS):
                    data = source.read(min(_BUFFERED_TOKENS, tokens - first) * dtype.itemsize)
                    digest.update(np.frombuffer(data, dtype).astype("<u4").tobytes())
                    if source is not whole:
                        whole.write(data)
            _flush(whole)
            part.unlink(missing_ok=True)
        whole.truncate()
        _flush(whole)
    return digest.hexdigest()


def _flush(stream: BinaryIO) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def _dtype(vocabulary: int) -> np.dtype:
    return np.dtype("uint16" if vocabulary <= 2**16 else "uint32").newbyteorder("<")


def _last_mark(folder: Path, itemsize: int) -> dict[str, Any] | None:
    """The last mark whose tokens the files hold."""
    try:
        mark = read_lines_whole(folder / _MARKS)[-1]
        sizes = [(folder / f"{split}.bin").stat().st_size for split in SPLITS]
        if all(size >= mark[split]["tokens"] * itemsize for split, size in zip(SPLITS, sizes, strict=True)):
            return mark
    except (OSError, ValueError, IndexError, KeyError, TypeError):
        pass
    (folder / _MARKS).unlink(missing_ok=True)
    return None


def _hash(*parts: str) -> str:
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()
