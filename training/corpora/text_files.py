"""Corpora from files, local or by URL: documents of JSON lines, parquet and plain text, resumable at any row."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from training.corpora.documents import CorpusError
from training.corpora.file_rows import (
    OpenFile,
    first_line,
    is_url,
    json_rows,
    parquet_rows,
    refuse_unreadable,
    row_group_ends,
    text_lines,
)
from training.corpora.filters import Chooser, Reading

ENDINGS = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet", ".txt")
SHARD_BYTES = (4_000_000, 1_000_000_000)
"""Smallest and largest aim for the bytes on disk of a shard."""
SHARDS = 1000
"""Number of shards of a corpus between the two."""
_READ_BYTES = 1 << 22
_VERSION = ("size", "ETag", "Content-MD5", "Digest", "Last-Modified")
"""What file systems say of a file that changes with its content."""


class Shard(NamedTuple):
    """A part of the documents below a path, in their order: whole files, or consecutive rows of one file."""

    files: list[tuple[str, int]]
    """Name below the path and bytes on disk of each file."""
    size: int
    """Bytes on disk of the part."""
    before: int = 0
    """Rows of the file before the part."""
    offset: int = 0
    """Bytes of the file before the part."""
    end: int | None = None
    """Last row of the part; None: the file's last."""


class FileReading(Reading):
    """The documents of a file, or of all files with a known ending below a folder, sorted by name.

    A row of .jsonl or .parquet is a document. A .txt file in a folder is a document; of a .txt file given by itself
    each paragraph is one. Empty texts are skipped. The id of a document is file:row (rows from 1), after the group and
    a '#' if there is a group.

    Args:
        path, column, group: as the fields of `Source`.
        chooser: which documents are kept.
        position: continue after this [file, row]; None: at the first document.
        shard: read this part only, and none in it is no error; None: read all.

    Raises:
        CorpusError: a missing or empty path, an unknown ending, no such column, a value that is not
            text, a line that is not JSON or not UTF-8; one line that names file and place.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        column: str = "text",
        group: str | None = None,
        chooser: Chooser | None = None,
        position: list[Any] | None = None,
        shard: Shard | None = None,
    ) -> None:
        super().__init__(chooser)
        self._path, self._column, self._group, self._shard = location(path), column, group, shard
        self.position = self._start = position
        self._open: OpenFile | None = None
        self._passed = self._total = 0
        self._folder = False

    def progress(self) -> float:
        """Fraction of the files' bytes that has been read, 0 to 1."""
        here = self._open.progress() * self._open.size - self._open.offset if self._open else 0
        return min(max(self._passed + here, 0) / self._total, 1.0) if self._total else 0.0

    def __iter__(self) -> Iterator[tuple[str, str]]:
        shard = self._shard or whole(self._path)
        with refuse_unreadable(self._path):
            self._folder = self._path.is_dir()
        self._total = shard.size
        found = self._start is not None
        for name, size in shard.files:
            # Earlier files are not opened.
            if self._start is None or name >= self._start[0]:
                after = self._start[1] if self._start and name == self._start[0] else 0
                file = self._path / name if self._folder else self._path
                self._open = OpenFile(file, size, before=shard.before, offset=shard.offset, end=shard.end)
                for number, document, text in self._documents(name, self._open, after):
                    self.position = [name, number]
                    found = True
                    yield document, text
            self._open = None
            self._passed += size
        if not found and self._shard is None:
            raise nothing_found(self._path, self.chooser.dropped)

    def _documents(self, name: str, file: OpenFile, after: int) -> Iterator[tuple[int, str, str]]:
        column, group, chooser = self._column, self._group, self.chooser
        if file.path.name.endswith(".txt"):
            for number, text in _paragraphs(file, whole=self._folder):
                if number > after and chooser.takes(text, {column: text}, f"{file.path} line {number}"):
                    yield number, name if self._folder else f"{name}:{number}", text
            return
        rows = parquet_rows if file.path.name.endswith(".parquet") else json_rows
        needed = (column,) if group is None else (column, group)
        for number, row in rows(file, needed, chooser.columns, after):
            document, text = row_document(row, column, group, f"{name}:{number}", f"{file.path} row {number}")
            if chooser.takes(text, row, f"{file.path} row {number}"):
                yield number, document, text


