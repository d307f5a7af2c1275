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

from training.corpora.documents import DOCUMENT_BYTES, MOST_BRACKETS, CorpusError, capped, json_hash
from training.corpora.listing import file_states, list_files
from training.corpora.locations import is_url, location, refuse_unreadable
from training.corpora.reader import Documents, Reader, Row, Shard, check_columns

if TYPE_CHECKING:
    from pyarrow import parquet

SHARD_BYTES = (4_000_000, 1_000_000_000)
"""Smallest and largest aim for the bytes on disk of a shard."""
SHARDS = 1000
"""Number of shards of a corpus between the two."""
_READ_BYTES = 1 << 22
_BUFFER_BYTES = 1 << 20
# Few, since each may be as long as a document may be; one at a time takes seven times as long.
_BATCH_ROWS = 4
_BOMB_RATIO = 1000
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

    def state(self) -> str:
        return path_state(self.source.path)

    def passed_over(self) -> str:
        return str(list_files(self.source.path))

    def shards(self) -> list[Shard]:
        return shards_of(self.source.path) if self.source.max_bytes is None else super().shards()

    def documents(self, shard: Shard | None = None, position: Any = None) -> Documents:
        return Documents(self, shard, position) if self.source.max_bytes is None else _Capped(self, None, position)

    def refuse_first_rows(self, most: int) -> None:
        """Raise the CorpusError of the first row of a file, or a parquet's columns, of the first `most` files."""
        files = [(name, size) for name, size in whole(self.source.path).files if _kind(name) != ".txt"]
        for file in files[:most]:
            # The first row of a parquet may take as long as all of its row group.
            for _ in Documents(self, Shard([file], file[1], end=int(_kind(file[0]) != ".parquet"))):
                pass

    def rows(self, shard: Shard | None, after: int, state: Any) -> Iterator[Row]:
        return itertools.islice(self._rows(shard or whole(self.source.path)), after, None)

    def _rows(self, shard: Shard) -> Iterator[Row]:
        source, path = self.source, location(self.source.path)
        with refuse_unreadable(path):
            folder = path.is_dir()
        groups = [source.group] if source.group else []
        columns = [*dict.fromkeys([source.column, *groups, *source.filter_columns])]
        passed = -shard.offset
        for name, size in shard.files:
            file, kind = path / name if folder else path, _kind(name)
            if kind == ".txt":
                texts = _paragraphs(file, folder)
                rows = (
                    (number, None if text is None else source.text_alone(text), read) for number, text, read in texts
                )
            elif kind == ".parquet":
                rows = _parquet_rows(file, size, shard, columns, self.name)
            else:
                rows = _json_rows(file, shard)
            for number, row, read in rows:
                label = f"{file} {'line' if kind == '.txt' else 'row'} {number}"
                row_id = _id(name) if folder and kind == ".txt" else f"{_id(name)}:{number}"
                yield Row(row_id, row, label, (passed + read) / max(shard.size, 1))
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


def _json_rows(file: Path, shard: Shard) -> Iterator[tuple[int, dict[str, Any] | None, int]]:
    """(row number from 1, row or None if it is too long, bytes of the file read) of a shard of JSON lines."""
    # Not with `datasets`, whose JSON reader gives a column one type: it converts texts that look like dates, and one
    # number among the texts turned thousands into quoted JSON (docs/negative-results.md).
    for number, line, read in _lines(file, shard):
        # An empty list takes 30 times the memory of its text.
        if line is None or (len(line) > _READ_BYTES and line.count("[") + line.count("{") > MOST_BRACKETS):
            yield number, None, read
            continue
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise CorpusError(f"{file} line {number}: not JSON ({error})") from error
        if not isinstance(row, dict):
            raise CorpusError(f"{file} line {number}: {type(row).__name__}; allowed: a JSON object a line")
        yield number, row, read


