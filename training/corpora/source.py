"""What a question says of a corpus: where its text comes from, which documents are kept, and how it is tokenised."""

import functools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

from training.corpora.documents import CorpusError
from training.keys import (
    Count,
    Natural,
    PositiveRatio,
    Ratio,
    RatioBelowOne,
    Seed,
    Tokens,
    between,
    key_problems,
    one_of,
    up_to,
)

KINDS = ("installed-python", "files", "hub", "generated")


class Sample(TypedDict):
    """A document that a model wrote: its tokens with the end, and the ratio of its sequences that occurred before."""

    text: str
    tokens: int
    repetition: float


# None of these is frozen: OmegaConf would make it read-only in a question.
@dataclass
class TokenizerChoice:
    """The tokenizer of a study: one that is trained on its corpora, unless `path` brings one."""

    vocabulary: Annotated[int, between(257, 1_000_000)] = 2048
    """Token ids of the byte-level BPE that is trained on the corpora, 257 or more."""
    path: str | None = None
    """Use this tokenizer instead: a Hugging Face directory, or a hub name like Qwen/Qwen2.5-0.5B."""
    revision: str | None = None
    """Branch, tag or commit of a hub name; manifest.json keeps the commit. null: the main branch."""
    separator: str | None = None
    """Token between documents, which precedes each; cptlaw model measures which. null: what the tokenizer's directory
    declares, else its end-of-sequence token."""


@dataclass
class ValidationChoice:
    """How validation documents are chosen by perplexity."""

    models: list[str] = field(default_factory=list)
    """Models that measure perplexity for prepare validation: Hugging Face directories, hub names, or study folders."""
    sample: Count = 5000
    """Documents that prepare validation draws from each corpus."""
    keep: Count = 1000
    """Documents that prepare validation keeps of them."""
    worst: RatioBelowOne = 0.1
    """Upper quantile of the perplexity; a document in it under every model counts as noise."""
    tokens: Annotated[int, between(2, 10_000_000)] = 1024
    """Tokens that prepare validation reads of each document."""


@dataclass
class Generation:
    """How a model writes text, and which of it is kept."""

    model: str | None = None
    """Hugging Face directory or hub name of the model that writes; null: model.path."""
    separator: str | None = None
    """Token from which each document is sampled; null: the token between documents, see corpora.tokenizer.separator."""
    tokens: Annotated[int, between(1, 10**12)] = 1_000_000
    """Tokens wanted, in documents that are kept, for training and validation together."""
    max_tokens: Tokens = 512
    """Length at which a document is cut, tokens."""
    temperature: Annotated[float, up_to(1000, "1 is the model's distribution")] = 1.0
    """Divides the logits, above 0; 1: the model's own distribution."""
    top_p: PositiveRatio | None = None
    """Sample among the likeliest tokens with this total probability, above 0, at most 1; null: among all."""
    seed: Seed = 0
    """Another seed, another text."""
    batch: Annotated[int, between(1, 100_000)] = 16
    """Documents sampled at once; another batch, another text."""
    max_repetition: Ratio = 0.3
    """Documents in which more than this ratio of the sequences of 8 tokens occurred before are dropped; 1: none."""


