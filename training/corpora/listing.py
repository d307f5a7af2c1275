"""The files of a corpus: those of a folder that hold text, and what is passed over in it."""

import os
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from training.corpora.documents import CorpusError, json_hash
from training.corpora.locations import location, refuse_unreadable

ENDINGS = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet", ".txt", ".ndjson", ".ndjson.gz", ".ndjson.zst")
"""Of any letter case."""
_NAMED = 5
_HIDDEN, _OTHER, _BROKEN = "hidden", "not .jsonl, .parquet or .txt", "a broken link"
_NO_FILE, _TWICE = "no regular file", "links to what is read already, or to a folder around it"


class Listing(NamedTuple):
    """The files that are read below a path, sorted by name, and what else is there."""

    files: list[tuple[str, Path]]
    """Name below the path, and location, of each file."""
    passed_over: list[tuple[str, str]]
    """Name of each file, hidden folder or link that is not read, and why."""

    def __str__(self) -> str:
        """What is passed over, as text; empty: nothing."""
        reasons = Counter(reason for _, reason in self.passed_over)
        names = [name for name, _ in sorted(self.passed_over, key=lambda one: one[1] == _HIDDEN)]
        more = [f"{len(names) - _NAMED:,} more"] if len(names) > _NAMED else []
        counts = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items())
        return counts and f"{counts} ({', '.join([*names[:_NAMED], *more])})"


def list_files(path: str | os.PathLike[str]) -> Listing:
    """The file at a path, or all with a known ending below a folder, and below folders that it links to, each once.

    Raises:
        CorpusError: a missing path, an unknown ending, a folder without a known one, a link to nothing, a folder that
            cannot be read.
    """
    root = location(path)
    known = f"allowed: {', '.join(ENDINGS)}"
    with refuse_unreadable(path):
        if root.is_file():
            if not root.name.lower().endswith(ENDINGS):
                raise CorpusError(f"{path}: unknown kind of file; {known}")
            return Listing([(root.name, root)], [])
        if not root.is_dir():
            what = "neither a file nor a folder" if root.exists() else "no such file or folder"
            raise CorpusError(f"{path}: {what}")
        # A URL of local files is a path of the system too.
        entries = sorted(local_entries(os.fspath(root)) if isinstance(root, os.PathLike) else _remote(root))
    if broken := [name for name, reason in entries if reason == _BROKEN]:
        more = f" and {len(broken) - _NAMED:,} more" if len(broken) > _NAMED else ""
        raise CorpusError(f"{path}: links to nothing: {', '.join(broken[:_NAMED])}{more}; mend or remove them")
    listing = Listing([(name, root / name) for name, why in entries if not why], [one for one in entries if one[1]])
    if not listing.files:
        passed_over = f", passed over are {listing}" if listing.passed_over else ""
        raise CorpusError(f"{path}: no file of a known kind in this folder{passed_over}; {known}")
    return listing


def local_entries(root: str) -> Iterator[tuple[str, str]]:
    """(name below the root, why it is passed over or nothing) of files, hidden folders and links."""
    folders, linked_folders, linked_files = deque([""]), deque[str](), []
    seen = {*map(str, Path(os.path.realpath(root)).parents)}
    while folders or linked_folders:
        # Links last, so that what they lead to keeps the name that it has without them.
        below = (folders or linked_folders).popleft()
        real = os.path.realpath(f"{root}/{below}")
        if real in seen:
            yield below, _TWICE
            continue
        seen.add(real)
        with os.scandir(f"{root}/{below}") as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                name = below + entry.name
                if entry.name.startswith("."):
                    yield name + "/" * entry.is_dir(follow_symlinks=False), _HIDDEN
                elif not Path(entry.path).exists():
                    yield name, _BROKEN
                elif entry.is_dir():
                    (linked_folders if entry.is_symlink() else folders).append(f"{name}/")
                elif entry.is_symlink():
                    linked_files.append((name, os.path.realpath(entry.path), entry.is_file()))
                else:
                    reason = _reason(name) or ("" if entry.is_file() else _NO_FILE)
                    if not reason:
                        seen.add(f"{real}/{entry.name}")
                    yield name, reason
    for name, real, is_file in linked_files:
        reason = (_reason(name) or _TWICE * (real in seen)) if is_file else _NO_FILE
        if not reason:
            seen.add(real)
        yield name, reason


def file_states(files: Iterable[tuple[str, Path]]) -> str:
    """Hash of the names of files, their sizes and their times. Raises CorpusError: one cannot be read."""
    states = []
    for name, file in files:
        with refuse_unreadable(file):
            state = file.stat()
            states.append([name, state.st_size, state.st_mtime_ns, state.st_ctime_ns])
    return json_hash(states)


def _remote(root: Path) -> Iterator[tuple[str, str]]:
    files = root.fs.find(root.path)  # pyright: ignore[reportAttributeAccessIssue]
    for file in files:
        name = file.removeprefix(root.path).lstrip("/")  # pyright: ignore[reportAttributeAccessIssue]
        yield name, _HIDDEN if any(part.startswith(".") for part in name.split("/")) else _reason(name)


def _reason(name: str) -> str:
    return "" if name.lower().endswith(ENDINGS) else _OTHER
