"""Make the token store of one corpus: tokenised on all cores, resumed from the last mark after a kill."""

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
"""Bytes of text between two marks: the most that a kill loses."""
_REPORT_SECONDS = 30.0

Log = Callable[[str], object]
Bar = Callable[[str, int, float | None], object]
"""Called with a corpus' name, the bytes of text tokenised, and the fraction of its source read, 0 to 1, or None."""


@dataclass(frozen=True)
class Tokenisation:
    """How documents become a token store."""

    tokenizer: str
    """A tokenizers-library tokenizer as JSON."""
    fingerprint: str
    """Of the tokenizer."""
    vocabulary: int
    """Number of token ids."""
    end_of_text: int
    """Token id that follows every document."""
    validation_ratio: float
    """Ratio of the documents held out, where no validation set is given."""
    screen: Path | None = None
    """Folder of the saved screen against the validation sets; None: no sets."""
    workers: int | None = None
    """Processes; None: one per core."""
    progress: Log = print
    """Called with messages."""
    bar: Bar | None = None
    """Without it `progress` is called every half minute."""


def existing_store(place: Path) -> TokenStore | None:
    """The complete store at a place, or None; a damaged one is removed."""
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
    how: Tokenisation,
    unfinished: Path,
) -> TokenStore:
    """Make the token store of a corpus.

    Args:
        place: folder of the store; appears when it is complete.
        name, reader: of the corpus, and what reads its documents.
        validation: documents of its validation set, which become its validation split; None: a ratio of its documents,
            by a hash of their ids.
        how: tokenizer and split.
        unfinished: folder in which the store is written; what a killed process left there is continued.

    Raises:
        CorpusError: the source cannot be used.
    """
    start = time.monotonic()
    try:
        unfinished.mkdir(parents=True, exist_ok=True)
        with StoreWriter(unfinished, how.vocabulary, how.end_of_text) as writer:
            place_read, screened = writer.place or (None, {})
            if writer.documents:
                how.progress(f"{name}: resumes after {writer.documents:,} documents, {writer.bytes / 1e6:,.1f} MB")
            reading = reader.reading(name, place_read)
            dropped = _write(writer, name, reading, Counter(screened), validation, how)
            writer.complete(how.fingerprint, how.validation_ratio, dropped)
        unfinished.rename(place)
        flush_folder(place.parent)
    except CorpusError as error:
        raise CorpusError(f"corpora.{name}: {error}") from error
    except OSError:
        if not place.exists():
            raise
        # Another process completed it first, on a file system without locks.
        shutil.rmtree(unfinished, ignore_errors=True)
    store = TokenStore.open(place)
    how.progress(f"{name}: {store_summary(store)}, {time.monotonic() - start:.0f} s")
    if dropped_text := dropped_line(store.meta.dropped, sum(store.meta.documents.values())):
        how.progress(f"{name}: {dropped_text}")
    return store


def store_summary(store: TokenStore) -> str:
    """Size of a store, as text."""
    meta = store.meta
    return (
        f"{sum(meta.bytes.values()) / 1e6:.1f} MB, {sum(meta.documents.values()):,} documents, "
        f"{meta.tokens['train']:,} tokens to train on, {meta.tokens['validation']:,} to validate"
    )


def dropped_line(dropped: dict[str, int], kept: int) -> str:
    """Documents dropped by filters and screen, as text; empty if none.

    >>> dropped_line({"min_characters": 20, "validation.near": 1}, 1000)
    'kept 1,000 of 1,021 documents; dropped: 20 min_characters, 1 validation.near'
    """
    if not dropped:
        return ""
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(dropped.items()))
    return f"kept {kept:,} of {kept + sum(dropped.values()):,} documents; dropped: {reasons}"


def _write(
    writer: StoreWriter,
    name: str,
    reading: Reading,
    screened: Counter[str],
    validation: Iterable[tuple[str, str]] | None,
    how: Tokenisation,
) -> dict[str, int]:
    """Write all documents; returns reason -> documents dropped."""
    if validation is not None and writer.place is None:
        for chunk, encoded in encode_chunks(_chunks(validation, lambda: None), how.tokenizer, how.workers):
            for document in map(EncodedDocument, chunk.names, encoded.tokens, encoded.sizes):
                writer.add(document, "validation")
    chunks = _chunks(reading, lambda: (reading.place(), reading.progress()))
    marked, reported = writer.bytes, time.monotonic()
    for chunk, encoded in encode_chunks(chunks, how.tokenizer, how.workers, how.screen):
        documents = map(EncodedDocument, chunk.names, encoded.tokens, encoded.sizes)
        for document, verdict in zip(documents, encoded.verdicts, strict=True):
            if verdict != KEPT:
                screened[f"validation.{verdict}"] += 1
            else:
                held_out = validation is None and in_validation(document.name, how.validation_ratio)
                writer.add(document, "validation" if held_out else "train")
        place_read, fraction = chunk.note
        if writer.bytes - marked >= MARK_BYTES:
            writer.mark([place_read, dict(screened)])
            marked = writer.bytes
        if how.bar:
            how.bar(name, writer.bytes, fraction)
        elif time.monotonic() - reported >= _REPORT_SECONDS:
            reported = time.monotonic()
            of_source = "" if fraction is None else f", {fraction:.0%} of the source"
            how.progress(f"{name}: {writer.bytes / 1e6:,.0f} MB tokenised, {writer.documents:,} documents{of_source}")
    return dict(Counter(reading.chooser.dropped) + screened)


def _chunks(documents: Iterable[tuple[str, str]], note: Callable[[], Any]) -> Iterator[Chunk]:
    """Chunks of a megabyte of documents; `note` is called when the last document of a chunk has been read."""
    chunk, characters = Chunk([], []), 0
    for name, text in documents:
        chunk.names.append(name)
        chunk.texts.append(text)
        characters += len(text)
        if characters >= CHUNK_CHARACTERS:
            # A copy, through JSON as it will be read back: the reader changes what it returned.
            yield chunk._replace(note=json.loads(json.dumps(note())))
            chunk, characters = Chunk([], []), 0
    if chunk.names:
        yield chunk._replace(note=json.loads(json.dumps(note())))
