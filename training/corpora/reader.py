"""One interface for every kind of source: its documents, the shards that they are in, and its fingerprint."""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from training.corpora.documents import DOCUMENT_BYTES, MOST_BRACKETS, CorpusError, capped
from training.corpora.source import Source

Log = Callable[[str], object]
_TOO_LONG = (
    f"longer than a document may be, {DOCUMENT_BYTES / 1e6:.0f} MB, or {MOST_BRACKETS / 1e6:.0f} million brackets of "
    "JSON; split it, or give max_characters, and it is left out"
)
Bar = Callable[[str, int, float | None], object]
"""Called with a name, of a corpus or "tokenizer", the bytes of text read, and the fraction read, 0 to 1, or None."""
_QUICK_SECONDS = 2.0
_FAR_LONGER = 4
"""A choice: times as long as any other column of a row, from which a column is taken for the text."""


@contextlib.contextmanager
def announced(name: str, work: str, log: Log, bar: Bar | None) -> Iterator[None]:
    """Name work while it is done: on a bar at once, in a log where it takes longer than two seconds."""
    timer = threading.Timer(_QUICK_SECONDS, log, [f"{name}: {work}"])
    if bar:
        bar(name, 0, None)
    else:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Row(NamedTuple):
    """A document as its source has it, before the filters."""

    name: str
    """Document id, without its group."""
    values: Mapping[str, Any] | None
    """Column -> value; None: it was not read, because it is longer than DOCUMENT_BYTES."""
    location: str
    """File and row, for messages."""
    fraction: float | None
    """Fraction of the shard that has been read, 0 to 1; None: unknown."""
    state: Callable[[], Any] = lambda: None
    """From what it returns, JSON, the reader continues after this row; to be called before the next one is read."""


class Shard(NamedTuple):
    """Consecutive documents of a source: those of whole files, or consecutive rows of one file; no file: all."""

    files: list[tuple[str, int]]
    """Name below the path and bytes on disk of each file."""
    size: int
    """Bytes on disk of the shard; of what is no file, relative to nothing else, 1."""
    before: int = 0
    """Rows of the file before the shard."""
    offset: int = 0
    """Bytes of the file before the shard."""
    end: int | None = None
    """Last row of the shard; None: the file's last."""
    held_out: bool = False
    """Whether it is the validation set of the source, all of it."""


class Reader(ABC):
    """Reads the documents of a source; `log` and `bar` are called while its store or its text is made."""

    def __init__(self, name: str, source: Source, log: Log = print, bar: Bar | None = None) -> None:
        self.name, self.source, self.log, self.bar = name, source, log, bar

    @property
    def limit(self) -> int | None:
        """Upper limit of the documents, in units of `size`; None: all are read."""
        return None

    def pinned(self) -> Source:
        """The source with the current commit of its revision, if it has revisions.

        Raises:
            CorpusError: the hub cannot be reached, or does not have it.
        """
        return self.source

    @abstractmethod
    def fingerprint(self) -> str:
        """Hash of all that decides the documents; 32 hexadecimal digits.

        Raises:
            CorpusError: the source cannot be read, or is of the hub and not pinned.
        """

    def bytes(self) -> int:
        """Bytes on disk that the fingerprint reads."""
        return 0

    def state(self) -> str | None:
        """What differs if the fingerprint may differ, found without reading text; None: unknown. Errors as it."""
        return None

    def passed_over(self) -> str:
        """What else is beside the text that is read, as text; empty: nothing. Errors as `fingerprint`."""
        return ""

    def shards(self) -> list[Shard]:
        """The documents in shards, which follow from the source alone. Errors as `fingerprint`."""
        return [Shard([], 1)]

    @abstractmethod
    def rows(self, shard: Shard | None, after: int, state: Any) -> Iterator[Row]:
        """The rows of a shard, or all, without the first `after`, of which the last had this state.

        Raises:
            CorpusError: the source cannot be read; possibly only after some rows.
        """

    def failed_rule(self, text: str | None, values: Mapping[str, Any], location: str) -> str | None:
        """The first rule that a document of this text and these columns fails; None: it is kept.

        Without a text only its columns count. Raises CorpusError: a rule does not fit a column.
        """
        return self.source.failed_rule(text, values, location)

    def size(self, text: str, values: Mapping[str, Any]) -> int:
        """How much of the limit a document uses."""
        return len(text.encode())

    def documents(self, shard: Shard | None = None, position: Any = None) -> Documents:
        """The documents of a shard, or all, in an order that never changes, after a `Documents.position`."""
        return Documents(self, shard, position)

    def sample(self, max_bytes: int) -> list[tuple[str, str]]:
        """Documents that hold `max_bytes` of UTF-8, drawn by a hash of their ids. Errors as `rows`."""
        return capped(self.documents(), max_bytes)


