"""Prepare corpora: make the token stores that are missing, and write the manifest."""

import contextlib
import dataclasses
import functools
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from training.corpora.corpus_store import existing_store, make_store, store_summary
from training.corpora.documents import CorpusError, json_hash
from training.corpora.files import file_fingerprint, path_state
from training.corpora.locations import is_url
from training.corpora.manifest import Manifest, PreparedCorpus
from training.corpora.near_duplicates import RULES, Screen
from training.corpora.reader import Bar, Log, Reader, announced
from training.corpora.readers import open_reader
from training.corpora.shards import ShardedCorpus
from training.corpora.source import Source, TokenizerChoice
from training.corpora.store import SCHEMA, TokenStore, repeated_tokens
from training.corpora.store_writer import Tokenisation
from training.corpora.tokenizer import (
    ENDS,
    copy_tokenizer,
    declared_separator,
    declared_tokens,
    end_of_text_id,
    id_count,
    load_tokenizer,
    tokenizer_fingerprint,
    train_tokenizer,
)
from training.durable import folder_to_fill, locked_folder, read_json

_SAMPLE_BYTES = 8_000_000
"""Of each corpus, on which a tokenizer is trained."""
# Reading this much takes seconds, and is announced.
_LONG_BYTES = 1_000_000_000


def tokenise_corpora(
    sources: Mapping[str, Source],
    tokenizer: TokenizerChoice,
    folder: Path,
    *,
    validation_ratio: float = 0.05,
    workers: int | None = None,
    progress: Log = print,
    bar: Bar | None = None,
) -> Manifest:
    """Tokenise corpora into a folder, and list them in its manifest.json.

    Safe to repeat and to kill: tokenizer and stores are made again only if their inputs have changed, an incomplete
    store is continued, and the manifest is written last. Stores of earlier preparations stay, for runs that use them. A
    trained tokenizer depends on all corpora: adding one tokenises all again. Neither the number of workers nor a kill
    changes the written bytes.

    Args:
        sources, tokenizer, folder: corpus name -> source; which tokenizer, by a local path, with the commit that it
            has; where, a folder that is made if missing.
        validation_ratio: ratio of documents held out, above 0 and below 1, of corpora without a validation set. It and
            the sources are not checked (`Source.problems`).
        workers: processes that tokenise; None: one per core, or RAYON_NUM_THREADS.
        progress, bar: called with messages, and as `reader.Bar`; without `bar` progress is a message each half minute.

    Raises:
        CorpusError: a source or the tokenizer cannot be used; one line per mistake.
    """
    stores: dict[str, TokenStore] = {}
    with _preparation(sources, tokenizer, folder, validation_ratio, progress, bar) as (locked, corpora, directory, how):
        for name, corpus in corpora.items():
            if store := existing_store(corpus.folder):
                progress(f"{name}: prepared already, {store_summary(store.meta)}")
            else:
                unfinished = folder / f"{corpus.folder.name}.unfinished"
                if not locked and not unfinished.exists():
                    # Another process may write the same store.
                    unfinished = folder / f".{corpus.folder.name}.{os.getpid()}.part"
                with announced(name, "tokenising", progress, bar):
                    store = make_store(corpus.folder, unfinished, corpus.reader, *how(), workers)
            stores[name] = store
        prepared, repeated = {}, repeated_tokens(stores)
        for name, corpus in corpora.items():
            store, meta, revision = stores[name], stores[name].meta, corpus.reader.source.revision
            facts = meta.tokens, meta.documents, meta.bytes, revision, meta.dropped, corpus.state, corpus.validation
            fingerprints = meta.fingerprint, corpus.origin
            prepared[name] = PreparedCorpus(corpus.folder.name, *fingerprints, *facts, repeated[name])
        vocabulary = max(store.meta.vocabulary for store in stores.values())
        tokens = directory.name, tokenizer_fingerprint(directory), vocabulary
        manifest = Manifest(folder, *tokens, float(validation_ratio), prepared, tokenizer.revision)
        manifest.write()
        if locked:
            for left in folder.glob("*.unfinished"):
                shutil.rmtree(left, ignore_errors=True)
    return manifest


