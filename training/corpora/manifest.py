"""The manifest of a folder of prepared corpora."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from training.corpora.documents import CorpusError
from training.corpora.store import SCHEMA, PerSplit, TokenStore
from training.durable import FileError, read_file, read_record, write_whole

_REPEATED = 0.01
"""Part of the validation tokens from which on their repetition in training is said; a choice."""


@dataclass(frozen=True)
class PreparedCorpus:
    """A corpus in the manifest."""

    folder: str
    """Name of its token store's folder, below the manifest's."""
    fingerprint: str
    """Fingerprint of the token store: its tokens, the tokenizer and the split."""
    source: str
    """Fingerprint of its source."""
    tokens: PerSplit
    """Split -> tokens."""
    documents: PerSplit
    """Split -> documents."""
    bytes: PerSplit
    """Split -> bytes of text, UTF-8."""
    revision: str | None = None
    """Commit of a hub data set that was read."""
    dropped: dict[str, int] = field(default_factory=dict)
    """Reason -> documents dropped: a filter's name, or validation.same and validation.near for the screen."""
    state: str | None = None
    """State of its text and of its validation set, see `prepare.text_state`."""
    validation: str | None = None
    """Fingerprint of its validation set."""
    repeated: int = 0
    """Validation tokens in documents that the training text of a corpus here has too, word for word."""

    @property
    def repetition(self) -> str:
        """That validation text is repeated in training, a line without the corpus' name; empty: too little of it."""
        ratio = self.repeated / max(self.tokens["validation"], 1)
        if ratio < _REPEATED:
            return ""
        return (
            f"{ratio:.0%} of its validation text are documents that training text has word for word, so its loss is "
            "lower than on new text; remove repeated documents, or give it a validation set"
        )


@dataclass(frozen=True)
class Manifest:
    """Content of manifest.json, which is written last."""

    folder: Path
    """The folder; not stored, so that it can be moved."""
    tokenizer_folder: str
    """Name of the tokenizer's Hugging Face directory, below this folder."""
    tokenizer: str
    """Fingerprint of the tokenizer."""
    vocabulary: int
    """Number of token ids."""
    validation_ratio: float
    """Ratio of the documents in validation."""
    corpora: dict[str, PreparedCorpus]
    """Name -> corpus, in the order of names."""
    tokenizer_revision: str | None = None
    """Commit of a hub tokenizer."""

    @classmethod
    def open(cls, folder: Path) -> Manifest:
        """Read the manifest of a folder. Raises CorpusError: missing, damaged, or of another schema version."""
        path = folder / "manifest.json"
        try:
            return read_record(path, cls, SCHEMA, folder=str(folder))
        except FileNotFoundError as error:
            raise CorpusError(f"{path}: missing; prepare the corpora first") from error
        except FileError as error:
            raise CorpusError(f"{error}; prepare the corpora again") from error

    @property
    def tokenizer_path(self) -> Path:
        """The tokenizer's Hugging Face directory."""
        return self.folder / self.tokenizer_folder

    def tokenizer_files(self) -> dict[str, bytes]:
        """Name -> content of the files of the tokenizer. Raises CorpusError: one is missing or cannot be read."""
        try:
            files = {*self.tokenizer_path.iterdir(), self.tokenizer_path / "tokenizer.json"}
            return {path.name: read_file(path) for path in files}
        except FileError as error:
            raise CorpusError(f"{error}; prepare the corpora again") from error
        except OSError as error:
            raise CorpusError(f"{error.filename}: {error.strerror}; prepare the corpora again") from error

    def store(self, corpus: str) -> TokenStore:
        """Open a corpus' token store. Raises CorpusError: no such corpus, or its store is missing or damaged."""
        if corpus not in self.corpora:
            raise CorpusError(f"corpora: no {corpus!r} in {self.folder}; allowed: {', '.join(self.corpora)}")
        return TokenStore.open(self.folder / self.corpora[corpus].folder)

    def write(self) -> None:
        """Write manifest.json into the folder."""
        fields = asdict(self)
        del fields["folder"]
        write_whole(self.folder / "manifest.json", json.dumps({"schema": SCHEMA, **fields}, indent=2) + "\n")
