"""Make the token store of one corpus: its shards tokenised on all cores, then merged; resumed after a kill."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from training.corpora.documents import CorpusError
from training.corpora.near_duplicates import Screen
from training.corpora.reader import Reader, nothing_found
from training.corpora.shards import ShardedCorpus, missing_shards, run_shards, shard_folder
from training.corpora.store import SPLITS, TokenStore
from training.corpora.store_writer import merge_parts, part_totals, read_parts
from training.durable import flush_folder, write_whole

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
    """Fingerprint of the tokenizer."""
    vocabulary: int
    """Number of token ids."""
    end_of_text: int
    """Token id that follows every document."""
    validation_ratio: float
    """Ratio of the documents held out, where no validation set is given."""
    screen: Screen | None = None
    """Screen of the validation sets; None: no sets."""
    workers: int | None = None
    """Processes; None: one per core."""
    progress: Log = print
    """Called with messages."""
    bar: Bar | None = None
    """Without it `progress` is called every half minute."""


def existing_store(folder: Path) -> TokenStore | None:
    """The complete store in a folder, or None; a damaged one is removed."""
    if folder.exists():
        with contextlib.suppress(CorpusError):
            return TokenStore.open(folder)
        shutil.rmtree(folder)
    return None


def begin_store(reader: Reader, how: Tokenisation, unfinished: Path) -> ShardedCorpus:
    """Plan the shards of a corpus in a folder, from which any process can tokenise them; complete ones stay.

    Args:
        reader: of the corpus. Documents of its validation set become its validation split; without a set it is a ratio
            of its documents, by a hash of their ids.
        how: tokenizer and split.
        unfinished: the folder; made if missing.

    Raises:
        CorpusError: the source cannot be used.
    """
    rules = (how.vocabulary, how.end_of_text, how.validation_ratio, how.screen is not None)
    corpus = ShardedCorpus(reader.name, reader.source, *rules, reader.shards())
    with contextlib.suppress(CorpusError):
        if replace(ShardedCorpus.read(unfinished), source=reader.source) != corpus:
            shutil.rmtree(unfinished)
    (unfinished / "screen").mkdir(parents=True, exist_ok=True)
    write_whole(unfinished / "tokenizer.json", how.tokenizer)
    if how.screen:
        how.screen.save(unfinished / "screen")
    corpus.write(unfinished)
    return corpus


def make_store(folder: Path, reader: Reader, how: Tokenisation, unfinished: Path) -> TokenStore:
    """Make the token store of a corpus, which does not depend on the number of processes.

    Args:
        folder: of the store; appears when it is complete.
        reader, how: as those of `begin_store`.
        unfinished: folder in which the store is written; what a killed process left there is continued.

    Raises:
        CorpusError: the source cannot be used.
    """
    name, start = reader.name, time.monotonic()
    try:
        # A killed process may have merged the shards and begun to remove them.
        if not (unfinished / "meta.json").exists():
            corpus = begin_store(reader, how, unfinished)
            progress = _Progress(corpus, how, unfinished)
            run_shards(unfinished, corpus, reader, how.workers, missing_shards(unfinished, corpus), progress)
            _merge(unfinished, corpus, how)
        for left in unfinished.iterdir():
            if left.name not in ("meta.json", *(f"{split}.bin" for split in SPLITS)):
                shutil.rmtree(left) if left.is_dir() else left.unlink()
        unfinished.rename(folder)
        flush_folder(folder.parent)
    except CorpusError as error:
        raise CorpusError(f"corpora.{name}: {error}") from error
    except OSError:
        if not folder.exists():
            raise
        # Another process completed it first, on a file system without locks.
        shutil.rmtree(unfinished, ignore_errors=True)
    store = TokenStore.open(folder)
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


def _merge(folder: Path, corpus: ShardedCorpus, how: Tokenisation) -> None:
    shards = [read_parts(shard_folder(folder, number)) for number in range(len(corpus.sizes))]
    parts = [part for shard in shards for part in shard]
    read = shards[-len(corpus.shards) :]
    dropped = sum((Counter(shard[-1].position[2]) for shard in read), Counter[str]())
    if not any(part_totals(shard)[1] or any(part.screened for part in shard) for shard in read):
        raise nothing_found(corpus.source, dropped)
    rules = how.vocabulary, how.end_of_text, how.fingerprint, how.validation_ratio
    merge_parts(folder, parts, *rules, dropped)


class _Progress:
    """Passes the progress of all shards of a corpus on, to the bar or every half minute to `progress`."""

    def __init__(self, corpus: ShardedCorpus, how: Tokenisation, folder: Path) -> None:
        self._corpus, self._how = corpus, how
        self._reported = time.monotonic()
        self._shards: dict[int, tuple[int, int, float | None]] = {}
        for number in range(len(corpus.sizes)):
            for complete in (False, True):
                if parts := read_parts(shard_folder(folder, number, complete)):
                    self._shards[number] = *part_totals(parts), float(complete)
        size, documents, _ = self._sums()
        if documents:
            how.progress(f"{corpus.name}: resumes after {documents:,} documents, {size / 1e6:,.1f} MB")

    def __call__(self, number: int, size: int, documents: int, fraction: float | None) -> None:
        self._shards[number] = size, documents, fraction
        size, documents, fraction = self._sums()
        name = self._corpus.name
        if self._how.bar:
            self._how.bar(name, size, fraction)
        elif time.monotonic() - self._reported >= _REPORT_SECONDS:
            self._reported = time.monotonic()
            of_source = "" if fraction is None else f", {fraction:.0%} of the source"
            self._how.progress(f"{name}: {size / 1e6:,.0f} MB tokenised, {documents:,} documents{of_source}")

    def _sums(self) -> tuple[int, int, float | None]:
        """Bytes of text, documents, and fraction of the source."""
        sizes, counts, fractions = zip(*self._shards.values(), strict=True) if self._shards else ((), (), ())
        weights = self._corpus.sizes
        if None in fractions:
            return sum(sizes), sum(counts), None
        read = sum(weights[number] * fraction for number, fraction in zip(self._shards, fractions, strict=True))
        return sum(sizes), sum(counts), read / max(sum(weights), 1)
