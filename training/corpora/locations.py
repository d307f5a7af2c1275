"""Where text lies: a local path or a URL, and what an error of reading there says in one line."""

import contextlib
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from training.corpora.documents import CorpusError

_FILE_ERRORS = (OSError, ValueError, EOFError, ImportError, zlib.error)


def is_url(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a URL.

    >>> is_url("s3://bucket/texts"), is_url("texts")
    (True, False)
    """
    return "://" in str(path)


def location(path: str | os.PathLike[str]) -> Path:
    """A local path, or the location of a URL like s3://bucket/texts, on any file system that fsspec knows.

    Raises:
        CorpusError: a URL of an unknown file system, or one that needs a package which is not installed.
    """
    if not is_url(path):
        return Path(path)
    try:
        from upath import UPath
    except ModuleNotFoundError:
        raise CorpusError(f"{path}: URLs need universal-pathlib: pip install -e '.[urls]'") from None
    try:
        # It has what is used here of a path, but is none by its type.
        return cast(Path, UPath(path))
    except ValueError as error:
        known = "those that fsspec knows, like s3://, gs://, hf:// and https://"
        raise CorpusError(f"{path}: {first_line(error)}; allowed: {known}") from error


@contextlib.contextmanager
def refuse_unreadable(
    path: str | os.PathLike[str], problem: str = "cannot be read", *more: type[Exception]
) -> Iterator[None]:
    """Turn an error of reading a file into a CorpusError of one line, which says for a URL what to check.

    Any error, if the path is a URL; of a local file those that a damaged one raises by Python's readers, and `more`.
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
