"""Make the token store of one corpus: its shards tokenised on all cores, then merged; resumed after a kill."""

import contextlib
import shutil
import time
from collections import Counter
from pathlib import Path

from training.corpora.documents import CorpusError
from training.corpora.near_duplicates import Screen
from training.corpora.reader import Reader, nothing_kept
from training.corpora.shards import ShardedCorpus, run_shards
from training.corpora.store import StoreMeta, TokenStore
from training.corpora.store_writer import Tokenisation, merge_parts, part_totals
from training.durable import flush_folder

_REPORT_SECONDS = 30.0


def existing_store(folder: Path) -> TokenStore | None:
    """The complete store in a folder, or None; a damaged one is removed."""
    if folder.exists():
        with contextlib.suppress(CorpusError):
            return TokenStore.open(folder)
        shutil.rmtree(folder)
    return None


def make_store(
    folder: Path,
    unfinished: Path,
    reader: Reader,
    how: Tokenisation,
    screen: Screen | None = None,
    workers: int | None = None,
) -> TokenStore:
    """Make the token store of a corpus, which does not depend on the number of processes.

    Args:
        folder: of the store; appears when it is complete.
        unfinished: folder in which the store is written; what a killed process left there is continued.
        reader: of the corpus. Documents of its validation set become its validation split; without a set it is a ratio
            of its documents, by a hash of their ids.
        how, screen: how documents become tokens, and which of them are dropped.
        workers: processes; None: one per core.

    Raises:
        CorpusError: the source cannot be used.
    """
    name, start = reader.name, time.monotonic()
    try:
        merged = unfinished / "store"
        # A killed process may have merged the shards.
        if not (merged / "meta.json").exists():
            corpus = ShardedCorpus.begin(unfinished, reader, how, screen)
            run_shards(corpus, workers, corpus.missing_shards(), _Progress(corpus))
            parts = [corpus.parts(number) for number in range(len(corpus.shards))]
            read = [of_shard for of_shard, shard in zip(parts, corpus.shards, strict=True) if not shard.held_out]
            dropped = sum((Counter(of_shard[-1].position[2]) for of_shard in read), Counter[str]())
            if not any(part_totals(of_shard)[1] or any(part.screened for part in of_shard) for of_shard in read):
                raise nothing_kept(reader.source, dropped)
            merged.mkdir(exist_ok=True)
            merge_parts(merged, [part for of_shard in parts for part in of_shard], how, dropped)
        merged.rename(folder)
        flush_folder(folder.parent)
    except CorpusError as error:
        raise CorpusError(f"corpora.{name}: {error}") from error
    except OSError:
        if not folder.exists():
            raise
        # Another process completed it first, on a file system without locks.
    shutil.rmtree(unfinished, ignore_errors=True)
    store = TokenStore.open(folder)
    meta = store.meta
    reader.log(f"{name}: {store_summary(meta)}, {time.monotonic() - start:.0f} s")
    apart, asked = meta.tokens["validation"] / max(sum(meta.tokens.values()), 1), meta.validation_ratio
    if apart < asked / 2 and not reader.source.validation:
        reader.log(
            f"{name}: {apart:.1%} of the tokens validate, where {asked:.0%} was asked: whole documents are set apart, "
            "and few long ones hold much of the text (a .txt file is one document; .jsonl has one a line)"
        )
    if meta.dropped:
        kept, dropped = sum(meta.documents.values()), sum(meta.dropped.values())
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(meta.dropped.items()))
        reader.log(f"{name}: kept {kept:,} of {kept + dropped:,} documents; dropped: {reasons}")
    return store


def store_summary(meta: StoreMeta) -> str:
    """Size of a store, as text."""
    return (
        f"{sum(meta.bytes.values()) / 1e6:.1f} MB, {sum(meta.documents.values()):,} documents, "
        f"{meta.tokens['train']:,} tokens to train on, {meta.tokens['validation']:,} to validate"
    )


class _Progress:
    """Passes the progress of all shards of a corpus on, to its reader's bar or every half minute to its log."""

    def __init__(self, corpus: ShardedCorpus) -> None:
        self._reader, self._weights = corpus.reader, [shard.size for shard in corpus.shards]
        self._reported = time.monotonic()
        self._shards: dict[int, tuple[int, int, float | None]] = {}
        for number in range(len(corpus.shards)):
            if parts := corpus.parts(number):
                self._shards[number] = *part_totals(parts), float(parts[-1].last)
        size, documents, _ = self._sums()
        if documents:
            self._reader.log(f"{self._reader.name}: resumes after {documents:,} documents, {size / 1e6:,.1f} MB")

    def __call__(self, number: int, size: int, documents: int, fraction: float | None) -> None:
        self._shards[number] = size, documents, fraction
        size, documents, fraction = self._sums()
        name = self._reader.name
        if self._reader.bar:
            self._reader.bar(name, size, fraction)
        elif time.monotonic() - self._reported >= _REPORT_SECONDS:
            self._reported = time.monotonic()
            of_source = "" if fraction is None else f", {fraction:.0%} of the source"
            self._reader.log(f"{name}: {size / 1e6:,.0f} MB tokenised, {documents:,} documents{of_source}")

    def _sums(self) -> tuple[int, int, float | None]:
        """Bytes of text, documents, and fraction of the source."""
        read, weights = self._shards, self._weights
        fractions = [weights[number] * fraction for number, (*_, fraction) in read.items() if fraction is not None]
        known = len(fractions) == len(read)
        size, documents = sum(size for size, _, _ in read.values()), sum(count for _, count, _ in read.values())
        return size, documents, sum(fractions) / max(sum(weights), 1) if known else None
