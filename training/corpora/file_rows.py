"""Read the rows of a JSON lines or parquet file, or the lines of a text file, in constant memory."""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from training.corpora.documents import CorpusError

if TYPE_CHECKING:
    from pyarrow import parquet

_ROWS_AT_ONCE = 512
_BYTES_AT_ONCE = 1 << 20
_FILE_ERRORS = (OSError, ValueError, EOFError, ImportError, zlib.error)


@dataclass
class OpenFile:
    """A file that is being read, and its progress."""

    path: Path
    size: int
    """Bytes on disk, compressed."""
    raw: BinaryIO | None = None
    """Of text: stream of the bytes on disk."""
    rows: float = 0.0
    """Of parquet: fraction of the rows that has been read."""
    before: int = 0
    """Rows, or lines, before the part that is read."""
    offset: int = 0
    """Bytes before it."""
    end: int | None = None
    """Last row of the part; None: the file's last."""

    def progress(self) -> float:
        """Fraction that has been read, 0 to 1."""
        if self.raw is None or self.raw.closed:
            return self.rows
        return self.raw.tell() / max(self.size, 1)


def json_rows(
    file: OpenFile, needed: Sequence[str], optional: Sequence[str] = (), after: int = 0
) -> Iterator[tuple[int, dict[str, Any]]]:
    """(row number from 1, row) of JSON lines, those numbered above `after`; earlier ones are not parsed.

    Raises:
        CorpusError: not JSON, not an object, not UTF-8, a needed column that is not there, a damaged file.
    """
    # Not with `datasets`, whose JSON reader gives a column one type: it converts texts that look like dates, and one
    # number among the texts turned thousands into quoted JSON (docs/negative-results.md).
    for number, line in text_lines(file, after):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise CorpusError(f"{file.path} line {number}: not JSON ({error})") from error
        if not isinstance(row, dict):
            raise CorpusError(f"{file.path} line {number}: {type(row).__name__}; allowed: a JSON object a line")
        check_columns(f"{file.path} line {number}", needed, list(row))
        yield number, row


def parquet_rows(
    file: OpenFile, needed: Sequence[str], optional: Sequence[str] = (), after: int = 0
) -> Iterator[tuple[int, dict[str, Any]]]:
    """(row number from 1, row) of a parquet file, those numbered above `after`, with the columns asked for only.

    Raises:
        CorpusError: no such column, or not readable as parquet.
    """
    # Not with `datasets` either: to stream a local file it needs a writable cache folder.
    import pyarrow
    from pyarrow import parquet

    columns = list(dict.fromkeys([*needed, *optional]))
    number = 0
    with (
        refuse_unreadable(file.path, "not readable as parquet", pyarrow.ArrowException),
        contextlib.ExitStack() as opened,
    ):
        # A local file by its path is mapped into memory.
        place = file.path if isinstance(file.path, Path) else opened.enter_context(file.path.open("rb"))
        table = opened.enter_context(parquet.ParquetFile(place))
        check_columns(str(file.path), columns, table.schema_arrow.names)
        ends = [0, *row_group_ends(table)]
        after, last = max(after, file.before), ends[-1] if file.end is None else file.end
        groups = [index for index, end in enumerate(ends[1:]) if end > after and ends[index] < last]
        number = ends[groups[0]] if groups else 0
        for batch in table.iter_batches(_ROWS_AT_ONCE, row_groups=groups, columns=columns):
            for row in batch.to_pylist():
                number += 1
                file.rows = number / table.metadata.num_rows
                if number > after:
                    yield number, row


def text_lines(file: OpenFile, after: int = 0) -> Iterator[tuple[int, str]]:
    """(number from 1, line) of a text file, compressed or not, those numbered above `after`; split at newlines only,
    not at U+2028.

    Raises:
        CorpusError: not UTF-8, or a damaged file.
    """
    offset = file.offset
    try:
        with refuse_unreadable(file.path), _opened(file) as stream:
            if offset:
                stream.seek(offset)
            for number, line in enumerate(stream, start=file.before + 1):
                if file.end is not None and number > file.end:
                    return
                if number > after:
                    try:
                        # A byte-order mark is not part of the text.
                        text = line.decode("utf-8").removeprefix("\ufeff" if number == 1 else "")
                    except UnicodeDecodeError as error:
                        raise CorpusError(
                            f"{file.path} line {number}: not UTF-8 at byte {offset + error.start} of the file; "
                            "convert it to UTF-8"
                        ) from error
                    yield number, text
                offset += len(line)
    finally:
        if file.raw is not None:
            file.raw.close()


def row_group_ends(table: parquet.ParquetFile) -> list[int]:
    """Number of the last row of each row group, from 1."""
    return list(itertools.accumulate(table.metadata.row_group(index).num_rows for index in range(table.num_row_groups)))


def check_columns(place: str, needed: Sequence[str], columns: Sequence[str]) -> None:
    """Check that a row or table has the needed columns.

    Raises:
        CorpusError: one line that starts with the place and names the existing columns.
    """
    for name in needed:
        if name not in columns:
            raise CorpusError(f"{place}: no column {name!r}; its columns: {', '.join(map(str, columns)) or 'none'}")


def is_url(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a URL.

    >>> is_url("s3://bucket/texts"), is_url("texts")
    (True, False)
    """
    return "://" in str(path)


@contextlib.contextmanager
def refuse_unreadable(
    path: str | os.PathLike[str], problem: str = "cannot be read", *more: type[Exception]
) -> Iterator[None]:
    """Turn an error of reading a file into one line, which says for a URL what to check.

    Args:
        path, problem: what the line says.
        more: errors that a file may raise besides those of Python's own readers.

    Raises:
        CorpusError: any error inside, if the path is a URL; of a local file those that a damaged one raises.
    """
    try:
        yield
    except CorpusError:
        raise
    except Exception as error:
        # The clients behind URLs have errors of their own: httpx.ConnectError is no OSError, nor are botocore's.
        if not is_url(path) and not isinstance(error, (*_FILE_ERRORS, *more)):
            raise
        # An ImportError says itself which package to install.
        checks = is_url(path) and not isinstance(error, ImportError)
        advice = "; check the address, the network and your access to it" if checks else ""
        raise CorpusError(f"{path}: {problem} ({first_line(error)}){advice}") from error


def first_line(error: BaseException) -> str:
    """The first line of an exception's message."""
    return (str(error).strip() or type(error).__name__).split("\n")[0]


def _opened(file: OpenFile) -> BinaryIO:
    file.raw = file.path.open("rb")
    if file.path.name.endswith(".gz"):
        return cast(BinaryIO, gzip.open(file.raw, "rb"))
    if file.path.name.endswith(".zst"):
        import pyarrow

        return io.BufferedReader(pyarrow.CompressedInputStream(file.raw, "zstd"), _BYTES_AT_ONCE)
    return file.raw