def begin(
    sources: Mapping[str, Source],
    tokenizer: TokenizerChoice,
    folder: Path,
    *,
    validation_ratio: float = 0.05,
    progress: Log = print,
) -> list[Path]:
    """Plan the shards of the corpora that are not prepared, so that other processes can tokenise them.

    They do so by `python -m training.corpora.shards TASK TASKS FOLDER...`; `tokenise_corpora` then merges
    the shards, and tokenises what is missing. Returns the folder of each corpus' shards. Errors as `tokenise_corpora`.
    """
    with _preparation(sources, tokenizer, folder, validation_ratio, progress, None) as (_, corpora, _, how):
        missing = [corpus for corpus in corpora.values() if not existing_store(corpus.folder)]
        unfinished = [folder / f"{corpus.folder.name}.unfinished" for corpus in missing]
        for corpus, shards in zip(missing, unfinished, strict=True):
            ShardedCorpus.begin(shards, corpus.reader, *how())
    return unfinished


class _CorpusFiles(NamedTuple):
    reader: Reader
    """The reader of the source at its commit."""
    origin: str
    """Fingerprint of the source."""
    state: str | None
    """State of the text before the fingerprint was made."""
    validation: str | None
    """Fingerprint of the validation set."""
    folder: Path
    """The folder of the token store."""


@contextlib.contextmanager
def _preparation(
    given: Mapping[str, Source], choice: TokenizerChoice, folder: Path, ratio: float, progress: Log, bar: Bar | None
) -> Iterator[tuple[bool, dict[str, _CorpusFiles], Path, Callable[[], tuple[Tokenisation, Screen | None]]]]:
    """Identify the corpora of `tokenise_corpora`, lock the folder and make the tokenizer.

    Yields whether the file system has locks, name -> corpus, the directory of the tokenizer, and what makes the
    tokenisation and its screen.
    """
    read = _identified(given, folder, progress, bar)
    sets = {name: file_fingerprint(source.validation) for name, source in given.items() if source.validation}
    with folder_to_fill(folder), locked_folder(folder) as locked:
        tokenizer = _tokenizer_folder(choice, folder, read, progress, bar)
        fingerprint = tokenizer_fingerprint(tokenizer)
        separator = choice.separator or declared_separator(tokenizer)
        corpora = {}
        for reader, origin, state in read:
            parts: list[object] = [SCHEMA, origin, fingerprint, float(ratio)]
            parts += [{"separator": separator}] if separator else []
            # Without a separator the end that a directory declares is between documents.
            parts += [declared_tokens(tokenizer, *ENDS)] if choice.path is not None else []
            # A page of law in a general corpus leaks the validation text of law.
            parts += [json_hash([RULES, sets])] if sets else []
            store = folder / f"{reader.name}-{json_hash(parts)[:12]}"
            corpora[reader.name] = _CorpusFiles(reader, origin, state, sets.get(reader.name), store)

        @functools.cache
        def how() -> tuple[Tokenisation, Screen | None]:
            loaded = load_tokenizer(tokenizer)
            end = end_of_text_id(loaded, separator)
            text = loaded.backend_tokenizer.to_str()
            held_out = [(name, source.validation) for name, source in sorted(given.items()) if source.validation]
            readers = [open_reader(name, Source(path=path)) for name, path in held_out]
            screen = Screen.of(text for one in readers for _, text in one.documents()) if readers else None
            return Tokenisation(text, fingerprint, id_count(loaded), end, ratio), screen

        yield locked, corpora, tokenizer, how


def _identified(
    sources: Mapping[str, Source], folder: Path, progress: Log, bar: Bar | None
) -> list[tuple[Reader, str, str | None]]:
    """The readers of the sources at their commits, sorted by name, each with its fingerprint and state."""
    read, problems = [], []
    for name, source in sorted(sources.items()):
        try:
            reader = open_reader(name, source, progress, bar)
            held_out = [open_reader(name, Source(path=source.validation))] if source.validation else []
            for one in (reader, *held_out):
                if passed_over := one.passed_over():
                    progress(f"{name}: passed over in {one.source.label}: {passed_over}")
            if (size := reader.bytes()) >= _LONG_BYTES:
                progress(f"{name}: fingerprint of {size / 1e9:,.1f} GB")
            reader = open_reader(name, _pinned(reader, folder), progress, bar)
            state = text_state(reader)
            read.append((reader, reader.fingerprint(), state))
        except CorpusError as error:
            problems.append(f"corpora.{name}: {error}")
    if problems:
        raise CorpusError("\n".join(problems))
    return read


