"""A tokenised corpus on disk: two flat token files, train and validation, of which only windows are read."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from training.corpora.documents import CorpusError

SCHEMA = 1
SPLITS = ("train", "validation")


@dataclass(frozen=True)
class StoreMeta:
    """What meta.json of a token store says."""

    schema: int
    """Version of the layout; a store of another version is refused."""
    dtype: str
    """Type of a token on disk, little-endian: uint16 or uint32."""
    vocabulary: int
    """Number of token ids; all tokens are below it."""
    end_of_text: int
    """Token id that ends every document."""
    tokenizer: str
    """Fingerprint of the tokenizer."""
    validation_ratio: float
    """Share of the documents meant for validation; the split by document hits it only roughly."""
    tokens: dict[str, int]
    """Split -> tokens, document ends included."""
    documents: dict[str, int]
    """Split -> documents."""
    bytes: dict[str, int]
    """Split -> bytes of the text, UTF-8; loss times tokens over bytes compares tokenizers."""
    content: str
    """Hash of both splits' tokens, in order."""
    fingerprint: str
    """Hash of content, tokenizer and split rule: equal fingerprints mean equal batches."""
    dropped: dict[str, int] = field(default_factory=dict)
    """Why -> documents that were left out: a filter's name, or validation.same and validation.near."""


class TokenStore:
    """A tokenised corpus, memory-mapped.

    Window k of a split, at sequence length T, covers its tokens k T to k T + T inclusive: T + 1 tokens, T
    predictions, and no prediction in two windows. Documents follow one another, each ended by the end-of-text
    token, so a window may hold parts of several.
    """

    def __init__(self, folder: Path, meta: StoreMeta) -> None:
        self.folder = folder
        self.meta = meta
        # A plain view of the map: indexing the memmap class itself costs several times more per batch.
        self._tokens = {split: _mapped(folder, split, meta) for split in SPLITS}

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> TokenStore:
        """Open a token store.

        Raises:
            CorpusError: no store there, one of another schema version, or one whose files do not match its
                meta.json.
        """
        folder = Path(folder)
        path = folder / "meta.json"
        if not path.is_file():
            raise CorpusError(f"{folder}: no token store here (no meta.json); prepare the corpora first")
        try:
            fields = json.loads(path.read_bytes())
            schema = fields["schema"]
        except (ValueError, TypeError, KeyError) as error:
            raise CorpusError(f"{path}: not the meta.json of a token store; prepare the corpora again") from error
        if schema != SCHEMA:
            raise CorpusError(
                f"{path}: schema {schema!r}; this version reads schema {SCHEMA}; prepare the corpora again"
            )
        try:
            meta = StoreMeta(**fields)
        except TypeError as error:
            raise CorpusError(f"{path}: its fields are not those of schema {SCHEMA}; prepare again") from error
        for split in SPLITS:
            _check_size(folder, split, meta)
        return cls(folder, meta)

    @property
    def fingerprint(self) -> str:
        """Hash of the tokens, the tokenizer and the split rule; 32 hexadecimal digits."""
        return self.meta.fingerprint

    @property
    def vocabulary(self) -> int:
        """Number of token ids."""
        return self.meta.vocabulary

    def tokens(self, split: str) -> int:
        """Tokens in a split, document ends included."""
        return len(self._tokens[split])

    def windows(self, split: str, sequence_length: int) -> int:
        """Windows of a split, each of `sequence_length` predictions; a remainder at the end is left out."""
        return max(len(self._tokens[split]) - 1, 0) // sequence_length

    def batch(self, split: str, positions: np.ndarray, sequence_length: int) -> np.ndarray:
        """Read windows.

        Args:
            split: "train" or "validation".
            positions: (n,) whole numbers, the windows wanted, each below `windows(split, sequence_length)`.
            sequence_length: T, predictions a window.

        Returns:
            Array (n, T + 1) of int64 token ids; predictions are row[1:] from row[:-1].

        Raises:
            IndexError: a position outside the split.
        """
        positions = np.asarray(positions, dtype=np.int64)
        windows = self.windows(split, sequence_length)
        if positions.size and not (positions.min() >= 0 and positions.max() < windows):
            raise IndexError(
                f"{self.folder} {split}: windows {positions.min()} to {positions.max()}; allowed: 0 to {windows - 1}"
            )
        places = positions[:, None] * sequence_length + np.arange(sequence_length + 1)
        return self._tokens[split][places].astype(np.int64)

    def validation_positions(self, count: int, sequence_length: int) -> np.ndarray:
        """Fixed validation windows, evenly spread over the split; all of them if `count` is no less.

        Returns:
            Array (min(count, windows),) of int64, rising.

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


def _mapped(folder: Path, split: str, meta: StoreMeta) -> np.ndarray:
    dtype = np.dtype(meta.dtype).newbyteorder("<")
    if meta.tokens[split] == 0:
        return np.empty(0, dtype)
    return np.asarray(np.memmap(folder / f"{split}.bin", dtype=dtype, mode="r"))


def _check_size(folder: Path, split: str, meta: StoreMeta) -> None:
    path = folder / f"{split}.bin"
    expected = meta.tokens[split] * np.dtype(meta.dtype).itemsize
    found = path.stat().st_size if path.is_file() else None
    if found != expected:
        state = "is missing" if found is None else f"has {found} bytes"
        raise CorpusError(
            f"{path}: {state}, meta.json says {expected}; the store is damaged, prepare the corpora again"
        )