def _parquet_rows(
    file: Path, size: int, shard: Shard, columns: list[str], corpus: str
) -> Iterator[tuple[int, dict[str, Any] | None, float]]:
    """(row number from 1, row, bytes of the file read) of a shard of parquet, with these columns only."""
    # Not with `datasets` either: to stream a local file it needs a writable cache folder.
    import pyarrow
    from pyarrow import parquet

    unreadable = refuse_unreadable(file, "not readable as parquet", pyarrow.ArrowException)
    with unreadable, contextlib.ExitStack() as opened:
        # A local file by its path is mapped into memory.
        source = file if isinstance(file, Path) else opened.enter_context(file.open("rb"))
        table = opened.enter_context(parquet.ParquetFile(source))
        types = pyarrow.types
        texts = [of.name for of in table.schema_arrow if types.is_string(of.type) or types.is_large_string(of.type)]
        named = sorted(table.schema_arrow.names, key=lambda name: name not in texts)
        check_columns(str(file), columns, named, corpus, is_clear=len(texts) == 1)
        ends = [0, *_row_group_ends(table)]
        last = ends[-1] if shard.end is None else shard.end
        groups = [index for index, end in enumerate(ends[1:]) if end > shard.before and ends[index] < last]
        _refuse_bomb(file, table, groups, columns)
        number = ends[groups[0]] if groups else 0
        for batch in table.iter_batches(_BATCH_ROWS, row_groups=groups, columns=columns):
            for row in batch.to_pylist():
                number += 1
                yield number, row, size * number / ends[-1]


def _refuse_bomb(file: Path, table: parquet.ParquetFile, groups: Sequence[int], columns: Sequence[str]) -> None:
    """Refuse a column that takes gigabytes once it is decompressed, from few bytes: pyarrow holds a page in memory."""
    for group in map(table.metadata.row_group, groups):
        for part in map(group.column, range(group.num_columns)):
            size, stored = part.total_uncompressed_size, part.total_compressed_size
            of_row = size / max(group.num_rows, 1)
            if part.path_in_schema.split(".")[0] not in columns or size <= 10 * DOCUMENT_BYTES:
                continue
            if of_row > DOCUMENT_BYTES or size > _BOMB_RATIO * stored:
                raise CorpusError(
                    f"{file}: column {part.path_in_schema} grows from {stored:,} to {size:,} bytes in "
                    f"{group.num_rows:,} rows; allowed: rows of {DOCUMENT_BYTES / 1e6:.0f} MB, and {_BOMB_RATIO} times "
                    "the bytes; split its documents, and write the file again"
                )


def _paragraphs(file: Path, whole: bool) -> Iterator[tuple[int, str | None, int]]:
    """(number of the first line, text or None if it is too long, bytes read) of each paragraph, or of the file."""
    if whole:
        with refuse_unreadable(file), file.open("rb") as stream:
            content = stream.read(DOCUMENT_BYTES + 1)
        too_long = len(content) > DOCUMENT_BYTES
        yield 1, None if too_long else _decoded(file, content, 1, 0).replace("\r\n", "\n"), len(content)
        return
    for blank, group in itertools.groupby(_lines(file), lambda line: line[1] is not None and not line[1].strip()):
        if not blank:
            text, first = io.StringIO(), 0
            for number, line, read in group:
                first = first or number
                if line is None or text.tell() + len(line) > DOCUMENT_BYTES:
                    yield first, None, read
                    break
                text.write(line)
            else:
                yield first, text.getvalue().replace("\r\n", "\n"), read


def _lines(file: Path, shard: Shard = _WHOLE) -> Iterator[tuple[int, str | None, int]]:
    """(number from 1, line or None if it is too long, bytes of the file read) of a text file, compressed or not.

    Lines are split at newlines only, not at U+2028.

    Raises:
        CorpusError: not UTF-8, or a damaged file.
    """
    offset = shard.offset
    with refuse_unreadable(file), _opened(file) as raw:
        stream = _decompressed(file, raw)
        if offset:
            stream.seek(offset)
        for number in itertools.count(shard.before + 1):
            line = stream.readline(DOCUMENT_BYTES)
            if not line or (shard.end is not None and number > shard.end):
                return
            if len(line) == DOCUMENT_BYTES and not line.endswith(b"\n"):
                yield number, None, raw.tell()
                offset += len(line) + _skip_line(stream)
                continue
            yield number, _decoded(file, line, number, offset), raw.tell()
            offset += len(line)


