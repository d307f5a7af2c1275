"""A tokenised corpus on disk: two flat token files, train and validation, read by windows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
from annotated_types import Predicate

from training.corpora.documents import CorpusError
from training.durable import FileError, read_record

SCHEMA = 1
SPLITS = ("train", "validation")
DOCUMENT = np.dtype([("hash", "<u8"), ("tokens", "<u4")])
"""A document of a split on disk: a hash of its tokens, and their number with the end of text."""
_DOCUMENTS_AT_ONCE = 1 << 20


def both_splits(counts: dict[str, int]) -> bool:
    """Whether numbers are of the two splits, 0 or more each."""
    return counts.keys() == {*SPLITS} and min(counts.values()) >= 0


PerSplit = Annotated[dict[str, int], Predicate(both_splits)]


@dataclass(frozen=True)
class StoreMeta:
    """Content of a token store's meta.json."""

    schema: int
    """Version of the layout."""
    dtype: Annotated[str, Predicate(("uint16", "uint32").__contains__)]
    """Type of a token on disk, little-endian: uint16 or uint32."""
    vocabulary: int
    """Number of token ids."""
    end_of_text: int
    """Token id that ends every document."""
    tokenizer: str
    """Fingerprint of the tokenizer."""
    validation_ratio: float
    """Ratio of the documents in validation; the split by a hash of their ids meets it approximately."""
    tokens: PerSplit
    """Split -> tokens, including the ends of text."""
    documents: PerSplit
    """Split -> documents."""
    bytes: PerSplit
    """Split -> bytes of the text, UTF-8."""
    content: str
    """Hash of both splits' tokens, in order."""
    fingerprint: str
    """Hash of content, tokenizer and split rule, 32 hexadecimal digits: equal fingerprints mean equal batches."""
    dropped: dict[str, int] = field(default_factory=dict)
    """Reason -> documents dropped: a filter's name, or validation.same and validation.near."""


class TokenStore:
    """A tokenised corpus, memory-mapped.

    Window k of a split, at sequence length T, holds its tokens k T to k T + T inclusive: T + 1 tokens and T
    predictions, each in one window only. Every document ends with the end-of-text token; a window may hold parts of
    several documents.
    """

    def __init__(self, folder: Path, meta: StoreMeta) -> None:
        self.folder = folder
        self.meta = meta
        dtype = np.dtype(meta.dtype).newbyteorder("<")
        self._tokens = {split: np.empty(0, dtype) for split in meta.tokens}
        for split in (split for split, count in meta.tokens.items() if count):
            # A plain array view: indexing the memmap class takes several times longer. An empty file has no map.
            self._tokens[split] = np.asarray(np.memmap(folder / f"{split}.bin", dtype=dtype, mode="r"))

    @classmethod
    def open(cls, folder: Path) -> TokenStore:
        """Open a token store.

        Raises:
            CorpusError: no store, one of another schema version, or one whose files do not match its meta.json.
        """
        path = folder / "meta.json"
        try:
            meta = read_record(path, StoreMeta, SCHEMA)
        except FileNotFoundError:
            raise CorpusError(f"{folder}: no token store here (no meta.json); prepare the corpora first") from None
        except FileError as error:
            raise CorpusError(f"{error}; prepare the corpora again") from error
        files = [(f"{split}.bin", meta.tokens[split] * np.dtype(meta.dtype).itemsize) for split in SPLITS]
        files += [(f"{split}.documents", meta.documents[split] * DOCUMENT.itemsize) for split in SPLITS]
        for name, expected in files:
            path = folder / name
            size = path.stat().st_size if path.is_file() else None
            if size != expected:
                state = "is missing" if size is None else f"has {size} bytes"
                raise CorpusError(
                    f"{path}: {state}, meta.json says {expected}; the store is damaged, prepare the corpora again"
                )
        return cls(folder, meta)

    def documents(self, split: str) -> Iterator[np.ndarray]:
        """The documents of a split in order, (n,) of DOCUMENT at once."""
        with (self.folder / f"{split}.documents").open("rb") as stream:
            while len(some := np.fromfile(stream, DOCUMENT, _DOCUMENTS_AT_ONCE)):
                yield some

    def tokens(self, split: str) -> int:
        """Tokens in a split, including the ends of text."""
        return len(self._tokens[split])

    def windows(self, split: str, sequence_length: int) -> int:
        """Number of complete windows of a split, each of `sequence_length` predictions."""
        return max(len(self._tokens[split]) - 1, 0) // sequence_length

    def batch(self, split: str, positions: np.ndarray, sequence_length: int) -> np.ndarray:
        """Read windows of a split: (n, T + 1) int64 token ids; predictions are row[1:] from row[:-1].

        `positions`, (n,) integers, are indices of windows; one outside the split raises IndexError.
        """
        positions = np.asarray(positions, dtype=np.int64)
        windows = self.windows(split, sequence_length)
        if positions.size and not (positions.min() >= 0 and positions.max() < windows):
            raise IndexError(
                f"{self.folder} {split}: windows {positions.min()} to {positions.max()}; allowed: 0 to {windows - 1}"
            )
        indices = positions[:, None] * sequence_length + np.arange(sequence_length + 1)
        return self._tokens[split][indices].astype(np.int64)

    def validation_positions(self, count: int, sequence_length: int) -> np.ndarray:
        """Positions (min(count, windows),) of fixed validation windows, increasing, evenly spaced over the split.

        Raises:
            CorpusError: the validation split is shorter than one window.
        """
        windows = self.windows("validation", sequence_length)
        if windows == 0:
            raise CorpusError(
                f"{self.folder}: {self.tokens('validation')} validation tokens are less than one window of "
                f"{sequence_length}; raise validation_ratio or shorten the sequences"
            )
        count = min(count, windows)
        return (2 * np.arange(count, dtype=np.int64) + 1) * windows // (2 * count)


def repeated_tokens(stores: Mapping[str, TokenStore]) -> dict[str, int]:
    """Validation tokens of each store in documents that the training text of some store has, word for word."""
    held_out = {name: np.concatenate([*store.documents("validation")]) for name, store in stores.items()}
    known = np.unique(np.concatenate([documents["hash"] for documents in held_out.values()]))
    repeated = np.zeros(len(known), bool)
    for store in stores.values():
        for documents in store.documents("train"):
            places = np.searchsorted(known[:-1], documents["hash"])
            repeated[places[known[places] == documents["hash"]]] = True
    counted = {name: repeated[np.searchsorted(known, documents["hash"])] for name, documents in held_out.items()}
    return {name: int(documents["tokens"][counted[name]].sum()) for name, documents in held_out.items()}
