"""Write a token store: documents into parts, each whole or absent, and the parts into one store."""

import contextlib
import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from training.corpora.documents import CorpusError
from training.corpora.store import SCHEMA, SPLITS, StoreMeta
from training.durable import numbered, read_record, write_whole

UNITS = ("tokens", "documents", "bytes")
_BUFFER_TOKENS = 1 << 20


@dataclass(frozen=True)
class Tokenisation:
    """How documents become the tokens of a store."""

    tokenizer: str
    """A tokenizers-library tokenizer as JSON."""
    fingerprint: str
    """Fingerprint of the tokenizer."""
    vocabulary: int
    """Number of token ids; tokens are stored as uint16 where they fit, else as uint32."""
    end_of_text: int
    """Token id that follows every document."""
    validation_ratio: float
    """Ratio of the documents held out, by a hash of their ids, where no validation set is given."""

    @property
    def dtype(self) -> np.dtype:
        """Type of a token on disk."""
        return np.dtype("uint16" if self.vocabulary <= 2**16 else "uint32").newbyteorder("<")


@dataclass
class Part:
    """Token files of consecutive documents of a shard, one a split; its JSON file is written last."""

    stem: Path
    """Path of its files, without their endings."""
    counts: dict[str, dict[str, int]]
    """Unit -> split -> tokens including the ends of text, documents, or bytes of text."""
    screened: dict[str, int] = field(default_factory=dict)
    """Reason -> documents of this part that the screen dropped."""
    position: Any = None
    """Where the next part begins to read."""
    last: bool = False
    """Whether it is the last of its shard."""

    def file(self, split: str, kind: str = "bin") -> Path:
        """The token file of a split, or the documents' (kind "documents")."""
        return self.stem.with_suffix(f".{split}.{kind}")


def read_parts(shard: Path) -> list[Part]:
    """The parts of a shard that are whole, in order."""
    files = numbered(shard, "*.json").values()
    return [read_record(file, Part, stem=str(file.with_suffix(""))) for file in files]


def is_complete(parts: Sequence[Part]) -> bool:
    """Whether parts are all of their shard."""
    return bool(parts) and parts[-1].last


def part_totals(parts: Iterable[Part]) -> tuple[int, int]:
    """Bytes of text, and documents, of parts."""
    counts = [part.counts for part in parts]
    return sum(sum(one["bytes"].values()) for one in counts), sum(sum(one["documents"].values()) for one in counts)


class PartWriter(contextlib.ExitStack):
    """Writes a part, by its number, into the folder of a shard; files that a killed process left are overwritten."""

    def __init__(self, shard: Path, number: int, how: Tokenisation) -> None:
        super().__init__()
        self._how = how
        self.part = Part(shard / f"{number:04d}", {unit: dict.fromkeys(SPLITS, 0) for unit in UNITS})
        """What has been written so far."""
        self._tokens, self._documents = (
            {split: self.enter_context(self.part.file(split, kind).open("wb", _BUFFER_TOKENS)) for split in SPLITS}
            for kind in ("bin", "documents")
        )

    def add(self, name: str, tokens: np.ndarray, size: int, split: str) -> None:
        """Append a document, (n,) token ids of a text of `size` bytes, and its end of text to a split."""
        ids = np.append(tokens, tokens.dtype.type(self._how.end_of_text))
        assert 0 <= ids.min() <= ids.max() < self._how.vocabulary, f"document {name}: ids beyond the tokenizer's"
        content = ids.astype(self._how.dtype).tobytes()
        self._tokens[split].write(content)
        # A DOCUMENT.
        self._documents[split].write(hashlib.blake2b(content, digest_size=8).digest() + ids.size.to_bytes(4, "little"))
        for unit, count in zip(UNITS, (tokens.size + 1, 1, size), strict=True):
            self.part.counts[unit][split] += count

    def complete(self, position: Any = None, last: bool = True) -> None:
        """Flush everything to disk, with the position at which the next part begins."""
        for file in (*self._tokens.values(), *self._documents.values()):
            _flush(file)
        self.part.position, self.part.last = position, last
        fields = asdict(self.part)
        del fields["stem"]
        write_whole(self.part.stem.with_suffix(".json"), json.dumps(fields) + "\n")


def merge_parts(folder: Path, parts: Sequence[Part], how: Tokenisation, dropped: Mapping[str, int]) -> None:
    """Make a token store of parts, in their order: documents and tokens of train and validation, and last meta.json.

    The token files of the parts are removed one by one, so that the disk holds the text once; their counts stay. After
    a kill the same call continues. `dropped` are the documents that the filters dropped.

    Raises:
        CorpusError: a split has no document.
    """
    total = {unit: {split: sum(part.counts[unit][split] for part in parts) for split in SPLITS} for unit in UNITS}
    documents, ratio = total["documents"], how.validation_ratio
    for split, count in documents.items():
        if count == 0:
            raise CorpusError(
                f"none of its {sum(documents.values())} documents falls to {split} at validation_ratio {ratio:g}; "
                "give more documents (a # in an id keeps a group together) or another validation_ratio"
            )
    for split in SPLITS:
        with (folder / f"{split}.documents").open("wb") as whole:
            for part in parts:
                with part.file(split, "documents").open("rb") as source:
                    shutil.copyfileobj(source, whole)
            _flush(whole)
    content = _hash(*(_merge_split(folder / f"{split}.bin", split, parts, how.dtype) for split in SPLITS))
    meta = StoreMeta(
        schema=SCHEMA,
        dtype=how.dtype.name,
        vocabulary=how.vocabulary,
        end_of_text=how.end_of_text,
        tokenizer=how.fingerprint,
        validation_ratio=ratio,
        **total,
        content=content,
        fingerprint=_hash(content, how.fingerprint, repr(float(ratio))),
        dropped=dict(sum((Counter(part.screened) for part in parts), Counter(dropped))),
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
            # A file that is gone was appended and flushed before it was removed.
            with file.open("rb") if file.exists() else contextlib.nullcontext(whole) as source:
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


def _hash(*parts: str) -> str:
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()
