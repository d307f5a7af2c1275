"""Corpora from files, local or by URL: JSON lines, parquet and plain text, read in constant memory."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import itertools
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from training.corpora.documents import CorpusError, capped, json_hash
from training.corpora.locations import is_url, location, refuse_unreadable
from training.corpora.reader import Documents, Reader, Row, Shard

if TYPE_CHECKING:
    from pyarrow import parquet

ENDINGS = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet", ".txt")
SHARD_BYTES = (4_000_000, 1_000_000_000)
"""Smallest and largest aim for the bytes on disk of a shard."""
SHARDS = 1000
"""Number of shards of a corpus between the two."""
_READ_BYTES = 1 << 22
_BUFFER_BYTES = 1 << 20
_BATCH_ROWS = 512
_VERSION = ("size", "ETag", "Content-MD5", "Digest", "Last-Modified")
"""What file systems say of a file that changes with its content."""
_WHOLE = Shard([], 0)


class FileReader(Reader):
    """The documents of a file, or of all files with a known ending below a folder, sorted by name.

    A row of .jsonl or .parquet is a document. A .txt file in a folder is a document; of a .txt file given by itself
    each paragraph is one. The id of a document is file:row (rows from 1), after the group and a '#' if there is a
    group. A missing or empty path, an unknown ending, no such column, a value that is not text, a line that is not JSON
    or not UTF-8 is a CorpusError of one line that names file and place.
    """

    def fingerprint(self) -> str:
        source, rules = self.source, self.source.filter_description()
        parts = [file_fingerprint(source.path, source.column, source.group), source.max_bytes]
        return json_hash([*parts, rules] if rules else parts)

    def bytes(self) -> int:
        return whole(self.source.path).size

    def shards(self) -> list[Shard | None]:
        shards = shards_of(self.source.path) if self.source.max_bytes is None else []
        return [*shards] if len(shards) > 1 else [None]

    def documents(self, shard: Shard | None = None, position: Any = None) -> Documents:
        return Documents(self, shard, position) if self.source.max_bytes is None else _Capped(self, None, position)

    def rows(self, shard: Shard | None, after: int, state: Any) -> Iterator[Row]:
        return itertools.islice(self._rows(shard or whole(self.source.path)), after, None)

    def _rows(self, shard: Shard) -> Iterator[Row]:
        path, column, group = location(self.source.path), self.source.column, self.source.group
        with refuse_unreadable(path):
            folder = path.is_dir()
        needed = [column] if group is None else [column, group]
        passed = -shard.offset
        for name, size in shard.files:
            file, text_file = path / name if folder else path, name.endswith(".txt")
            if text_file:
                rows = ((number, {column: text}, read) for number, text, read in _paragraphs(file, folder))
            elif name.endswith(".parquet"):
                rows = _parquet_rows(file, size, shard, [*dict.fromkeys([*needed, *self.source.filter_columns])])
            else:
                rows = _json_rows(file, shard, needed)
            for number, row, read in rows:
                label = f"{file} {'line' if text_file else 'row'} {number}"
                row_id = name if folder and text_file else f"{name}:{number}"
                document, text = document_of(row, column, None if text_file else group, row_id, label)
                yield Row(document, text, row, label, (passed + read) / max(shard.size, 1))
            passed += size


class _Capped(Documents):
    """Those of the documents that hold the upper limit of the text; all of them are in memory."""

    def __iter__(self) -> Iterator[tuple[str, str]]:
        assert self._reader.source.max_bytes is not None
        every = Documents(self._reader)
        kept = capped(every, self._reader.source.max_bytes)
        self.dropped = every.dropped
        for document in itertools.islice(kept, self.read, None):
            self.read += 1
            self._fraction = self.read / len(kept)
            yield document


def document_of(row: dict[str, Any], column: str, group: str | None, name: str, label: str) -> tuple[str, str]:
    """(document id, text) of a row. Raises CorpusError: the value is not text, or cannot be encoded as UTF-8."""
    text = row[column]
    if not isinstance(text, str):
        raise CorpusError(f"{label}: column {column} is {type(text).__name__}; allowed: a text")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise CorpusError(f"{label}: half of a surrogate pair in column {column}") from error
    key = None if group is None else row[group]
    # A '#' inside the key would end the group there.
    return (name if key is None else str(key).replace("#", "%23") + "#" + name), text


def _json_rows(file: Path, shard: Shard, needed: Sequence[str]) -> Iterator[tuple[int, dict[str, Any], float]]:
    """(row number from 1, row, bytes of the file read) of a shard of JSON lines."""
    # Not with `datasets`, whose JSON reader gives a column one type: it converts texts that look like dates, and one
    # number among the texts turned thousands into quoted JSON (docs/negative-results.md).
    for number, line, read in _lines(file, shard):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise CorpusError(f"{file} line {number}: not JSON ({error})") from error
        if not isinstance(row, dict):
            raise CorpusError(f"{file} line {number}: {type(row).__name__}; allowed: a JSON object a line")
        check_columns(f"{file} line {number}", needed, list(row))
        yield number, row, read


def _parquet_rows(
    file: Path, size: int, shard: Shard, columns: list[str]
) -> Iterator[tuple[int, dict[str, Any], float]]:
    """(row number from 1, row, bytes of the file read) of a shard of parquet, with these columns only."""
    # Not with `datasets` either: to stream a local file it needs a writable cache folder.
    import pyarrow
    from pyarrow import parquet

    unreadable = refuse_unreadable(file, "not readable as parquet", pyarrow.ArrowException)
    with unreadable, contextlib.ExitStack() as opened:
        # A local file by its path is mapped into memory.
        source = file if isinstance(file, Path) else opened.enter_context(file.open("rb"))
        table = opened.enter_context(parquet.ParquetFile(source))
        check_columns(str(file), columns, table.schema_arrow.names)
        ends = [0, *_row_group_ends(table)]
        last = ends[-1] if shard.end is None else shard.end
        groups = [index for index, end in enumerate(ends[1:]) if end > shard.before and ends[index] < last]
        number = ends[groups[0]] if groups else 0
        for batch in table.iter_batches(_BATCH_ROWS, row_groups=groups, columns=columns):
            for row in batch.to_pylist():
                number += 1
                yield number, row, size * number / ends[-1]


def _paragraphs(file: Path, whole: bool) -> Iterator[tuple[int, str, int]]:
    """(number of the first line, text, bytes of the file read) of each paragraph, or of the file as a whole."""
    lines = ((number, line.replace("\r\n", "\n"), read) for number, line, read in _lines(file))
    if whole:
        every = list(lines)
        yield 1, "".join(line for _, line, _ in every), every[-1][2] if every else 0
        return
    for blank, group in itertools.groupby(lines, lambda line: not line[1].strip()):
        if not blank:
            (number, first, read), *rest = group
            yield number, first + "".join(line for _, line, _ in rest), read


def _lines(file: Path, shard: Shard = _WHOLE) -> Iterator[tuple[int, str, int]]:
    """(number from 1, line, bytes of the file read) of a text file, compressed or not.

    Lines are split at newlines only, not at U+2028.

    Raises:
        CorpusError: not UTF-8, or a damaged file.
    """
    offset = shard.offset
    with refuse_unreadable(file), file.open("rb") as raw:
        stream = _decompressed(file, raw)
        if offset:
            stream.seek(offset)
        for number, line in enumerate(stream, start=shard.before + 1):
            if shard.end is not None and number > shard.end:
                return
            try:
                # A byte-order mark is not part of the text.
                text = line.decode("utf-8").removeprefix("\ufeff" if number == 1 else "")
            except UnicodeDecodeError as error:
                raise CorpusError(
                    f"{file} line {number}: not UTF-8 at byte {offset + error.start} of the file; convert it to UTF-8"
                ) from error
            yield number, text, raw.tell()
            offset += len(line)


def _decompressed(file: Path, raw: BinaryIO) -> BinaryIO:
    if file.name.endswith(".gz"):
        return cast(BinaryIO, gzip.open(raw, "rb"))
    if file.name.endswith(".zst"):
        import pyarrow

        return io.BufferedReader(pyarrow.CompressedInputStream(raw, "zstd"), _BUFFER_BYTES)
    return raw


def whole(path: str | os.PathLike[str]) -> Shard:
    """All documents below a path, as one shard. Errors as `shards_of`."""
    files = [(name, size) for name, _, size in _sized_files(path)]
    return Shard(files, sum(size for _, size in files))


def _sized_files(path: str | os.PathLike[str]) -> list[tuple[str, Path, int]]:
    with refuse_unreadable(path):
        return [(name, file, file.stat().st_size) for name, file in _files(location(path))]


def shards_of(path: str | os.PathLike[str]) -> list[Shard]:
    """The documents below a path in shards, which follow from the files alone.

    A large .jsonl is cut at line ends, which reads it once to number the rows, a large .parquet between row groups;
    small files come together.

    Raises:
        CorpusError: a missing path, an unknown ending, a file that cannot be read.
    """
    files = _sized_files(path)
    aim = min(max(sum(size for _, _, size in files) // SHARDS, SHARD_BYTES[0]), SHARD_BYTES[1])
    shards: list[Shard] = []
    together = Shard([], 0)
    for name, file, size in files:
        parts = _parts(file, name, size, aim) if size >= 2 * aim else []
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
        for index, end in enumerate(_row_group_ends(table)[:-1]):
            group = table.metadata.row_group(index)
            passed += sum(group.column(column).total_compressed_size for column in range(group.num_columns))
            if passed - offset >= aim:
                offset = passed
                yield end, offset


def _row_group_ends(table: parquet.ParquetFile) -> list[int]:
    """Number of the last row of each row group, from 1."""
    return [*itertools.accumulate(table.metadata.row_group(index).num_rows for index in range(table.num_row_groups))]


def file_fingerprint(path: str | os.PathLike[str], column: str = "text", group: str | None = None) -> str:
    """Hash of the files' names below the path, all their bytes, and the columns; 32 hexadecimal digits.

    Of a URL not the bytes, which would all be fetched, but what its file system says of each version of a file: the
    ETag of S3, the checksum of Google Cloud, else size and time. Errors as `shards_of`.
    """
    root = location(path)
    files = _files(root)
    with refuse_unreadable(path):
        folder = root.is_dir()
    digest = hashlib.blake2b(json.dumps([column, group, folder]).encode(), digest_size=16)
    for name, file in files:
        digest.update(json.dumps([name, _version(file) if is_url(path) else content_hash(file)]).encode())
    return digest.hexdigest()


def content_hash(file: Path) -> str:
    """Hash of a file's bytes; 32 hexadecimal digits. Raises CorpusError: it cannot be read."""
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
        known = [one for one in path.rglob("*") if one.name.endswith(ENDINGS) and not one.name.startswith(".")]
        files = [(file.relative_to(path).as_posix(), file) for file in known if file.is_file()]
    if not files:
        raise CorpusError(f"{path}: no file of a known kind in this folder; allowed: {', '.join(ENDINGS)}")
    return sorted(files)


def check_columns(label: str, needed: Sequence[str], columns: Sequence[str]) -> None:
    """Check that a row or table has the needed columns.

    Raises:
        CorpusError: one line that starts with the label and names the existing columns.
    """
    for name in needed:
        if name not in columns:
            raise CorpusError(f"{label}: no column {name!r}; its columns: {', '.join(map(str, columns)) or 'none'}")
