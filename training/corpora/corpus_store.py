"""One corpus from its source to its token store: tokenised on all cores, and after a kill from the last mark on."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.corpora.documents import CorpusError, in_validation
from training.corpora.near_duplicates import KEPT
from training.corpora.parallel_tokens import CHUNK_CHARACTERS, Chunk, encode_chunks
from training.corpora.source import Reading, SourceReader
from training.corpora.store import TokenStore
from training.corpora.store_writer import EncodedDocument, StoreWriter
from training.durable import flush_folder

MARK_BYTES = 64_000_000
"""Text between two marks, UTF-8: about what a kill costs."""
_REPORT_SECONDS = 30.0

Tell = Callable[[str], object]
Bar = Callable[[str, int, float | None], object]
"""Gets a corpus' name, the bytes of text tokenised, and how much of its source has been read, 0 to 1, or None."""


@dataclass(frozen=True)
class TokenisedBy:
    """All that turns documents into a store, but the documents."""

    tokenizer: str
    """A tokenizers-library tokenizer as JSON."""
    fingerprint: str
    """Of the tokenizer."""
    vocabulary: int
    """Number of token ids."""
    end_of_text: int
    """Token id put after every document."""
    validation_ratio: float
    """Share of the documents held out, where no validation set is given."""
    screen: Path | None = None
    """Folder of the saved screen against the validation sets; None: there are none."""
    workers: int | None = None
    """Processes; None: one a core."""


def standing_store(place: Path) -> TokenStore | None:
    """The store that is there and whole; a damaged one is cleared away."""
    if place.exists():
        with contextlib.suppress(CorpusError):
            return TokenStore.open(place)
        shutil.rmtree(place)
    return None


def make_store(
    place: Path,
    name: str,
    reader: SourceReader,
    validation: Iterable[tuple[str, str]] | None,
    how: TokenisedBy,
    unfinished: Path,
    progress: Tell,
    bar: Bar | None = None,
) -> TokenStore:
    """Write a corpus' store.

    Args:
        place: where; appears when it is complete.
        name: the corpus.
        reader: its documents.
        validation: documents of its validation set, of which its validation split is then made; None: a share of
            its documents, by a hash of their ids.
        how: tokenizer and split.
        unfinished: folder in which it is written; one that a killed process left is gone on with.
        progress: gets a line of text for each thing done, and every half minute without a bar.
        bar: see `Bar`.

    Raises:
        CorpusError: the source cannot be used; one line.
    """
    start = time.monotonic()
    try:
        unfinished.mkdir(parents=True, exist_ok=True)
        with StoreWriter(unfinished, how.vocabulary, how.end_of_text) as writer:
            place_read, screened = writer.place or (None, {})
            if writer.documents:
                progress(f"{name}: goes on after {writer.documents:,} documents, {writer.bytes / 1e6:,.1f} MB")
            reading = reader.reading(name, place_read)
            dropped = _write(writer, name, reading, Counter(screened), validation, how, progress, bar)
            writer.complete(how.fingerprint, how.validation_ratio, dropped)
        unfinished.rename(place)
        flush_folder(place.parent)
    except CorpusError as error:
        raise CorpusError(f"corpora.{name}: {error}") from error
    except OSError:
        if not place.exists():
            raise
        # Another process was faster, on a file system without locks.
        shutil.rmtree(unfinished, ignore_errors=True)
    store = TokenStore.open(place)
    progress(f"{name}: {numbers(store)}, {time.monotonic() - start:.0f} s")
    if told := dropped_line(store.meta.dropped, sum(store.meta.documents.values())):
        progress(f"{name}: {told}")
    return store


def numbers(store: TokenStore) -> str:
    """What is in a store, for people."""
    meta = store.meta
    return (
        f"{sum(meta.bytes.values()) / 1e6:.1f} MB, {sum(meta.documents.values()):,} documents, "
        f"{meta.tokens['train']:,} tokens to train on, {meta.tokens['validation']:,} to validate"
    )


def dropped_line(dropped: dict[str, int], kept: int) -> str:
    """What the filters and the screen left out, for people; empty if nothing.

    >>> dropped_line({"min_characters": 20, "validation.near": 1}, 1000)
    'kept 1,000 of 1,021 documents; left out: 20 min_characters, 1 validation.near'
    """
    if not dropped:
        return ""
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(dropped.items()))
    return f"kept {kept:,} of {kept + sum(dropped.values()):,} documents; left out: {reasons}"


def _write(
    writer: StoreWriter,
    name: str,
    reading: Reading,
    screened: Counter[str],
    validation: Iterable[tuple[str, str]] | None,
    how: TokenisedBy,
    progress: Tell,
    bar: Bar | None,
) -> dict[str, int]:
    """Write all documents; returns why some were left out."""
    if validation is not None and writer.place is None:
        chunks = _chunks(validation, lambda: None)
        for chunk, encoded in encode_chunks(chunks, how.tokenizer, how.workers):
            for document in map(EncodedDocument, chunk.names, encoded.tokens, encoded.sizes):
                writer.add(document, "validation")
    chunks = _chunks(reading, lambda: (reading.place(), reading.progress()))
    marked, told = writer.bytes, time.monotonic()
    for chunk, encoded in encode_chunks(chunks, how.tokenizer, how.workers, how.screen):
        documents = map(EncodedDocument, chunk.names, encoded.tokens, encoded.sizes)
        for document, verdict in zip(documents, encoded.verdicts, strict=True):
            if verdict != KEPT:
                screened[f"validation.{verdict}"] += 1
            elif validation is None and in_validation(document.name, how.validation_ratio):
                writer.add(document, "validation")
            else:
                writer.add(document, "train")
        place_read, share = chunk.note
        if writer.bytes - marked >= MARK_BYTES:
            writer.mark([place_read, dict(screened)])
            marked = writer.bytes
        if bar:
            bar(name, writer.bytes, share)
        elif time.monotonic() - told >= _REPORT_SECONDS:
            told = time.monotonic()
            far = "" if share is None else f", {share:.0%} of the source"
            progress(f"{name}: {writer.bytes / 1e6:,.0f} MB tokenised, {writer.documents:,} documents{far}")
    return dict(Counter(reading.chooser.dropped) + screened)


def _chunks(documents: Iterable[tuple[str, str]], note: Callable[[], Any]) -> Iterator[Chunk]:
    """Documents by the megabyte; the note is taken when the last of each has been read, and no more."""
    names: list[str] = []
    texts: list[str] = []
    characters = 0
    for name, text in documents:
        names.append(name)
        texts.append(text)
        characters += len(text)
        if characters >= CHUNK_CHARACTERS:
            # Through JSON, as it will be read back: what is noted may go on changing.
            yield Chunk(names, texts, json.loads(json.dumps(note())))
            names, texts, characters = [], [], 0
    if names:
        yield Chunk(names, texts, json.loads(json.dumps(note())))
