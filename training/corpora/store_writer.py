"""Write a token store: documents into parts, each whole or absent, and the parts into one store."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from training.corpora.documents import CorpusError
from training.corpora.store import SCHEMA, SPLITS, StoreMeta
from training.durable import write_whole

UNITS = ("tokens", "documents", "bytes")
_BUFFER_TOKENS = 1 << 20


class EncodedDocument(NamedTuple):
    """A tokenised document."""

    name: str
    """Document id; decides its split, see `documents.in_validation`."""
    tokens: np.ndarray
    """(n,) token ids, without the end of text."""
    size: int
    """Bytes of its text, UTF-8."""


@dataclass(frozen=True)
class Part:
    """Token files of consecutive documents of a shard, one a split; its JSON file is written last."""

    stem: Path
    """Path of its files, without their endings."""
    counts: dict[str, dict[str, int]]
    """Unit -> split -> tokens including the ends of text, documents, or bytes of text."""
    screened: dict[str, int]
    """Reason -> documents of this part that the screen dropped."""
    position: Any
    """Where the next part begins to read."""
    last: bool
    """Whether it is the last of its shard."""

    def file(self, split: str) -> Path:
        """The token file of a split."""
        return self.stem.with_suffix(f".{split}.bin")


def read_parts(shard: Path) -> list[Part]:
    """The parts of a shard that are whole, in order."""
    files = sorted(shard.glob("*.json"))
    return [Part(file.with_suffix(""), **json.loads(file.read_bytes())) for file in files]


def part_totals(parts: Iterable[Part]) -> tuple[int, int]:
    """Bytes of text, and documents, of parts."""
    size, documents = (sum(sum(part.counts[unit].values()) for part in parts) for unit in ("bytes", "documents"))
    return size, documents


class PartWriter:
    """Writes a part of a shard; files that a killed process left are overwritten.

    Args:
        shard, number: folder of the shard, which exists, and number of the part in it.
        vocabulary: number of token ids; tokens are stored as uint16 where they fit, else as uint32.
        end_of_text: token id that follows every document.

    Raises:
        CorpusError: end_of_text is outside the vocabulary.
    """

    def __init__(self, shard: Path, number: int, vocabulary: int, end_of_text: int) -> None:
        if not 0 <= end_of_text < vocabulary:
            raise CorpusError(f"end_of_text: {end_of_text}; allowed: 0 to {vocabulary - 1}")
        self._vocabulary, self._end, self._dtype = vocabulary, end_of_text, _dtype(vocabulary)
        self.part = Part(shard / f"{number:04d}", {unit: dict.fromkeys(SPLITS, 0) for unit in UNITS}, {}, None, False)
        """What has been written so far."""
        self._files = {split: self.part.file(split).open("wb", _BUFFER_TOKENS) for split in SPLITS}

    def __enter__(self) -> PartWriter:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

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
        self._files[split].write(np.append(tokens, self._end).astype(self._dtype).tobytes())
        for unit, count in zip(UNITS, (tokens.size + 1, 1, document.size), strict=True):
            self.part.counts[unit][split] += count

    def complete(self, position: Any = None, screened: Mapping[str, int] | None = None, last: bool = True) -> None:
        """Flush everything to disk, with what else `Part` holds."""
        for file in self._files.values():
            _flush(file)
        fields = {"counts": self.part.counts, "screened": dict(screened or {}), "position": position, "last": last}
        write_whole(self.part.stem.with_suffix(".json"), json.dumps(fields) + "\n")


def merge_parts(
    folder: Path,
    parts: Sequence[Part],
    vocabulary: int,
    end_of_text: int,
    tokenizer: str,
    validation_ratio: float,
    dropped: Mapping[str, int] | None = None,
) -> None:
    """Make a token store of parts, in their order: train.bin, validation.bin, and last meta.json.

    The token files of the parts are removed one by one, so that the disk holds the text once; their counts stay. After
    a kill the same call continues. `dropped` are the documents that the filters dropped.

    Raises:
        CorpusError: there is no document, or a split has none.
    """
    total = {unit: {split: sum(part.counts[unit][split] for part in parts) for split in SPLITS} for unit in UNITS}
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
    content = _hash(*(_merge_split(folder / f"{split}.bin", split, parts, dtype) for split in SPLITS))
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
        dropped=dict(sum((Counter(part.screened) for part in parts), Counter(dropped or {}))),
    )
    write_whole(folder / "meta.json", json.dumps(asdict(meta), indent=2) + "\n")


def _merge_split(path: Path, split: str, parts: Sequence[Part], dtype: np.dtype) -> str:
    """Append the parts' files of a split and remove them; returns the hash of all tokens."""
    # Over 32-bit tokens for either dtype: the fingerprint does not depend on it.
    digest = hashlib.blake2b(digest_size=16)
    path.touch()
    with path.open("r+b") as whole:
        for part in parts:
            file, tokens = part.file(split), part.counts["tokens"][split]
            with contextlib.ExitStack() as opened:
                # A file that is gone was appended and flushed before it was removed.
                source = opened.enter_context(file.open("rb")) if file.exists() else whole
                for first in range(0, tokens, _BUFFER_TOKENS):
                    data = source.read(min(_BUFFER_TOKENS, tokens - first) * dtype.itemsize)
                    digest.update(np.frombuffer(data, dtype).astype("<u4").tobytes())
                    if source is not whole:
                        whole.write(data)
            _flush(whole)
            file.unlink(missing_ok=True)
        whole.truncate()
        _flush(whole)
    return digest.hexdigest()


def _flush(stream: BinaryIO) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def _dtype(vocabulary: int) -> np.dtype:
    return np.dtype("uint16" if vocabulary <= 2**16 else "uint32").newbyteorder("<")


def _hash(*parts: str) -> str:
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()