def row_document(row: dict[str, Any], column: str, group: str | None, name: str, place: str) -> tuple[str, str]:
    """(document id, text) of a row.

    Raises:
        CorpusError: the value is not text, or cannot be encoded as UTF-8.
    """
    text = row[column]
    if not isinstance(text, str):
        raise CorpusError(f"{place}: column {column} is {type(text).__name__}; allowed: a text")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise CorpusError(f"{place}: half of a surrogate pair in column {column}") from error
    key = None if group is None else row[group]
    # A '#' inside the key would end the group there.
    return (name if key is None else str(key).replace("#", "%23") + "#" + name), text


def nothing_found(path: str | os.PathLike[str], dropped: Mapping[str, int]) -> CorpusError:
    """The error of files without a document that is kept, with the documents that each rule dropped."""
    rules = ", ".join(f"{rule} dropped {count:,}" for rule, count in dropped.items() if rule != "empty")
    return CorpusError(
        f"{path}: no document passes the filters ({rules})"
        if rules
        else f"{path}: no text in it; allowed: at least one document that is not empty"
    )


def whole(path: str | os.PathLike[str]) -> Shard:
    """All documents below a path, as one shard. Errors as `file_bytes`."""
    with refuse_unreadable(path):
        files = [(name, file.stat().st_size) for name, file in _files(location(path))]
    return Shard(files, sum(size for _, size in files))


