"""Corpora streamed by `datasets`, from the Hugging Face hub or a local folder of data files."""

import contextlib
import dataclasses
import gc
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from training.corpora.documents import CorpusError, json_hash
from training.corpora.files import content_hash
from training.corpora.listing import Listing, file_states, local_entries
from training.corpora.locations import first_line
from training.corpora.reader import Reader, Row, Shard, check_columns
from training.corpora.source import Source

_SECONDS = 20.0
# huggingface_hub changed from one to the other; neither is a dependency of ours.
_HTTP = ("httpx", "httpx2")


class HubReader(Reader):
    """The documents of a data set, streamed row by row in its order; of `max_bytes` the first ones.

    No code of the data set is run: `datasets` 4 and later refuse data sets with a script. The id of a document is
    split:row (rows from 1), after the group and a '#' if there is a group. A hub that cannot be reached, no such data
    set, subset, split or column, a value that is not text is a CorpusError.
    """

    @property
    def limit(self) -> int | None:
        return self.source.max_bytes

    def pinned(self) -> Source:
        return dataclasses.replace(self.source, revision=pinned_revision(self.source.name, self.source.revision))

    def fingerprint(self) -> str:
        source, folder = self.source, Path(self.source.name)
        if folder.is_dir():
            content = json_hash([[name, content_hash(path)] for name, path in _shown_files(folder)])
        elif source.revision is None:
            raise CorpusError(f"{source.name}: not pinned to a revision")
        else:
            content = [source.name, source.revision]
        keys = [source.subset, source.split, source.column, source.group, source.max_bytes]
        return json_hash([content, *keys, source.filter_description()])

    def state(self) -> str | None:
        folder = Path(self.source.name)
        return file_states(_shown_files(folder)) if folder.is_dir() else None

    def passed_over(self) -> str:
        folder = Path(self.source.name)
        if not folder.is_dir():
            return ""
        import datasets

        with _refused(str(folder)):
            files = datasets.load_dataset_builder(str(folder), self.source.subset).config.data_files or {}
        read = {Path(file) for of_split in files.values() for file in of_split}
        names = (name for name, _ in local_entries(str(folder)) if (folder / name).absolute() not in read)
        return str(Listing([], [(name, "that datasets does not read") for name in names]))

    def sample(self, max_bytes: int) -> list[tuple[str, str]]:
        """The first documents that hold `max_bytes`, since the whole stream would have to be read to draw some."""
        first = dataclasses.replace(self.source, max_bytes=min(max_bytes, self.source.max_bytes or max_bytes))
        return list(HubReader(self.name, first).documents())

    def _opened(self) -> Any:
        name, revision = self.source.name, self.source.revision
        if Path(name).is_dir():
            revision = None
        elif _checked_name(name) and _offline():
            # `datasets` streams from the folder in the hub's cache, but not by name.
            name, revision = str(_cached(name, revision)), None
        import datasets

        datasets.disable_progress_bars()
        with _refused(name):
            return datasets.load_dataset(
                name, self.source.subset, split=self.source.split, revision=revision, streaming=True
            )

    def rows(self, shard: Shard | None, after: int, state: Any) -> Iterator[Row]:
        source, stream = self.source, self._opened()
        if state is not None:
            stream.load_state_dict(state)
        needed = [column for column in (source.column, source.group) if column is not None]
        try:
            with _refused(source.name), contextlib.closing(iter(stream)) as rows:
                for number, row in enumerate(rows, start=after + 1):
                    label = f"{source.name} {source.split} row {number}"
                    check_columns(label, [*needed, *source.filter_columns], list(row), self.name)
                    yield Row(f"{source.split}:{number}", row, label, None, stream.state_dict)
        finally:
            # A scanner of Parquet that is left over when Python ends aborts the process (apache/arrow#45214).
            gc.collect()


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
    _checked_name(name)
    if revision is not None and re.fullmatch(r"[0-9a-f]{40}", revision):
        return revision
    if _offline():
        return _cached(name, revision).name
    from huggingface_hub import HfApi

    with _refused(name):
        return HfApi().dataset_info(name, revision=revision, timeout=_SECONDS).sha


def _shown_files(folder: Path) -> list[tuple[str, Path]]:
    """(name, path) of a folder's files, sorted by name, without hidden ones."""
    files = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
    shown = {name.as_posix(): path for name, path in files.items() if not any(p.startswith(".") for p in name.parts)}
    return sorted(shown.items())


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


def _checked_name(name: str) -> str:
    if not re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", name):
        raise CorpusError(f"{name}: no such folder, and not a name on the hub; allowed: owner/name, or a local folder")
    return name


@contextlib.contextmanager
def _refused(name: str) -> Iterator[None]:
    """Turn an error of `datasets` or the hub into one line; its type depends on file format, network and version."""
    try:
        yield
    except CorpusError:
        raise
    except Exception as error:
        reason = hub_reason(error) or f"cannot be read by datasets ({first_line(error)})"
        raise CorpusError(f"{name}: {reason}") from error


def hub_reason(error: Exception) -> str | None:
    """Why the hub does not give a data set or model, and the remedy; None: for another reason."""
    from huggingface_hub import errors

    chain: list[BaseException] = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None and cause not in chain:
        chain.append(cause)
    if any(isinstance(one, errors.GatedRepoError) for one in chain):
        return "gated; accept its terms on its page and log in with hf auth login"
    if any(isinstance(one, errors.RepositoryNotFoundError | errors.RevisionNotFoundError) for one in chain):
        return f"no such name or revision on the hub, or not yours to read ({first_line(error)})"
    if any(isinstance(one, ConnectionError | TimeoutError) or type(one).__module__ in _HTTP for one in chain):
        remedy = "go online, or set HF_HUB_OFFLINE=1 if it is in the cache, or name a local folder"
        return f"the Hugging Face hub cannot be reached ({first_line(error)}); {remedy}"
    return None
