"""From named corpora to token stores: what is prepared already is left alone, what is new is made whole."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from training.corpus_error import CorpusError
from training.manifest import Manifest, PreparedCorpus
from training.source import Source, SourceReader, capped
from training.store import SCHEMA, TokenStore
from training.store_writing import write_store
from training.tokenizer import (
    copy_tokenizer,
    encode_documents,
    end_of_text_id,
    load_tokenizer,
    tokenizer_fingerprint,
    train_tokenizer,
)

_SAMPLE_BYTES = 8_000_000
_REPORT_BYTES = 256_000_000


@dataclass(frozen=True)
class TokenizerChoice:
    """The tokenizer of a study: trained on its corpora, or brought along. One of the two is given."""

    vocabulary: int | None = None
    """Train a byte-level BPE with this many token ids, on up to 8 MB of each corpus."""
    path: str | None = None
    """Local Hugging Face directory with a tokenizer."""


def prepare(
    sources: Mapping[str, Source],
    tokenizer: TokenizerChoice,
    folder: str | os.PathLike[str],
    *,
    validation_share: float = 0.05,
    progress: Callable[[str], object] = print,
) -> Manifest:
    """Tokenise corpora into a folder, and list them in its manifest.json.

    Safe to repeat and to kill: a tokenizer or store whose inputs have not changed is left alone, a new one
    appears only when it is complete, and the manifest is written last. Stores of earlier preparations stay,
    for runs that use them. A trained tokenizer depends on all corpora, so that adding one tokenises all anew.

    Args:
        sources: corpus name -> where it comes from.
        tokenizer: which tokenizer.
        folder: made if need be.
        validation_share: share of each corpus' documents held out for validation, above 0 and below 1.
        progress: gets a line of text for each thing done.

    Raises:
        CorpusError: a source, a name or the tokenizer cannot be used; one line.
    """
    folder = Path(folder)
    _check(sources, tokenizer, validation_share)
    origins = {name: sources[name].fingerprint() for name in sorted(sources)}
    folder.mkdir(parents=True, exist_ok=True)
    reader = SourceReader(sources)
    with _alone(folder):
        tokenizer_folder = _tokenizer_folder(tokenizer, folder, origins, reader, progress)
        fingerprint = tokenizer_fingerprint(tokenizer_folder)
        stores: dict[str, TokenStore] = {}
        for name, origin in origins.items():
            place = folder / f"{name}-{_key([SCHEMA, origin, fingerprint, float(validation_share)])}"
            store = _standing_store(place)
            if store is None:
                store = _new_store(place, reader.documents(name), tokenizer_folder, name, validation_share, progress)
            else:
                progress(f"{name}: prepared already, {_numbers(store)}")
            stores[name] = store
        manifest = Manifest(
            folder=folder,
            tokenizer_folder=tokenizer_folder.name,
            tokenizer=fingerprint,
            vocabulary=next(iter(stores.values())).vocabulary,
            validation_share=float(validation_share),
            corpora={
                name: PreparedCorpus(
                    folder=store.folder.name,
                    fingerprint=store.fingerprint,
                    source=origins[name],
                    tokens=store.meta.tokens,
                    documents=store.meta.documents,
                    bytes=store.meta.bytes,
                )
                for name, store in stores.items()
            },
        )
        manifest.write()
    return manifest


def _tokenizer_folder(
    choice: TokenizerChoice,
    folder: Path,
    origins: dict[str, str],
    reader: SourceReader,
    progress: Callable[[str], object],
) -> Path:
    if choice.path is not None:
        # Copied, so that the prepared folder stands alone.
        copy = copy_tokenizer(choice.path, folder / f".tokenizer.{os.getpid()}.part")
        place = folder / f"tokenizer-{tokenizer_fingerprint(copy)[:12]}"
        if _holds_tokenizer(place):
            shutil.rmtree(copy)
        else:
            copy.rename(place)
        return place
    assert choice.vocabulary is not None
    place = folder / f"tokenizer-{_key([SCHEMA, _SAMPLE_BYTES, choice.vocabulary, sorted(origins.values())])}"
    if _holds_tokenizer(place):
        progress("tokenizer: prepared already")
        return place
    start = time.monotonic()
    samples = [text for name in origins for _, text in capped(reader.documents(name), _SAMPLE_BYTES)]
    train_tokenizer(samples, choice.vocabulary, place)
    size = sum(len(text.encode()) for text in samples)
    seconds = time.monotonic() - start
    progress(f"tokenizer: {len(load_tokenizer(place)):,} tokens, on {size / 1e6:.1f} MB, {seconds:.0f} s")
    return place


def _holds_tokenizer(place: Path) -> bool:
    """Whether a whole tokenizer is there; a damaged one is cleared away."""
    with contextlib.suppress(CorpusError):
        tokenizer_fingerprint(place)
        return True
    shutil.rmtree(place, ignore_errors=True)
    return False


def _standing_store(place: Path) -> TokenStore | None:
    """The store that is there and whole; a damaged one is cleared away."""
    if place.exists():
        with contextlib.suppress(CorpusError):
            return TokenStore.open(place)
        shutil.rmtree(place)
    return None


def _new_store(
    place: Path,
    documents: Iterable[tuple[str, str]],
    tokenizer_folder: Path,
    name: str,
    validation_share: float,
    progress: Callable[[str], object],
) -> TokenStore:
    start = time.monotonic()
    tokenizer = load_tokenizer(tokenizer_folder)
    reported = 0

    def report(count: int, size: int) -> None:
        nonlocal reported
        if size - reported >= _REPORT_BYTES:
            reported = size
            seconds = time.monotonic() - start
            progress(f"{name}: {size / 1e6:,.0f} MB tokenised, {count:,} documents, {seconds:.0f} s")

    try:
        store = write_store(
            place,
            encode_documents(tokenizer, documents, report),
            vocabulary=len(tokenizer),
            end_of_text=end_of_text_id(tokenizer),
            tokenizer=tokenizer_fingerprint(tokenizer_folder),
            validation_share=validation_share,
        )
    except CorpusError as error:
        raise CorpusError(f"corpora.{name}: {error}") from error
    except FileExistsError:
        # Another process was faster, on a file system without locks.
        store = TokenStore.open(place)
    progress(f"{name}: {_numbers(store)}, {time.monotonic() - start:.0f} s")
    return store


def _numbers(store: TokenStore) -> str:
    meta = store.meta
    return (
        f"{sum(meta.bytes.values()) / 1e6:.1f} MB, {sum(meta.documents.values()):,} documents, "
        f"{meta.tokens['train']:,} tokens to train on, {meta.tokens['validation']:,} to validate"
    )


def _check(sources: Mapping[str, Source], tokenizer: TokenizerChoice, validation_share: float) -> None:
    if not sources:
        raise CorpusError("corpora: none named; allowed: at least one")
    for name, source in sources.items():
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
            raise CorpusError(f"corpora: {name!r} is no name for a corpus; allowed: letters, digits, '-', '_', '.'")
        source.check(f"corpora.{name}")
    if (tokenizer.vocabulary is None) == (tokenizer.path is None):
        raise CorpusError(
            f"tokenizer: vocabulary {tokenizer.vocabulary}, path {tokenizer.path}; allowed: one of the two"
        )
    if not 0.0 < validation_share < 1.0:
        raise CorpusError(f"validation_share: {validation_share}; allowed: above 0, below 1")


def _key(parts: list[object], digits: int = 12) -> str:
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()[:digits]


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until no other process prepares this folder, and clear away what killed ones left."""
    with (folder / ".lock").open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError:
            # A file system without locks: two at once waste work, but all is renamed into place.
            pass
        else:
            for left in folder.glob(".*.part"):
                shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)
        yield
