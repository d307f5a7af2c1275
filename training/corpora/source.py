"""The source of a corpus: its settings, documents and fingerprint."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from training.corpora.documents import CorpusError, capped, json_hash
from training.corpora.filters import Chooser, Filters, Reading
from training.corpora.generated import GeneratedReading, sample_missing
from training.corpora.generation import Generation
from training.corpora.hub_text import HubReading, folder_fingerprint, pinned_revision
from training.corpora.installed_python import installed_documents, installed_fingerprint
from training.corpora.text_files import FileReading, Shard, file_bytes, file_fingerprint, shards_of

KINDS = ("installed-python", "files", "hub", "generated")


# Not frozen: OmegaConf would make it read-only in a question.
@dataclass
class Source:
    """Where the text of a corpus comes from, and which of its documents are kept."""

    kind: str = "files"
    """files, hub (a data set of the Hugging Face hub, streamed), installed-python (text that every machine has), or
    generated (text that the base model writes)."""
    path: str = ""
    """Of files: a file or folder of .jsonl(.gz|.zst), .parquet or .txt; relative to corpora.folder, if that is set; or
    the URL of one, like s3://bucket/texts, on any file system that fsspec knows (s3 needs the package s3fs, gs gcsfs).
    Of generated: the folder that keeps the samples, empty: data/generated."""
    name: str = ""
    """Of hub: owner/name, or a local folder of data files that `datasets` opens."""
    subset: str | None = None
    """Of hub: its configuration; null: the only one."""
    split: str = "train"
    """Of hub: which split of it."""
    revision: str | None = None
    """Of hub: commit, branch or tag; prepare writes the commit into the manifest. null: the newest."""
    column: str = "text"
    """Of files and hub: the column that holds the text."""
    group: str | None = None
    """Of files and hub: a column whose value keeps documents, like the chapters of a book, on one side of the split."""
    min_characters: int = 0
    """Length of the shortest document that is kept, Unicode characters."""
    max_characters: int | None = None
    """Length of the longest document that is kept, Unicode characters; null: any."""
    generated: Generation = field(default_factory=Generation)
    """Of generated: how the model writes text."""
    where: Any = None
    """Column -> list of allowed values, or a regular expression to find in it: {lang: [en], meta.url: "^http"}"""
    part: str = "prose"
    """Of installed-python: prose, code, math, graphs, statistics, tables or arrays."""
    exclude: tuple[str, ...] = ()
    """Of installed-python prose: parts to leave out (any but code)."""
    max_bytes: int | None = None
    """Upper limit of the text, bytes of UTF-8; documents are drawn by a hash of their name, of hub the first ones are
    taken. null: all."""
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
    def samples_folder(self) -> Path:
        """Of generated: the folder of these samples, below `path`. Errors as `fingerprint`."""
        return Path(self.path) / f"{Path(self.generated.model or '').name}-{self.generated.sampling_fingerprint()[:12]}"

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

    def pinned(self) -> Source:
        """The same source with the current commit of its revision.

        Raises:
            CorpusError: the hub cannot be reached, or does not have it.
        """
        if self.kind != "hub":
            return self
        return dataclasses.replace(self, revision=pinned_revision(self.name, self.revision))

    def fingerprint(self) -> str:
        """Hash of all that decides the documents; 32 hexadecimal digits.

        It covers the bytes of files, the commit of a hub data set, the versions of installed packages, and the model
        and keys of generated text.

        Raises:
            CorpusError: the source cannot be read, or is of the hub and not pinned.
        """
        rules = self.filters.description()
        if self.kind == "installed-python":
            plain = installed_fingerprint(self.part, self.exclude, self.max_bytes)
            return json_hash([plain, rules]) if rules else plain
        if self.kind == "generated":
            return json_hash([self.generated.fingerprint(), rules])
        if self.kind == "files":
            parts = [file_fingerprint(self.path, self.column, self.group), self.max_bytes]
            return json_hash([*parts, rules] if rules else parts)
        local = Path(self.name).is_dir()
        if not local and self.revision is None:
            raise CorpusError(f"{self.name}: not pinned to a revision")
        content = folder_fingerprint(self.name) if local else [self.name, self.revision]
        return json_hash([content, self.subset, self.split, self.column, self.group, self.max_bytes, rules])


class ListReading(Reading):
    """Reads documents that are all in memory; its position is their number so far."""

    def __init__(self, documents: Sequence[tuple[str, str]], chooser: Chooser, position: int | None) -> None:
        super().__init__(chooser)
        self._documents, self.position = documents, position or 0

    def progress(self) -> float:
        return self.position / max(len(self._documents), 1)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for document in itertools.islice(self._documents, self.position, None):
            self.position += 1
            yield document


class SourceReader:
    """Reads the documents of sources; installed Python is parsed once, others are read each time.

    Text that a model writes is sampled at the first reading; `log` and `bar` are called meanwhile, as in `make_store`.
    """

    def __init__(
        self,
        sources: Mapping[str, Source],
        log: Callable[[str], object] = print,
        bar: Callable[[str, int, float | None], object] | None = None,
    ) -> None:
        self._sources, self._log, self._bar = sources, log, bar
        self._installed: dict[str, list[tuple[str, str]]] = {}

    def documents(self, corpus: str) -> Iterable[tuple[str, str]]:
        """(document id, text) pairs, each id once, in an order that never changes.

        Raises:
            CorpusError: the source cannot be read; possibly only after some documents.
        """
        source = self._sources[corpus]
        if source.kind == "installed-python" and source.filters == Filters():
            return self._parsed(corpus, source)
        return self.reading(corpus)

    def shards(self, corpus: str) -> list[Shard | None]:
        """The documents in shards, which follow from the source alone; None: all, errors as `documents`.

        Of a source that is a stream or has an upper limit of all its documents there is one.
        """
        source = self._sources[corpus]
        shards = shards_of(source.path) if source.kind == "files" and source.max_bytes is None else []
        return list(shards) if len(shards) > 1 else [None]

    def reading(self, corpus: str, place: Any = None, shard: Shard | None = None) -> Reading:
        """The documents of a shard, or all, with progress; errors as `documents`.

        Args:
            corpus, shard: which documents.
            place: a `Reading.place` after which they are read; None: from the first one.
        """
        source = self._sources[corpus]
        position, dropped = place or (None, None)
        if source.kind == "hub":
            where = (source.name, source.subset, source.split, source.revision, source.column, source.group)
            return HubReading(*where, Chooser(source.filters, dropped), position, source.max_bytes)
        if source.kind == "generated":
            folder = source.samples_folder
            sample_missing(corpus, folder, source.generated, source.filters, self._log, self._bar)
            return GeneratedReading(folder, source.generated, Chooser(source.filters, dropped), position)
        if source.kind == "files" and source.max_bytes is None:
            chooser = Chooser(source.filters, dropped)
            return FileReading(source.path, source.column, source.group, chooser, position, shard)
        # These are read from the first document, and count dropped documents again.
        chooser = Chooser(source.filters)
        if source.kind == "installed-python":
            documents = [one for one in self._parsed(corpus, source) if chooser.takes(one[1], {}, one[0])]
        else:
            assert source.max_bytes is not None
            documents = capped(FileReading(source.path, source.column, source.group, chooser), source.max_bytes)
        return ListReading(documents, chooser, position)

    def bytes(self, corpus: str) -> int:
        """Bytes on disk of the corpus; 0 if it is not in local files."""
        source = self._sources[corpus]
        return file_bytes(source.path) if source.kind == "files" else 0

    def sample(self, corpus: str, max_bytes: int) -> list[tuple[str, str]]:
        """Documents that hold `max_bytes`: sampled by hash, or the first ones of a stream; errors as `documents`."""
        source = self._sources[corpus]
        if source.kind == "hub":
            first = dataclasses.replace(source, max_bytes=min(max_bytes, source.max_bytes or max_bytes))
            return list(SourceReader({corpus: first}).documents(corpus))
        return capped(self.documents(corpus), max_bytes)

    def _parsed(self, corpus: str, source: Source) -> list[tuple[str, str]]:
        if corpus not in self._installed:
            documents = installed_documents(source.part, source.exclude, source.max_bytes)
            self._installed[corpus] = list(documents)
        return self._installed[corpus]
