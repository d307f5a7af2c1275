"""Files that a killed process cannot leave half-written, and reading whatever is at a path."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import IO, TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")


class FileError(ValueError):
    """A file that cannot be used, whatever is at its path; one line with the path and what is wrong."""


def read_file(path: Path) -> bytes:
    """Content of a file.

    Raises:
        FileNotFoundError: no such file.
        FileError: a folder, a pipe, a device, a ring of links, or a file that must not be read.
    """
    try:
        return regular(path).read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}") from None


def regular(path: Path) -> Path:
    """The path, where reading it ends or there is nothing. Raises FileError: a folder, a pipe, a device, a ring."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return path
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}") from None
    # A pipe would be waited for, and a device may have no end.
    if not S_ISREG(mode):
        raise FileError(f"{path}: {'a folder' if S_ISDIR(mode) else 'a pipe or device'}, not a file")
    return path


def read_text(path: Path) -> str:
    """Text of a file in UTF-8. Raises as `read_file`, and FileError: another encoding."""
    try:
        return read_file(path).decode()
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: not UTF-8 (byte {error.start})") from None


def json_value(data: bytes | str) -> Any:
    """What JSON holds. Raises ValueError: not JSON, nested too deeply, or text that no encoding can write."""
    try:
        value = json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    # Half of a pair of surrogates would end the first print or write of it.
    if (b"\\ud" if isinstance(data, bytes) else "\\ud") in data.lower():  # pyright: ignore[reportOperatorIssue]
        json.dumps(value, ensure_ascii=False).encode()
    return value


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file of JSON. Raises as `read_file`, and FileError: not JSON, or no object."""
    data = read_file(path)
    try:
        value = json_value(data)
    except ValueError as error:
        raise FileError(f"{path}: not JSON ({error})") from None
    if not isinstance(value, dict):
        raise FileError(f"{path}: {value!r:.40} is not a JSON object")
    return value


def read_record(path: Path, kind: type[T], schema: int | None = None, **given: str) -> T:
    """`record_of` a file of JSON; `given` are fields that it does not hold. Raises as `read_json` and `record_of`."""
    return record_of({**read_json(path), **given}, str(path), kind, schema)


def record_of(fields: dict[str, Any], where: str, kind: type[T], schema: int | None = None) -> T:
    """A dataclass or typed dictionary from JSON, with the types of all keys checked.

    Raises FileError, which begins with `where`: another schema than `schema`, where that is given, or the first key
    that is missing or has another type.
    """
    from pydantic import ValidationError

    if schema is not None and fields.get("schema") != schema:
        raise FileError(f"{where}: schema {fields.get('schema')!r:.60}; this version reads {schema}")
    try:
        return adapter(kind).validate_json(json.dumps(fields), strict=True)
    except ValidationError as error:
        raise FileError(f"{where}: {first_problem(error)}") from None


@functools.cache
def adapter(kind: type[T]) -> TypeAdapter[T]:
    """What checks the types of a dataclass that is read from JSON."""
    from pydantic import TypeAdapter  # Takes a third of a second.

    return TypeAdapter(kind)


def first_problem(error: Any) -> str:
    """The first key that does not fit its type, with its value."""
    first = error.errors(include_url=False)[0]
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
    key, message = "".join(parts).lstrip("."), first["msg"][:1].lower() + first["msg"][1:]
    return f"{key}: missing" if first["type"] == "missing" else f"{key} = {first['input']!r:.60}: {message}"


def numbered(folder: Path, pattern: str) -> dict[int, Path]:
    """Number -> path of what is named by a pattern with * for the number, in the order of the numbers.

    >>> numbered(Path("runs"), "step-*")
    {}
    """
    before, after = pattern.split("*")
    texts = {path.name[len(before) : len(path.name) - len(after)]: path for path in folder.glob(pattern)}
    return dict(sorted((int(text), path) for text, path in texts.items() if text.isascii() and text.isdecimal()))


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file so that a reader sees the old content or the new, never a part.

    Text is written as UTF-8 with its line ends unchanged; the folder must exist.

    Raises:
        OSError: the disk is full, the folder is missing or not writable; the old file is unchanged.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    # Random, so that two writers of the same path, even on two hosts, never share a temporary file.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with temporary.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            error.filename = os.fspath(path)
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


def append_flushed(path: Path, text: str) -> None:
    """Append text (UTF-8) to a file, created if missing, and return once it is on disk.

    Raises:
        OSError: the disk is full, the folder is missing or not writable.
        FileError: a folder, a pipe or a device is at the path.
    """
    created = not regular(path).exists()
    with path.open("ab") as stream:
        stream.write(text.encode("utf-8"))
        stream.flush()
        os.fsync(stream.fileno())
    if created:
        flush_folder(path.parent)


def read_lines_whole(path: Path) -> list[Any]:
    """Read a file of JSON lines, without a last line that has no newline and so is incomplete.

    Blank lines are skipped.
    Raises:
        FileNotFoundError: no such file.
        FileError: as `read_file`; a complete line that is not JSON, with its number.
    """
    data = read_file(path)
    values = []
    for number, line in enumerate(data[: data.rfind(b"\n") + 1].split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            values.append(json_value(line))
        except ValueError as error:
            raise FileError(f"{path} line {number}: not a JSON line ({error})") from error
    return values


def as_counted_lines(lines: Iterable[Mapping[str, Any]]) -> str:
    """JSON lines of a file that is written whole, each with the number of all as `lines`; no lines are one blank line.

    `read_counted_lines` then knows whether lines were lost.
    """
    lines = list(lines)
    return "".join(json.dumps({**line, "lines": len(lines)}, allow_nan=False) + "\n" for line in lines) or "\n"


def read_counted_lines(path: Path) -> list[dict[str, Any]]:
    """Read a file of `as_counted_lines`; a file of objects without `lines` need only end in a newline.

    Raises:
        FileNotFoundError: no such file.
        FileError: as `read_file`; lines were lost, or one is not a JSON object.
    """
    if not (data := read_file(path)).endswith(b"\n"):
        raise FileError(f"{path}: cut off, {f'its last line ends in {data[-20:]!r}' if data else 'it is empty'}")
    lines = read_lines_whole(path)
    for number, line in enumerate(lines, start=1):
        if not isinstance(line, dict):
            raise FileError(f"{path} line {number}: {line!r:.40} is not a JSON object")
        if (count := line.pop("lines", len(lines))) != len(lines):
            raise FileError(f"{path}: {len(lines)} of {count!r:.20} lines are left")
    return lines


def cut_lines(path: Path, before_step: int) -> None:
    """Keep the leading lines of a file of JSON lines with `step` below `before_step`; a line that is damaged ends them.

    A missing file is not an error.
    """
    if not regular(path).exists():
        return

    def comes_before(line: bytes) -> bool:
        step = _values(line).get("step")
        return isinstance(step, int) and step < before_step

    write_whole(path, b"".join(takewhile(comes_before, read_file(path).splitlines(keepends=True))))


def leading_lines(path: Path, expected: Iterable[Mapping[str, Any]]) -> int:
    """How many of the expected lines a file of JSON lines begins with: whole lines that have the expected items.

    0 for a missing file. Lines beyond the expected ones do not count. Raises FileError as `read_file`.
    """
    lines = read_file(path).splitlines(keepends=True) if regular(path).exists() else []
    matches = (items.items() <= _values(line).items() for line, items in zip(lines, expected, strict=False))
    return sum(takewhile(bool, matches))


def _values(line: bytes) -> dict[str, Any]:
    """What a line of JSON holds; nothing for one that is damaged or has no newline."""
    try:
        values = json_value(line) if line.endswith(b"\n") else {}
    except ValueError:
        values = {}
    return values if isinstance(values, dict) else {}


@contextlib.contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Fill a folder so that a reader sees all of it or nothing.

    Yields a temporary folder in the same parent, which is renamed once its files are on disk. If the block fails it is
    removed; a killed process leaves a hidden folder whose name ends in .part. Missing parents are created.

    Raises:
        FileExistsError: the final name exists, before the block or after it.
    """
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
            flush_folder(Path(inner))
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
def folder_to_fill(folder: Path) -> Iterator[None]:
    """Make a folder and its parents; those that it made are removed in the end if they hold nothing but a lock."""
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if made and [file.name for file in folder.iterdir()] == [".lock"]:
                (folder / ".lock").unlink()
            for one in made:
                one.rmdir()


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[bool]:
    """Lock the folder and remove what killed processes left; yields False on a file system without locks."""
    with (folder / ".lock").open("wb") as lock:
        try:
            wait_for_lock(lock, print)
        except OSError:
            # Two processes at once then waste work, but every result is renamed into place.
            yield False
            return
        for left in folder.glob(".*.part"):
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)
        yield True


def wait_for_lock(file: IO[Any], log: Callable[[str], object]) -> None:
    """Lock an open file. Raises OSError: its file system has no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        log(f"{file.name}: locked by another process; waiting until that is done")
        fcntl.flock(file, fcntl.LOCK_EX)


def flush_folder(folder: Path) -> None:
    """Flush the names created, renamed or removed in a folder to disk, where the file system can do that."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def at_work_in(folder: Path) -> Iterator[None]:
    """Have `is_at_work_in` find this process, until it ends, in a folder that is there on a file system with locks."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            # The folder itself, so that no file is left in it.
            stack.callback(os.close, descriptor := os.open(folder, os.O_RDONLY))
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield


def is_at_work_in(folder: Path) -> bool:
    """Whether any process of this machine is in `at_work_in` of a folder."""
    with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
        stack.callback(os.close, descriptor := os.open(folder, os.O_RDONLY))
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