class Documents:
    """(document id, text) pairs that pass the filters, each id once; to be iterated once. Errors as `Reader.rows`."""

    def __init__(self, reader: Reader, shard: Shard | None = None, position: Any = None) -> None:
        self._reader, self._shard = reader, shard
        self.read, self.size, dropped, self._state = position or (0, 0, {}, None)
        self.dropped = Counter[str](dropped)
        """Rule -> documents that it dropped; a document counts for the first rule that it fails."""
        self._fraction: float | None = 0.0

    def position(self) -> list[Any]:
        """After the last document: rows read, size and number of the documents until there, state; JSON."""
        return [self.read, self.size, dict(self.dropped), self._state() if callable(self._state) else self._state]

    def progress(self) -> float | None:
        """Fraction that has been read, 0 to 1; None: unknown."""
        limit = self._reader.limit
        return self._fraction if limit is None else min(self.size / limit, 1.0)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        reader, limit = self._reader, self._reader.limit
        kept = self.read > 0
        if limit is not None and self.size >= limit:
            return
        for row in reader.rows(self._shard, self.read, self._state):
            self.read += 1
            self._fraction, self._state = row.fraction, row.state
            text, problem = _usable_text(row, reader.source, reader.name)
            values = row.values or {}
            if problem == _TOO_LONG:
                rule = None if reader.source.max_characters is None else "max_characters"
            else:
                rule = reader.failed_rule(text, values, row.location)
            if rule is not None:
                self.dropped[rule] += 1
                continue
            if text is None:
                raise CorpusError(f"{row.location}: {problem}")
            kept = True
            self.size += reader.size(text, values)
            key = None if reader.source.group is None else values.get(reader.source.group)
            # A '#' inside the key would end the group there.
            yield row.name if key is None else f"{str(key).replace('#', '%23')}#{row.name}", text
            if limit is not None and self.size >= limit:
                return
        if not kept and self._shard is None:
            raise nothing_kept(reader.source, self.dropped)


def nothing_kept(source: Source, dropped: Mapping[str, int]) -> CorpusError:
    """The error of a source without a document that is kept, with the documents that each rule dropped."""
    rules = ", ".join(f"{rule} dropped {count:,}" for rule, count in dropped.items() if rule != "empty")
    nothing = "no text in it; allowed: at least one document that is not empty"
    return CorpusError(f"{source.label}: {f'no document passes the filters ({rules})' if rules else nothing}")


def _usable_text(row: Row, source: Source, corpus: str) -> tuple[str | None, str]:
    """The text of a row, or None and why it cannot be used, which is an error unless a filter drops the row."""
    values, column = row.values, source.column
    if values is None:
        return None, _TOO_LONG
    needed = [column] if source.group is None else [column, source.group]
    if any(name not in values for name in needed):
        # The longest first, which is most likely the text.
        length = {name: len(value) if isinstance(value := values[name], str) else 0 for name in values}
        named = sorted(values, key=lambda name: -length[name])
        first, second = ([length[name] for name in named] + [0, 0])[:2]
        return None, missing_column(needed, named, corpus, is_clear=first > _FAR_LONGER * second)
    if not isinstance(text := values[column], str):
        return None, f"column {column} is {type(text).__name__}; allowed: a text"
    try:
        return (text, "") if len(text.encode()) <= DOCUMENT_BYTES else (None, _TOO_LONG)
    except UnicodeEncodeError:
        return None, f"half of a surrogate pair in column {column}"


def missing_column(needed: Sequence[str], columns: Sequence[str], corpus: str, is_clear: bool = False) -> str:
    """The first column that a row or table of a corpus lacks, in a line with those that it has; empty: none.

    The first of the needed ones has the text; the others are read for group and where. `is_clear`: the first of the
    columns is the text, and not only likely to be.
    """
    key = f"corpora.sources.{corpus}"
    for number, name in enumerate(needed):
        if name not in columns:
            there = ", ".join(map(str, columns)) or "none"
            of_text = f"{key}.column={next(iter(columns), '...')}"
            of_text = f"give {of_text}" if is_clear else f"give the one with the text, like {of_text}"
            remedy = f"give another in {key}.group or {key}.where" if number else of_text
            return f"no column {name!r}; its columns: {there}; {remedy}"
    return ""


def check_columns(
    label: str, needed: Sequence[str], columns: Sequence[str], corpus: str, is_clear: bool = False
) -> None:
    """Raise CorpusError if a row or table lacks a column, with the line of `missing_column`."""
    if line := missing_column(needed, columns, corpus, is_clear):
        raise CorpusError(f"{label}: {line}")
