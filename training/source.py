"""Where a corpus comes from, its documents, and a fingerprint of them that is cheaper than reading them."""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from training.corpus_error import CorpusError
from training.document_hash import document_hash
from training.installed_python import installed_documents, installed_fingerprint
from training.text_files import file_documents, file_fingerprint

KINDS = ("installed-python", "files")


@dataclass(frozen=True)
class Source:
    """Where a corpus comes from."""

    kind: str
    """installed-python: what every machine has, see `part`; files: local text, see `path`."""
    part: str = "prose"
    """Of installed-python: prose, code, math, graphs or statistics."""
    exclude: tuple[str, ...] = ()
    """Of installed-python prose: parts to leave out, because they are corpora of their own."""
    path: str = ""
    """Of files: a file or folder of .jsonl, .jsonl.gz, .jsonl.zst, .parquet or .txt."""
    column: str = "text"
    """Of files: column that holds the text."""
    group: str | None = None
    """Of files: column whose value keeps documents (chapters of one book) on one side of the split."""
    max_bytes: int | None = None
    """Take documents, chosen by a hash of their ids, until they hold this many bytes of UTF-8; None: all."""

    def check(self, key: str) -> None:
        """Refuse an impossible setting.

        Raises:
            CorpusError: one line that begins with the key, such as corpora.law, and the setting's name.
        """
        if self.kind not in KINDS:
            raise CorpusError(f"{key}.kind: {self.kind!r}; allowed: {', '.join(KINDS)}")
        if self.kind == "files" and not self.path:
            raise CorpusError(f"{key}.path: missing; allowed: a file or a folder")
        if self.max_bytes is not None and self.max_bytes < 1:
            raise CorpusError(f"{key}.max_bytes: {self.max_bytes}; allowed: 1 or more, or null for all")

    def fingerprint(self) -> str:
        """Hash of all that decides the documents; 32 hexadecimal digits.

        Of files all bytes are read, of the installed Python only versions.

        Raises:
            CorpusError: the source cannot be read.
        """
        if self.kind == "installed-python":
            return installed_fingerprint(self.part, self.exclude, self.max_bytes)
        parts = [file_fingerprint(self.path, self.column, self.group), self.max_bytes]
        return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()


class SourceReader:
    """The documents of some sources; the installed Python is parsed once, files are read each time."""

    def __init__(self, sources: Mapping[str, Source]) -> None:
        self._sources = sources
        self._installed: dict[str, list[tuple[str, str]]] = {}

    def documents(self, corpus: str) -> Iterable[tuple[str, str]]:
        """(document id, text) pairs, each id once, in an order that never changes.

        Raises:
            CorpusError: the source cannot be read; possibly only after some documents.
        """
        source = self._sources[corpus]
        if source.kind == "installed-python":
            if corpus not in self._installed:
                documents = installed_documents(source.part, source.exclude, source.max_bytes)
                self._installed[corpus] = list(documents)
            return self._installed[corpus]
        documents = file_documents(source.path, source.column, source.group)
        return documents if source.max_bytes is None else capped(documents, source.max_bytes)


def capped(documents: Iterable[tuple[str, str]], max_bytes: int) -> list[tuple[str, str]]:
    """The documents whose lots are lowest, until they hold `max_bytes` of UTF-8; in the order given.

    The choice does not depend on the order, and a larger cap adds to a smaller one. Memory stays near it.

    >>> [name for name, _ in capped([("a", "one"), ("b", "two"), ("c", "six")], max_bytes=4)]
    ['b', 'c']
    """
    kept: list[tuple[int, int, int, tuple[str, str]]] = []  # a heap, the highest lot first
    total = 0
    for place, document in enumerate(documents):
        size = len(document[1].encode())
        heapq.heappush(kept, (-document_hash(document[0], "cap"), place, size, document))
        total += size
        while total - kept[0][2] >= max_bytes:
            total -= heapq.heappop(kept)[2]
    return [document for _, _, _, document in sorted(kept, key=lambda entry: entry[1])]
