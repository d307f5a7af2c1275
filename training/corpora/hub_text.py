"""Corpora streamed by `datasets`, from the Hugging Face hub or a local folder of data files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from training.corpora.documents import CorpusError, json_hash
from training.corpora.file_rows import check_columns, first_line
from training.corpora.filters import Chooser, Reading
from training.corpora.text_files import content_hash, row_document

_SECONDS = 20.0
# huggingface_hub changed from one to the other; neither is a dependency of ours.
_HTTP = ("httpx", "httpx2")


class HubReading(Reading):
    """The documents of a data set, streamed row by row in its order.

    No code of the data set is run: `datasets` 4 and later refuse data sets with a script. The id of a document is
    split:row (rows from 1), after the group and a '#' if there is a group.

    Args:
        name, subset, split, column, group: as the fields of `Source`.
        revision: commit; None for a local folder.
        chooser, position: which documents are kept, after which position; None: all, from the first row.
        max_bytes: stop once the documents hold this many bytes of UTF-8; None: read all.

    Raises:
        CorpusError: the hub cannot be reached, no such data set, subset, split or column, a value that is not text.
    """

    def __init__(
        self,
        name: str,
        subset: str | None = None,
        split: str = "train",
        revision: str | None = None,
        column: str = "text",
        group: str | None = None,
        chooser: Chooser | None = None,
        position: Any = None,
        max_bytes: int | None = None,
    ) -> None:
        super().__init__(chooser)
        self._name, self._subset, self._split, self._revision = name, subset, split, revision
        self._column, self._group = column, group
        self._rows, self._state, self._taken = position or (0, None, 0)
        self._max_bytes = max_bytes
        self._stream: Any = None

    @property
    def position(self) -> Any:
        """[rows read, state of the stream, bytes of text] after the last document; JSON."""
        return [self._rows, self._stream.state_dict() if self._stream is not None else self._state, self._taken]

    def progress(self) -> float | None:
        """Fraction of `max_bytes` that has been read, 0 to 1; None without it: the length of a stream is unknown."""
        return None if self._max_bytes is None else min(self._taken / self._max_bytes, 1.0)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        if self._max_bytes is not None and self._taken >= self._max_bytes:
            return
        self._stream = _opened(self._name, self._subset, self._split, self._revision)
        if self._state is not None:
            self._stream.load_state_dict(self._state)
        needed = [column for column in (self._column, self._group) if column is not None]
        found = self._rows > 0
        for row in self._checked():
            self._rows += 1
            place = f"{self._name} {self._split} row {self._rows}"
            check_columns(place, [*needed, *self.chooser.columns], list(row))
            document, text = row_document(row, self._column, self._group, f"{self._split}:{self._rows}", place)
            if self.chooser.takes(text, row, place):
                found = True
                self._taken += len(text.encode())
                yield document, text
                if self._max_bytes is not None and self._taken >= self._max_bytes:
                    return
        if not found:
            rules = ", ".join(f"{rule} dropped {count:,}" for rule, count in self.chooser.dropped.items())
            raise CorpusError(f"{self._name}: no document passes the filters ({rules or 'it has no rows'})")

    def _checked(self) -> Iterator[dict[str, Any]]:
        try:
            yield from self._stream
        # The exception depends on file format, network and version.
        except Exception as error:
            _refuse(self._name, error)


def pinned_revision(name: str, revision: str | None) -> str | None:
    """The current commit of a revision (branch or tag; None: the newest); None for a local folder.

    Offline (HF_HUB_OFFLINE=1 or HF_DATASETS_OFFLINE=1) it is the commit in the cache.

    Raises:
        CorpusError: the hub cannot be reached, no such data set or revision; or a folder with a revision.
    """
    if Path(name).is_dir():
        if revision is not None:
            raise CorpusError(f"{name}: a local folder has no revision ({revision}); leave revision=null")
        return None
    _check_name(name)
    if revision is not None and re.fullmatch(r"[0-9a-f]{40}", revision):
        return revision
    if _offline():
        return _cached(name, revision).name
    from huggingface_hub import HfApi

    try:
        return HfApi().dataset_info(name, revision=revision, timeout=_SECONDS).sha
    except Exception as error:
        _refuse(name, error)


def folder_fingerprint(folder: str | os.PathLike[str]) -> str:
    """Hash of the names and bytes of a folder's files without hidden ones; 32 hexadecimal digits.

    Raises:
        CorpusError: a file cannot be read.
    """
    folder = Path(folder)
    files = sorted(
        (path.relative_to(folder).as_posix(), path)
        for path in folder.rglob("*")
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
    return json_hash([[name, content_hash(path)] for name, path in files])


def _opened(name: str, subset: str | None, split: str, revision: str | None) -> Any:
    local = Path(name).is_dir()
    if not local:
        _check_name(name)
        if _offline():
            # `datasets` streams from the folder in the hub's cache, but not by name.
            name, local = str(_cached(name, revision)), True
    import datasets

    datasets.disable_progress_bars()
    try:
        return datasets.load_dataset(name, subset, split=split, revision=None if local else revision, streaming=True)
    except Exception as error:
        _refuse(name, error)


def _offline() -> bool:
    from datasets import config  # reads both variables, HF_DATASETS_OFFLINE and HF_HUB_OFFLINE

    return bool(config.HF_HUB_OFFLINE)


def _cached(name: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, repo_type="dataset", revision=revision, local_files_only=True))
    except Exception as error:
        at = f" at revision {revision}" if revision else ""
        raise CorpusError(
            f"{name}: offline, and not in the Hugging Face cache{at}; go online, or fetch it with "
            f"hf download --repo-type dataset {name}"
        ) from error


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", name):
        raise CorpusError(f"{name}: no such folder, and not a name on the hub; allowed: owner/name, or a local folder")


def _refuse(name: str, error: Exception) -> NoReturn:
    from huggingface_hub import errors

    chain: list[BaseException] = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None and cause not in chain:
        chain.append(cause)
    message = first_line(error)
    if any(isinstance(one, errors.GatedRepoError) for one in chain):
        reason = "gated; accept its terms on its page and log in with hf auth login"
    elif any(isinstance(one, errors.RepositoryNotFoundError | errors.RevisionNotFoundError) for one in chain):
        reason = f"no such data set or revision on the hub, or not yours to read ({message})"
    elif any(isinstance(one, ConnectionError | TimeoutError) or type(one).__module__ in _HTTP for one in chain):
        reason = (
            f"the Hugging Face hub cannot be reached ({message}); go online, or set HF_HUB_OFFLINE=1 if it is in the "
            "cache, or name a local folder"
        )
    else:
        reason = f"cannot be read by datasets ({message})"
    raise CorpusError(f"{name}: {reason}") from error
