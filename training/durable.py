"""Files that a killed process cannot leave half-written."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def write_whole(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a file so that a reader sees the old content or the new, never a part.

    The bytes go to a temporary name in the same folder, are flushed to disk, and take the final name in one
    step. Text is written as UTF-8 with its line ends untouched. The folder must exist.

    Raises:
        OSError: the disk is full, the folder is missing or not writable; the old file is then still whole.
    """
    path = Path(path)
    data = content.encode("utf-8") if isinstance(content, str) else content
    # Drawn anew, so that two writers of the same path, even on two hosts, never share a temporary file.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with temporary.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    flush_folder(path.parent)


def append_flushed(path: str | os.PathLike[str], text: str) -> None:
    """Append text (UTF-8) to a file, creating it if need be, and return once it is on the disk.

    Raises:
        OSError: the disk is full, the folder is missing or not writable.
    """
    path = Path(path)
    created = not path.exists()
    with path.open("ab") as stream:
        stream.write(text.encode("utf-8"))
        stream.flush()
        os.fsync(stream.fileno())
    if created:
        flush_folder(path.parent)


def read_lines_whole(path: str | os.PathLike[str]) -> list[Any]:
    """Read a file of JSON lines; a last line without a newline is unfinished work and is left out.

    Blank lines are passed over. A missing file is an error of the caller's and raises.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a finished line that is not JSON; the message names the file and the line.
    """
    path = Path(path)
    data = path.read_bytes()
    finished = data[: data.rfind(b"\n") + 1]
    values = []
    for number, line in enumerate(finished.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            values.append(json.loads(line))
        # UnicodeDecodeError and JSONDecodeError are ValueErrors; brackets without end are the other.
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path} line {number}: not a JSON line ({error})") from error
    return values


def cut_lines(path: str | os.PathLike[str], before_step: int) -> None:
    """Drop from a file of JSON lines, each with its step, those of a step and later, and a last one that was cut off.

    A file that is not there is let be.
    """
    path = Path(path)
    if not path.exists():
        return
    lines = path.read_bytes().splitlines(keepends=True)
    known = read_lines_whole(path)
    kept = [line for line, values in zip(lines, known, strict=False) if values["step"] < before_step]
    write_whole(path, b"".join(kept))


@contextlib.contextmanager
def whole_folder(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Fill a folder so that a reader sees all of it or nothing.

    Gives a temporary folder beside the final one; at the end of the block its files are flushed to disk and
    it takes the final name. If the block fails it is removed; a killed process leaves a hidden folder whose
    name ends in .part. Missing parents are made.

    Raises:
        FileExistsError: there is something under the final name, before the block or after it.
    """
    folder = Path(folder)
    if folder.exists():
        raise FileExistsError(f"{folder}: exists")
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.part")
    temporary.mkdir()
    try:
        yield temporary
        for inner, _, names in os.walk(temporary):
            for name in names:
                with Path(inner, name).open("rb") as stream:
                    os.fsync(stream.fileno())
            flush_folder(inner)
        try:
            temporary.rename(folder)
        except OSError as error:
            if folder.exists():
                raise FileExistsError(f"{folder}: exists") from error
            raise
        flush_folder(folder.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def flush_folder(folder: str | os.PathLike[str]) -> None:
    """Make names just created, renamed or removed in a folder survive a power cut.

    File systems that cannot flush a folder are let be: the files themselves are flushed either way.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