def shards_of(path: str | os.PathLike[str]) -> list[Shard]:
    """The documents below a path in shards, which follow from the files alone.

    A large .jsonl is cut at line ends, which reads it once to number the rows, a large .parquet between row groups;
    small files come together.

    Raises:
        CorpusError: a missing path, an unknown ending, a file that cannot be read.
    """
    place, (files, total, *_) = location(path), whole(path)
    aim = min(max(total // SHARDS, SHARD_BYTES[0]), SHARD_BYTES[1])
    with refuse_unreadable(path):
        folder = place.is_dir()
    shards: list[Shard] = []
    together = Shard([], 0)
    for name, size in files:
        parts = _parts(place / name if folder else place, name, size, aim) if size >= 2 * aim else []
        if not parts:
            together = Shard([*together.files, (name, size)], together.size + size)
        if together.files and (parts or together.size >= aim):
            shards.append(together)
            together = Shard([], 0)
        shards += parts
    return [*shards, together] if together.files else shards


def _parts(file: Path, name: str, size: int, aim: int) -> list[Shard]:
    """The parts of a large file, near `aim` bytes each; empty: it cannot be cut."""
    cut = _row_group_cuts if name.endswith(".parquet") else _line_cuts if name.endswith(".jsonl") else None
    if cut is None:
        return []
    with refuse_unreadable(file):
        cuts = [(0, 0), *cut(file, size, aim)]
    ends = [*cuts[1:], (None, size)]
    pairs = zip(cuts, ends, strict=True)
    return [Shard([(name, size)], last - offset, rows, offset, end) for (rows, offset), (end, last) in pairs]


def _line_cuts(file: Path, size: int, aim: int) -> Iterator[tuple[int, int]]:
    """(lines, bytes) before each part but the first."""
    lines = offset = 0
    with file.open("rb") as stream:
        while True:
            wanted = offset + aim
            while offset < wanted and (block := stream.read(min(_READ_BYTES, wanted - offset))):
                lines += block.count(b"\n")
                offset += len(block)
            # To the end of the line, or of the next one.
            lines, offset = lines + 1, offset + len(stream.readline())
            if offset >= size:
                return
            yield lines, offset


def _row_group_cuts(file: Path, size: int, aim: int) -> Iterator[tuple[int, int]]:
    """(rows, bytes) before each part but the first; the bytes are those of the columns."""
    from pyarrow import parquet

    with file.open("rb") as stream, parquet.ParquetFile(stream) as table:
        passed = offset = 0
        for index, end in enumerate(row_group_ends(table)[:-1]):
            group = table.metadata.row_group(index)
            passed += sum(group.column(column).total_compressed_size for column in range(group.num_columns))
            if passed - offset >= aim:
                offset = passed
                yield end, offset


def location(path: str | os.PathLike[str]) -> Path:
    """A local path, or the place of a URL like s3://bucket/texts, on any file system that fsspec knows.

    Raises:
        CorpusError: a URL of an unknown file system, or of one whose package is missing.
    """
    if not is_url(path):
        return Path(path)
    from upath import UPath

    try:
        # It has what is used here of a path, but is none by its type.
        return cast(Path, UPath(path))
    except ValueError as error:
        known = "those that fsspec knows, like s3://, gs://, hf:// and https://"
        raise CorpusError(f"{path}: {first_line(error)}; allowed: {known}") from error


def file_fingerprint(path: str | os.PathLike[str], column: str = "text", group: str | None = None) -> str:
    """Hash of the files' names below the path, all their bytes, and the columns; 32 hexadecimal digits.

    Of a URL not the bytes, which would all be fetched, but what its file system says of each version of a file: the
    ETag of S3, the checksum of Google Cloud, else size and time.

    Raises:
        CorpusError: a missing path, an unknown ending, a file that cannot be read.
    """
    place = location(path)
    files = _files(place)
    with refuse_unreadable(path):
        folder = place.is_dir()
    whole = hashlib.blake2b(json.dumps([column, group, folder]).encode(), digest_size=16)
    for name, file in files:
        whole.update(json.dumps([name, _version(file) if is_url(path) else content_hash(file)]).encode())
    return whole.hexdigest()


def file_bytes(path: str | os.PathLike[str]) -> int:
    """Bytes on disk of a file, or of all files with a known ending in a folder.

    Raises:
        CorpusError: a missing path, an unknown ending.
    """
    return whole(path).size


def content_hash(file: Path) -> str:
    """Hash of a file's bytes; 32 hexadecimal digits.

    Raises:
        CorpusError: it cannot be read.
    """
    with refuse_unreadable(file), file.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _version(file: Any) -> str:
    """What changes with the content of a file of a URL: HTTP takes it for constant, so its headers are asked too."""
    with refuse_unreadable(file):
        facts = file.fs.info(file.path)
        return json.dumps([file.fs.ukey(file.path), *(str(facts.get(name)) for name in _VERSION)])


def _files(path: Path) -> list[tuple[str, Path]]:
    with refuse_unreadable(path):
        if path.is_file():
            if not path.name.endswith(ENDINGS):
                raise CorpusError(f"{path}: unknown kind of file; allowed: {', '.join(ENDINGS)}")
            return [(path.name, path)]
        if not path.is_dir():
            raise CorpusError(f"{path}: no such file or folder")
        files = [
            (file.relative_to(path).as_posix(), file)
            for file in path.rglob("*")
            if file.is_file() and file.name.endswith(ENDINGS) and not file.name.startswith(".")
        ]
    if not files:
        raise CorpusError(f"{path}: no file of a known kind in this folder; allowed: {', '.join(ENDINGS)}")
    return sorted(files)


def _paragraphs(file: OpenFile, whole: bool) -> Iterator[tuple[int, str]]:
    """(number of the first line, text) of each paragraph, or of the file as a whole."""
    lines = ((number, line.replace("\r\n", "\n")) for number, line in text_lines(file))
    if whole:
        yield 1, "".join(line for _, line in lines)
        return
    for blank, group in itertools.groupby(lines, lambda line: not line[1].strip()):
        if not blank:
            number, text = next(group)
            yield number, text + "".join(line for _, line in group)