def _skip_line(stream: BinaryIO) -> int:
    """Read to the end of a line; returns its bytes."""
    size = 0
    while part := stream.readline(_READ_BYTES):
        size += len(part)
        if part.endswith(b"\n"):
            break
    return size


def _decoded(file: Path, content: bytes, number: int, offset: int) -> str:
    """Lines of a text file as text, of which the first has this number and begins at this byte."""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line, byte = number + content.count(b"\n", 0, error.start), offset + error.start
        raise CorpusError(f"{file} line {line}: not UTF-8 at byte {byte} of the file; convert it to UTF-8") from error
    # A byte-order mark is not part of the text.
    return text.removeprefix("\ufeff" if number == 1 else "")


def _opened(file: Path) -> BinaryIO:
    # The files of fsspec cannot end a line before its end.
    return file.open("rb") if isinstance(file, Path) else io.BufferedReader(file.open("rb"), _BUFFER_BYTES)


def _decompressed(file: Path, raw: BinaryIO) -> BinaryIO:
    if file.name.lower().endswith(".gz"):
        return cast(BinaryIO, gzip.open(raw, "rb"))
    if file.name.lower().endswith(".zst"):
        import pyarrow

        return io.BufferedReader(pyarrow.CompressedInputStream(raw, "zstd"), _BUFFER_BYTES)
    return raw


def _id(name: str) -> str:
    # A '#' would end the group of documents that stay on one side of the split: all of the file.
    return name.replace("#", "%23")


def whole(path: str | os.PathLike[str]) -> Shard:
    """All documents below a path, as one shard. Errors as `shards_of`."""
    files = [(name, size) for name, _, size in _sized_files(path)]
    return Shard(files, sum(size for _, size in files))


def _sized_files(path: str | os.PathLike[str]) -> list[tuple[str, Path, int]]:
    files = list_files(path).files
    with refuse_unreadable(path):
        return [(name, file, file.stat().st_size) for name, file in files]


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
    kind = _kind(name)
    if kind not in (".parquet", ".jsonl", ".ndjson"):
        return []
    cut = _row_group_cuts if kind == ".parquet" else _line_cuts
    with refuse_unreadable(file):
        cuts = [(0, 0), *cut(file, size, aim)]
    ends = [*cuts[1:], (None, size)]
    pairs = zip(cuts, ends, strict=True)
    return [Shard([(name, size)], last - offset, rows, offset, end) for (rows, offset), (end, last) in pairs]


def _kind(name: str) -> str:
    """The ending of a file's name; of a compressed file that of the compression."""
    return Path(name).suffix.lower()


def _line_cuts(file: Path, size: int, aim: int) -> Iterator[tuple[int, int]]:
    """(lines, bytes) before each part but the first."""
    lines = offset = 0
    with _opened(file) as stream:
        while True:
            wanted = offset + aim
            while offset < wanted and (block := stream.read(min(_READ_BYTES, wanted - offset))):
                lines += block.count(b"\n")
                offset += len(block)
            # To the end of the line, or of the next one.
            lines, offset = lines + 1, offset + _skip_line(stream)
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
    with refuse_unreadable(path):
        folder = location(path).is_dir()
    digest = hashlib.blake2b(json.dumps([column, group, folder]).encode(), digest_size=16)
    for name, file in list_files(path).files:
        digest.update(json.dumps([_id(name), _version(file) if is_url(path) else content_hash(file)]).encode())
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


def path_state(path: str | os.PathLike[str]) -> str:
    """What differs if `file_fingerprint` may differ: sizes and times of local files, of a URL itself. Errors as it."""
    return file_fingerprint(path) if is_url(path) else file_states(list_files(path).files)
