"""Corpora from local files: JSON lines, parquet and plain text, read row by row without loading them
whole."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from training.corpus_error import CorpusError

ENDINGS = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet", ".txt")
_ROWS_AT_ONCE = 512
_BYTES_AT_ONCE = 1 << 20


def file_documents(
    path: str | os.PathLike[str], column: str = "text", group: str | None = None
) -> Iterator[tuple[str, str]]:
    """The documents of a file, or of all files with a known ending in a folder and below it, in the order of
    names.

    A row of .jsonl or .parquet is a document. A .txt file is a document when it lies in a folder; a .txt file
    named itself is cut at its blank lines, each paragraph a document. Empty texts are passed over.

    Args:
        path: a file or a folder; .jsonl, .jsonl.gz, .jsonl.zst, .parquet, .txt (UTF-8).
        column: of .jsonl and .parquet, the column that holds the text.
        group: of .jsonl and .parquet, a column whose value keeps documents on one side of the
            train/validation split.

    Yields:
        (document id, text); the id is file:row (rows from 1), behind the group and a '#' where there is a
        group.

    Raises:
        CorpusError: a missing or empty path, an unknown ending, no such column, a text that is no text, a
            line that is not JSON or not UTF-8; one line that names file and place.
    """
    found = False
    for name, file in _files(Path(path)):
        if file.name.endswith(".txt"):
            documents = _text_documents(name, file, whole=Path(path).is_dir())
        else:
            rows = _parquet_rows if file.name.endswith(".parquet") else _json_rows
            documents = _row_documents(rows(file, column, group), name, file, column)
        for document, text in documents:
            if text.strip():
                found = True
                yield document, text
    if not found:
        raise CorpusError(f"{path}: no text in it; allowed: at least one document that is not empty")


def file_fingerprint(path: str | os.PathLike[str], column: str = "text", group: str | None = None) -> str:
    """Hash of the files' names below the path, all their bytes, and the columns; 32 hexadecimal digits.

    Raises:
        CorpusError: a missing path, an unknown ending, a file that cannot be read.
    """
    whole = hashlib.blake2b(json.dumps([column, group, Path(path).is_dir()]).encode(), digest_size=16)
    for name, file in _files(Path(path)):
        content = hashlib.blake2b(digest_size=16)
        try:
            with file.open("rb") as stream:
                while data := stream.read(_BYTES_AT_ONCE):
                    content.update(data)
        except OSError as error:
            raise CorpusError(f"{file}: cannot be read ({_first_line(error)})") from error
        whole.update(json.dumps([name, content.hexdigest()]).encode())
    return whole.hexdigest()


def _files(path: Path) -> list[tuple[str, Path]]:
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


def _text_documents(name: str, file: Path, whole: bool) -> Iterator[tuple[str, str]]:
    lines = ((number, line.replace("\r\n", "\n")) for number, line in _lines(file))
    if whole:
        yield name, "".join(line for _, line in lines)
        return
    paragraph: list[str] = []
    first = 1
    for number, line in lines:
        if line.strip():
            first = first if paragraph else number
            paragraph.append(line)
        elif paragraph:
            yield f"{name}:{first}", "".join(paragraph)
            paragraph = []
    if paragraph:
        yield f"{name}:{first}", "".join(paragraph)


def _json_rows(file: Path, column: str, group: str | None) -> Iterator[tuple[int, Any, Any]]:
    # Not by way of `datasets`, whose JSON reader gives a column one type: a text that looks like a date is
    # turned into one, and a single number among the texts turns them all into quoted JSON.
    for number, line in _lines(file):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise CorpusError(f"{file} line {number}: not JSON ({error})") from error
        if not isinstance(row, dict):
            raise CorpusError(f"{file} line {number}: {type(row).__name__}; allowed: a JSON object a line")
        _check_columns(f"{file} line {number}", (column, group), list(row))
        yield number, row[column], row[group] if group else None


def _parquet_rows(file: Path, column: str, group: str | None) -> Iterator[tuple[int, Any, Any]]:
    # Not by way of `datasets` either: to stream a local file it wants a cache folder that it can write to.
    import pyarrow
    from pyarrow import parquet

    columns = [column] if group is None else [column, group]
    number = 0
    try:
        with parquet.ParquetFile(file) as table:
            _check_columns(str(file), (column, group), table.schema_arrow.names)
            for batch in table.iter_batches(batch_size=_ROWS_AT_ONCE, columns=columns):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row[column], row[group] if group else None
    except (OSError, UnicodeDecodeError, pyarrow.ArrowException) as error:
        raise CorpusError(f"{file}: not readable as parquet ({_first_line(error)})") from error


def _row_documents(
    rows: Iterator[tuple[int, Any, Any]], name: str, file: Path, column: str
) -> Iterator[tuple[str, str]]:
    for number, text, key in rows:
        if not isinstance(text, str):
            raise CorpusError(f"{file} row {number}: column {column} is {type(text).__name__}; allowed: a text")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise CorpusError(f"{file} row {number}: half of a surrogate pair in column {column}") from error
        # A '#' inside the key would cut the group there.
        prefix = "" if key is None else str(key).replace("#", "%23") + "#"
        yield f"{prefix}{name}:{number}", text


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """(number from 1, line) of a text file, packed or not; cut at newlines alone, never at U+2028 or such."""
    offset = 0
    try:
        with _opened(file) as stream:
            for number, line in enumerate(stream, start=1):
                try:
                    # A byte-order mark is no part of the text.
                    yield number, line.decode("utf-8").removeprefix("\ufeff" if number == 1 else "")
                except UnicodeDecodeError as error:
                    raise CorpusError(
                        f"{file} line {number}: not UTF-8 at byte {offset + error.start} of the file; "
                        "convert it to UTF-8"
                    ) from error
                offset += len(line)
    except (OSError, EOFError, zlib.error) as error:
        raise CorpusError(f"{file}: cannot be read ({_first_line(error)})") from error


def _opened(file: Path) -> BinaryIO:
    if file.name.endswith(".gz"):
        return cast(BinaryIO, gzip.open(file, "rb"))
    if file.name.endswith(".zst"):
        import pyarrow

        return io.BufferedReader(pyarrow.CompressedInputStream(str(file), "zstd"), _BYTES_AT_ONCE)
    return file.open("rb")


def _check_columns(place: str, wanted: tuple[str | None, ...], columns: list[str]) -> None:
    for name in wanted:
        if name is not None and name not in columns:
            raise CorpusError(f"{place}: no column {name!r}; its columns: {', '.join(map(str, columns)) or 'none'}")


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).split("\n")[0]
