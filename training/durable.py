"""Files that a killed process cannot leave half-written."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any


def write_whole(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a file so that a reader sees the old content or the new, never a part.

    Text is written as UTF-8 with its line ends unchanged; the folder must exist.

    Raises:
        OSError: the disk is full, the folder is missing or not writable; the old file is unchanged.
    """
    path = Path(path)
    data = content.encode("utf-8") if isinstance(content, str) else content
    # Random, so that two writers of the same path, even on two hosts, never share a temporary file.
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


def write_new(path: Path, content: str) -> bool:
    """Write a file as a whole unless it exists; returns whether this call did, as one of several writers does."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    write_whole(temporary, content)
    try:
        # A link appears with its content, and fails if the name exists.
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    flush_folder(path.parent)
    return True


def append_flushed(path: str | os.PathLike[str], text: str) -> None:
    """Append text (UTF-8) to a file, created if missing, and return once it is on disk.

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
    """Read a file of JSON lines, without a last line that has no newline and so is incomplete.

    Blank lines are skipped.
    Raises:
        FileNotFoundError: no such file.
        ValueError: a complete line that is not JSON; the message names the file and the line.
    """
    path = Path(path)
    data = path.read_bytes()
    values = []
    for number, line in enumerate(data[: data.rfind(b"\n") + 1].split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            values.append(json.loads(line))
        # UnicodeDecodeError and JSONDecodeError are ValueErrors; deeply nested brackets raise the other.
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path} line {number}: not a JSON line ({error})") from error
    return values


def as_counted_lines(lines: Iterable[Mapping[str, Any]]) -> str:
    """JSON lines of a file that is written whole, each with the number of all as `lines`; no lines are one blank line.

    `read_counted_lines` then knows whether lines were lost.
    """
    lines = list(lines)
    return "".join(json.dumps({**line, "lines": len(lines)}, allow_nan=False) + "\n" for line in lines) or "\n"


def read_counted_lines(path: str | os.PathLike[str]) -> list[Any]:
    """Read a file of `as_counted_lines`; a file of objects without `lines` need only end in a newline.

    Raises:
        FileNotFoundError: no such file.
        ValueError: lines were lost, or one is not JSON; the message names the file.
    """
    if not (data := Path(path).read_bytes()).endswith(b"\n"):
        raise ValueError(f"{path}: cut off, {f'its last line ends in {data[-20:]!r}' if data else 'it is empty'}")
    lines = read_lines_whole(path)
    counts = {line.pop("lines", len(lines)) for line in lines if isinstance(line, dict)}
    if counts - {len(lines)}:
        raise ValueError(f"{path}: {len(lines)} of {max(counts)} lines are left")
    return lines


def cut_lines(path: str | os.PathLike[str], before_step: int) -> None:
    """Keep the leading lines of a file of JSON lines with `step` below `before_step`; a line that is damaged ends them.

    A missing file is not an error.
    """
    path = Path(path)
    if not path.exists():
        return

    def comes_before(line: bytes) -> bool:
        step = _values(line).get("step")
        return isinstance(step, int) and step < before_step

    write_whole(path, b"".join(takewhile(comes_before, path.read_bytes().splitlines(keepends=True))))


def leading_lines(path: str | os.PathLike[str], expected: Iterable[Mapping[str, Any]]) -> int:
    """How many of the expected lines a file of JSON lines begins with: whole lines that have the expected items.

    0 for a missing file. Lines beyond the expected ones do not count.
    """
    path = Path(path)
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    matches = (items.items() <= _values(line).items() for line, items in zip(lines, expected, strict=False))
    return sum(takewhile(bool, matches))


def _values(line: bytes) -> dict[str, Any]:
    """What a line of JSON holds; nothing for one that is damaged or has no newline."""
    try:
        values = json.loads(line) if line.endswith(b"\n") else {}
    except (ValueError, RecursionError):
        values = {}
    return values if isinstance(values, dict) else {}


@contextlib.contextmanager
def whole_folder(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Fill a folder so that a reader sees all of it or nothing.

    Yields a temporary folder in the same parent, which is renamed once its files are on disk. If the block fails it is
    removed; a killed process leaves a hidden folder whose name ends in .part. Missing parents are created.

    Raises:
        FileExistsError: the final name exists, before the block or after it.
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


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[bool]:
    """Lock the folder and remove what killed processes left; yields False on a file system without locks."""
    with (folder / ".lock").open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError:
            # Two processes at once then waste work, but every result is renamed into place.
            yield False
            return
        for left in folder.glob(".*.part"):
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)
        yield True


def flush_folder(folder: str | os.PathLike[str]) -> None:
    """Flush the names created, renamed or removed in a folder to disk, where the file system can do that."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
