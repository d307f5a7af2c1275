"""Folders that are complete or absent: DONE holds the hashes of their files."""

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from safetensors import SafetensorError

from training.durable import FileError, flush_folder, read_json, regular, write_whole


def is_whole(path: Path) -> bool:
    """Whether a checkpoint folder is complete: it has DONE, and its files have the hashes in DONE."""
    try:
        return all(digest(path / name) == expected for name, expected in read_json(path / "DONE").items())
    except (OSError, FileError):
        return False


def new_part(folder: Path, step: int) -> Path:
    """A new hidden folder, to be filled and published as `step-N` of a folder."""
    part = folder / f".step-{step}.{secrets.token_hex(4)}.part"
    part.mkdir(parents=True)
    return part


def publish(part: Path, target: Path, digests: Mapping[str, str]) -> None:
    """Give a filled folder its final name, with the hashes of the files that `is_whole` checks."""
    write_whole(part / "DONE", json.dumps(digests) + "\n")
    if target.exists():
        shutil.rmtree(target)
    os.rename(part, target)
    flush_folder(target.parent)


def digest(path: Path, *, flush: bool = False) -> str:
    """Hash of a file, which with `flush` is on disk afterwards. Raises OSError, and FileError as `regular`."""
    with regular(path).open("rb") as stream:
        if flush:
            os.fsync(stream.fileno())
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Raise an error of the disk that safetensors met as the OSError that it was."""
    try:
        yield
    except SafetensorError as error:
        # It holds the system's error, such as a full disk, in its text only.
        if code := re.search(r"os error (\d+)", str(error)):
            raise OSError(int(code.group(1)), os.strerror(int(code.group(1))), str(path)) from error
        raise