def text_state(reader: Reader) -> str | None:
    """What differs if the text of a corpus or its validation set may differ; None: unknown.

    Errors as `tokenise_corpora`.
    """
    validation = reader.source.validation
    states = [reader.state(), path_state(validation) if validation else None]
    return json_hash(states) if any(states) else None


def changed_text(sources: Mapping[str, Source], manifest: Manifest) -> Iterator[str]:
    """The corpora whose text, or validation set, is no longer that of the manifest, as "law.validation: PATH".

    Text is read only where its files have other sizes or times. Text that is not here, like that of a URL without
    network, is taken to be the same.

    Raises:
        CorpusError: a path is there, and cannot be used.
    """
    for name, source in sources.items():
        kept = manifest.corpora.get(name)
        is_local = source.kind == "files" and not is_url(source.path)
        if kept is None or (is_local and not Path(source.path).exists()):
            continue
        with contextlib.nullcontext() if is_local else contextlib.suppress(CorpusError):
            reader = open_reader(name, dataclasses.replace(source, revision=source.revision or kept.revision))
            if text_state(reader) in (None, kept.state):
                continue
            if reader.fingerprint() != kept.source:
                yield f"{name}: {source.label}"
            if source.validation and kept.validation not in (None, file_fingerprint(source.validation)):
                yield f"{name}.validation: {source.validation}"


def _pinned(reader: Reader, folder: Path) -> Source:
    """The source at its commit; without a revision, the commit that an earlier preparation of this folder read."""
    if reader.source.kind == "hub" and reader.source.revision is None:
        with contextlib.suppress(CorpusError, KeyError):
            before = Manifest.open(folder).corpora[reader.name]
            again = dataclasses.replace(reader.source, revision=before.revision)
            if before.revision is not None and open_reader(reader.name, again).fingerprint() == before.source:
                return again
    return reader.pinned()


def _tokenizer_folder(
    choice: TokenizerChoice, folder: Path, read: list[tuple[Reader, str, str | None]], progress: Log, bar: Bar | None
) -> Path:
    if choice.path is not None:
        # Copied, so that the prepared folder is self-contained.
        copy = copy_tokenizer(Path(choice.path), folder / f".tokenizer.{os.getpid()}.part")
        # Checkpoints get this folder's files, so it must declare what the directory does.
        declared = [tokenizer_fingerprint(copy), declared_separator(copy), declared_tokens(copy, *ENDS)]
        kept = folder / f"tokenizer-{json_hash(declared)[:12]}"
        if _holds_tokenizer(kept):
            shutil.rmtree(copy)
        else:
            copy.rename(kept)
        return kept
    key = json_hash([SCHEMA, _SAMPLE_BYTES, choice.vocabulary, sorted(origin for _, origin, _ in read)])
    kept = folder / f"tokenizer-{key[:12]}"
    if _holds_tokenizer(kept):
        progress("tokenizer: prepared already")
        return kept
    start = time.monotonic()
    with announced("tokenizer", "drawing text, and training on it", progress, bar):
        samples = [text for reader, _, _ in read for _, text in reader.sample(_SAMPLE_BYTES)]
        train_tokenizer(samples, choice.vocabulary, kept)
    size = sum(len(text.encode()) for text in samples)
    if bar:
        bar("tokenizer", size, 1.0)
    seconds = time.monotonic() - start
    progress(f"tokenizer: {len(load_tokenizer(kept)):,} tokens, on {size / 1e6:.1f} MB, {seconds:.0f} s")
    return kept


def _holds_tokenizer(folder: Path) -> bool:
    """Whether a folder holds a complete tokenizer; a damaged one is removed."""
    with contextlib.suppress(ValueError):
        tokenizer_fingerprint(folder)
        for file in folder.glob("*.json"):
            read_json(file)
        return True
    shutil.rmtree(folder, ignore_errors=True)
    return False
