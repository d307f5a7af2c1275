"""The source of a corpus: where its text comes from, and which of its documents are kept."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from training.corpora.documents import CorpusError
from training.corpora.filters import Filters

KINDS = ("installed-python", "files", "hub", "generated")


# Neither is frozen: OmegaConf would make them read-only in a question.
@dataclass
class Generation:
    """How a model writes text, and which of it is kept."""

    model: str | None = None
    """Hugging Face directory or hub name of the model that writes; null: model.path."""
    separator: str | None = None
    """Token from which each document is sampled; null: the token between documents, see corpora.tokenizer.separator."""
    tokens: int = 1_000_000
    """Tokens wanted, in documents that are kept, for training and validation together."""
    max_tokens: int = 512
    """Length at which a document is cut, tokens."""
    temperature: float = 1.0
    """Divides the logits, above 0; 1: the model's own distribution."""
    top_p: float | None = None
    """Sample among the likeliest tokens with this total probability, above 0, at most 1; null: among all."""
    seed: int = 0
    """Another seed, another text."""
    batch: int = 16
    """Documents sampled at once; another batch, another text."""
    max_repetition: float = 0.3
    """Documents in which more than this ratio of the sequences of 8 tokens occurred before are dropped; 1: none."""

    def problems(self, key: str) -> list[str]:
        """Problems with the settings, one line each, which starts with the key."""
        problems = [
            f"{key}.{name}: {getattr(self, name)}; allowed: {least} or more"
            for name, least in (("tokens", 1), ("max_tokens", 1), ("batch", 1), ("seed", 0))
            if getattr(self, name) < least
        ]
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            problems.append(f"{key}.temperature: {self.temperature}; allowed: above 0, 1 is the model's distribution")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            problems.append(f"{key}.top_p: {self.top_p}; allowed: above 0, at most 1, or null for all tokens")
        if not 0 <= self.max_repetition <= 1:
            problems.append(f"{key}.max_repetition: {self.max_repetition}; allowed: 0 to 1, 1 drops none")
        return problems


@dataclass
class Source:
    """Where the text of a corpus comes from, and which of its documents are kept."""

    kind: str = "files"
    """files, hub (a data set of the Hugging Face hub, streamed), installed-python (text that every machine has), or
    generated (text that the base model writes)."""
    path: str = ""
    """File or folder of .jsonl(.gz|.zst), .parquet or .txt; relative to corpora.folder, if that is set; or the URL of
    one, like s3://bucket/texts, on any file system that fsspec knows (s3 needs the package s3fs, gs gcsfs). Generated
    text is kept in this folder; empty: data/generated."""
    name: str = ""
    """Data set of the hub, owner/name, or a local folder of data files that `datasets` opens."""
    subset: str | None = None
    """Configuration of a data set of the hub; null: the only one."""
    split: str = "train"
    """Split of a data set of the hub."""
    revision: str | None = None
    """Commit, branch or tag of a data set of the hub; prepare writes the commit into the manifest. null: the newest."""
    column: str = "text"
    """Column that holds the text, in files and data sets of the hub."""
    group: str | None = None
    """Column whose value keeps documents, like the chapters of a book, on one side of the split."""
    min_characters: int = 0
    """Length of the shortest document that is kept, Unicode characters."""
    max_characters: int | None = None
    """Length of the longest document that is kept, Unicode characters; null: any."""
    generated: Generation = field(default_factory=Generation)
    """How the model writes generated text."""
    where: Any = None
    """Column -> list of allowed values, or a regular expression to find in it: {lang: [en], meta.url: "^http"}"""
    part: str = "prose"
    """Part of installed-python: prose, code, math, graphs, statistics, tables or arrays."""
    exclude: tuple[str, ...] = ()
    """Parts to leave out of installed-python prose (any but code)."""
    max_bytes: int | None = None
    """Upper limit of the text, bytes of UTF-8; documents are drawn by a hash of their name, those of the hub are the
    first ones. null: all."""
    validation: str | None = None
    """File or folder of validation text, found as path is; it, and near-duplicates of it, are kept out of training.
    null: a ratio of the documents, corpora.validation_ratio."""

    def __post_init__(self) -> None:
        # OmegaConf has lists.
        self.exclude = tuple(self.exclude)

    @property
    def filters(self) -> Filters:
        """Which documents are kept."""
        return Filters(self.min_characters, self.max_characters, self.where or {})

    @property
    def label(self) -> str:
        """Path, name or kind, for messages."""
        return self.path or self.name or self.kind

    def check(self, key: str) -> None:
        """Check the settings.

        Raises:
            CorpusError: one line per mistake, which starts with the key, such as corpora.law, and the setting's name.
        """
        problems = []
        if self.kind not in KINDS:
            problems.append(f"{key}.kind: {self.kind!r}; allowed: {', '.join(KINDS)}")
        if self.kind == "files" and not self.path:
            problems.append(f"{key}.path: missing; allowed: a file or a folder")
        if self.kind == "hub" and not self.name:
            problems.append(f"{key}.name: missing; allowed: owner/name on the hub, or a local folder")
        if self.kind in ("installed-python", "generated") and self.filters.where:
            problems.append(f"{key}.where: {dict(self.filters.where)}; {self.kind} has no columns")
        if self.kind == "generated":
            problems += self.generated.problems(f"{key}.generated")
            if self.max_bytes is not None:
                problems.append(
                    f"{key}.max_bytes: {self.max_bytes}; allowed for generated text: null, give generated.tokens"
                )
        if self.max_bytes is not None and self.max_bytes < 1:
            problems.append(f"{key}.max_bytes: {self.max_bytes}; allowed: 1 or more, or null for all")
        problems += self.filters.problems(key)
        if problems:
            raise CorpusError("\n".join(problems))