@dataclass
class Source:
    """Where the text of a corpus comes from, and which of its documents are kept."""

    kind: Annotated[str, one_of(*KINDS)] = "files"
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
    min_characters: Natural = 0
    """Length of the shortest document that is kept, Unicode characters."""
    max_characters: Count | None = None
    """Length of the longest document that is kept, Unicode characters; null: any."""
    generated: Generation = field(default_factory=Generation)
    """How the model writes generated text."""
    where: Any = None
    """Column -> list of allowed values, or a regular expression to find in it: {lang: [en], meta.url: "^http"}"""
    part: str = "prose"
    """Part of installed-python: prose, code, math, graphs, statistics, tables or arrays."""
    exclude: tuple[str, ...] = ()
    """Parts to leave out of installed-python prose (any but code)."""
    max_bytes: Annotated[int, between(1, 10**15)] | None = None
    """Upper limit of the text, bytes of UTF-8; documents are drawn by a hash of their name, those of the hub are the
    first ones. null: all."""
    validation: str | None = None
    """File or folder of validation text, found as path is; it, and near-duplicates of it, are kept out of training.
    null: a ratio of the documents, corpora.validation_ratio."""

    def __post_init__(self) -> None:
        # OmegaConf has lists.
        self.exclude = tuple(self.exclude)

    @property
    def label(self) -> str:
        """Path, name or kind, for messages."""
        return self.path or self.name or self.kind

    def problems(self, key: str) -> list[str]:
        """What is wrong with the settings, one line each, which starts with the key, such as corpora.law."""
        kind, longest = self.kind, self.max_characters
        checks = [
            (kind == "files" and not self.path, "path: missing; allowed: a file or a folder"),
            (
                kind == "installed-python" and self.label != kind,
                f"kind: {kind} does not read {self.label}; allowed: files for a path, hub for a name",
            ),
            (kind == "hub" and self.path, f"path: {self.path}; kind=hub reads name; of files give kind=files"),
            (kind == "hub" and not self.name, "name: missing; allowed: owner/name on the hub, or a local folder"),
            (kind in ("installed-python", "generated") and self.where, f"where: {self.where}; {kind} has no columns"),
            (
                kind == "generated" and self.max_bytes,
                f"max_bytes: {self.max_bytes}; allowed for generated text: null, give generated.tokens",
            ),
            (
                longest is not None and longest < self.min_characters,
                f"max_characters: {longest}; allowed: at least min_characters, or null for any",
            ),
        ]
        return [
            *key_problems(self, f"{key}.", without=() if kind == "generated" else ("generated",)),
            *(f"{key}.{line}" for wrong, line in checks if wrong),
            *(f"{key}.where{line}" for line in self._where_problems()),
        ]

    def _where_problems(self) -> Iterator[str]:
        if not isinstance(self.where or {}, Mapping):
            yield f": {self.where!r}; allowed: column -> list of values, or regular expression"
            return
        for column, rule in (self.where or {}).items():
            if isinstance(rule, str):
                try:
                    re.compile(rule)
                except re.error as error:
                    yield f".{column}: {rule!r} is not a regular expression ({error})"
            elif isinstance(rule, Mapping) or not _values(rule):
                yield f".{column}: {rule!r}; allowed: a list of values, or a regular expression"

    def text_alone(self, text: str) -> dict[str, str | None]:
        """The columns of a document that has a text and nothing else."""
        return {**({} if self.group is None else {self.group: None}), self.column: text}

    @property
    def filter_columns(self) -> list[str]:
        """The columns that `where` uses; for meta.language it is meta."""
        return [*dict.fromkeys(column.split(".")[0] for column in self.where or {})]

    def filter_description(self) -> list[Any]:
        """The filters as a list for the fingerprint; empty without filters."""
        rules = {name: rule if isinstance(rule, str) else _values(rule) for name, rule in (self.where or {}).items()}
        if (self.min_characters, self.max_characters, rules) == (0, None, {}):
            return []
        return [self.min_characters, self.max_characters, json.dumps(rules, sort_keys=True)]

    @functools.cached_property
    def _rules(self) -> list[tuple[str, re.Pattern[str] | tuple[Any, ...]]]:
        where = (self.where or {}).items()
        return [(column, re.compile(rule) if isinstance(rule, str) else _values(rule)) for column, rule in where]

    def failed_rule(self, text: str | None, row: Mapping[str, Any], location: str) -> str | None:
        """The first filter that a document fails, by its text and its columns in `filter_columns`; None: it passes.

        Without a text only its columns count.

        Raises:
            CorpusError: a regular expression for a column that holds no text; `location` names file and row.
        """
        if text is not None:
            if not text.strip():
                return "empty"
            if len(text) < self.min_characters:
                return "min_characters"
            if self.max_characters is not None and len(text) > self.max_characters:
                return "max_characters"
        for column, rule in self._rules:
            value = _value(row, column)
            if not isinstance(rule, re.Pattern):
                passed = value in rule
            elif value is None or isinstance(value, str):
                passed = value is not None and rule.search(value) is not None
            else:
                raise CorpusError(
                    f"{location}: column {column} is {type(value).__name__}; a regular expression needs a text, "
                    "give where a list of values"
                )
            if not passed:
                return f"where.{column}"
        return None


def _values(rule: Any) -> tuple[Any, ...]:
    return tuple(rule) if isinstance(rule, list | tuple) else () if rule is None else (rule,)


def _value(row: Mapping[str, Any], column: str) -> Any:
    """A column's value, a dot selects a field of it; None if it is missing, because JSON lines often omit a key."""
    if column in row:
        return row[column]
    value: Any = row
    for name in column.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
