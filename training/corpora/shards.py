"""Tokenise the shards of a corpus: each by one process, from text to token files.

A shard that is there is not made again. A long one, of a stream or a compressed file, is written in parts, of which
each is whole or absent. `python -m training.corpora.shards TASK TASKS FOLDER...` tokenises every TASKS-th shard, on all
cores, as a task of an array.
"""

from __future__ import annotations

import functools
import itertools
import json
import multiprocessing
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from training.corpora.documents import CorpusError, in_validation
from training.corpora.near_duplicates import KEPT
from training.corpora.reader import Documents, Reader, Shard
from training.corpora.readers import open_reader
from training.corpora.source import Generation, Source
from training.corpora.store_writer import EncodedDocument, Part, PartWriter, part_totals, read_parts
from training.corpora.tokenizer import Chunk, Encoder
from training.durable import flush_folder, locked_folder, write_whole

PART_BYTES = 1_000_000_000
"""Bytes of text in a part of a shard; few shards have more than one."""
CHUNK_CHARACTERS = 1_000_000

Report = Callable[[int, int, int, float | None], object]
"""Called with a shard's number, its bytes of text and documents so far, and the fraction of it that has been read."""


@dataclass(frozen=True)
class ShardedCorpus:
    """How the documents of a corpus become shards; in job.json of the folder that holds them."""

    name: str
    """Name of the corpus."""
    source: Source
    vocabulary: int
    """Number of token ids; the tokenizer is tokenizer.json of the folder."""
    end_of_text: int
    """Token id that follows every document."""
    validation_ratio: float
    """Ratio of the documents held out, by a hash of their ids, where no validation set is given."""
    screened: bool
    """Whether screen/ of the folder drops documents."""
    shards: list[Shard | None]
    """None: the whole source. The validation set of the source is another shard, the first."""

    @property
    def sizes(self) -> list[int]:
        """Relative sizes of all shards: bytes on disk of files; a validation set counts for nothing."""
        return [0] * bool(self.source.validation) + [shard.size if shard else 1 for shard in self.shards]

    def holds_out(self, name: str) -> bool:
        """Whether a document of the source belongs to the validation split."""
        return self.source.validation is None and in_validation(name, self.validation_ratio)

    def write(self, folder: Path) -> None:
        """Write job.json."""
        write_whole(folder / "job.json", json.dumps(asdict(self)) + "\n")

    @classmethod
    def read(cls, folder: Path) -> ShardedCorpus:
        """Read job.json of a folder.

        Raises:
            CorpusError: missing or damaged.
        """
        try:
            fields = json.loads((folder / "job.json").read_bytes())
            source = fields.pop("source")
            generated = Generation(**source.pop("generated"))
            shards = [
                shard and Shard([(name, size) for name, size in shard[0]], *shard[1:]) for shard in fields["shards"]
            ]
            return cls(**fields | {"source": Source(generated=generated, **source), "shards": shards})
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise CorpusError(f"{folder}: no shards to tokenise here ({error}); run cptlaw prepare again") from error

    def documents(self, number: int, reader: Reader, position: Any) -> Documents:
        """The documents of a shard after a position; None: from its first."""
        if self.source.validation is None:
            return reader.documents(self.shards[number], position)
        if number > 0:
            return reader.documents(self.shards[number - 1], position)
        return open_reader(self.name, Source(path=self.source.validation)).documents(position=position)


def core_count() -> int:
    """Number of cores for tokenising: RAYON_NUM_THREADS, as in the tokenizers library, or all of this process."""
    threads = os.environ.get("RAYON_NUM_THREADS", "")
    return int(threads) if threads.isdigit() and int(threads) > 0 else len(os.sched_getaffinity(0))


def shard_folder(folder: Path, number: int, complete: bool = True) -> Path:
    """Where a shard is once it is complete, or while it is written."""
    return folder / (f"{number:05d}" if complete else f"{number:05d}.part")


def missing_shards(folder: Path, corpus: ShardedCorpus) -> list[int]:
    """Numbers of the shards that are not complete."""
    return [number for number in range(len(corpus.sizes)) if not shard_folder(folder, number).exists()]


def run_shards(
    folder: Path,
    corpus: ShardedCorpus,
    reader: Reader,
    workers: int | None,
    numbers: Sequence[int],
    report: Report,
) -> None:
    """Tokenise shards: one that is more than two processes' work in this process with all threads, others side by side.

    Args:
        folder, corpus, reader: where the shards are, how they are made, and what reads the source in this process.
        workers: processes; None: one per core.
        numbers: of the shards.
        report: called from this thread; for a shard of another process once, when it is complete.

    Raises:
        CorpusError: the source cannot be used, or a process died, as when memory runs out.
    """
    workers = core_count() if workers is None else workers
    total = sum(corpus.sizes[number] for number in numbers)
    # The largest first, so that no process is left with it when the others are done.
    numbers = sorted(numbers, key=lambda number: -corpus.sizes[number])
    wide = [number for number in numbers if workers > 1 and corpus.sizes[number] * workers >= 2 * total]
    apart = [number for number in numbers if number not in wide]
    if workers == 1 or len(apart) == 1:
        apart = []
    here = [number for number in numbers if number not in apart]
    if here:
        encoder = _encoder(folder, corpus)
        for number in here:
            tokenise_shard(folder, corpus, reader, encoder, number, report, number in wide)
    if apart:
        with _processes(min(workers, len(apart))) as pool:
            with _started_quietly():
                futures = {pool.submit(_tokenise_apart, folder, number): number for number in apart}
            for future in as_completed(futures):
                report(futures[future], *future.result(), 1.0)


@contextmanager
def _processes(count: int) -> Iterator[ProcessPoolExecutor]:
    others = {*multiprocessing.active_children()}
    # Not forked, because this process has threads.
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _begin)
    try:
        yield pool
    except BrokenProcessPool as error:
        raise CorpusError(
            "a tokenising process was killed, as when memory runs out; try again with fewer processes, "
            "RAYON_NUM_THREADS=1"
        ) from error
    finally:
        # A shard can be killed at any moment, and these have none left or one that cannot be used.
        for process in {*multiprocessing.active_children()} - others:
            process.kill()
        pool.shutdown()


@contextmanager
def _started_quietly() -> Iterator[None]:
    """Start processes that get no signal before `_begin`, and do not import the caller's script: it needs no guard."""
    main, threads = sys.modules["__main__"], os.environ.get("OMP_NUM_THREADS")
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    sys.modules["__main__"] = ModuleType("__main__")
    # Importing numpy starts a thread a core.
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        os.environ.pop("OMP_NUM_THREADS")
        os.environ |= {} if threads is None else {"OMP_NUM_THREADS": threads}
        sys.modules["__main__"] = main
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _begin() -> None:
    # Ctrl-C reaches the whole process group, and the parent decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _tokenise_apart(folder: Path, number: int) -> tuple[int, int]:
    """Tokenise a shard in a process of its own; returns its bytes of text and documents."""
    return tokenise_shard(folder, *_opened(folder), number)


@functools.cache
def _opened(folder: Path) -> tuple[ShardedCorpus, Reader, Encoder]:
    corpus = ShardedCorpus.read(folder)
    return corpus, open_reader(corpus.name, corpus.source), _encoder(folder, corpus)


def tokenise_shard(
    folder: Path,
    corpus: ShardedCorpus,
    reader: Reader,
    encoder: Encoder,
    number: int,
    report: Report = lambda *_: None,
    wide: bool = False,
) -> tuple[int, int]:
    """Write a shard, unless it is complete; whole parts that a killed process left stay.

    Returns:
        Its bytes of text, and documents.

    Raises:
        CorpusError: the source cannot be used.
    """
    complete, unfinished = shard_folder(folder, number), shard_folder(folder, number, complete=False)
    unfinished.mkdir(exist_ok=True)
    # A process whose parent was killed may still be writing.
    with locked_folder(unfinished):
        if not complete.exists():
            parts = read_parts(unfinished)
            if not (parts and parts[-1].last):
                _write_parts(unfinished, parts, corpus, number, reader, encoder, report, wide)
            unfinished.rename(complete)
            flush_folder(folder)
    return part_totals(read_parts(complete))


def _write_parts(
    shard: Path,
    parts: list[Part],
    corpus: ShardedCorpus,
    number: int,
    reader: Reader,
    encoder: Encoder,
    report: Report,
    wide: bool,
) -> None:
    """Write the parts of a shard that follow on those given."""
    reading = corpus.documents(number, reader, parts[-1].position if parts else None)
    held_out = number == 0 and corpus.source.validation is not None
    chunks = _chunks(reading, lambda: (reading.position(), reading.progress()))
    encoded_chunks = encoder.encode(chunks, screened=not held_out, wide=wide)
    size, documents = part_totals(parts)
    for index in itertools.count(len(parts)):
        screened: Counter[str] = Counter()
        with PartWriter(shard, index, corpus.vocabulary, corpus.end_of_text) as writer:
            for chunk, encoded in encoded_chunks:
                for name, tokens, length, verdict in zip(chunk.names, *encoded, strict=True):
                    if verdict != KEPT:
                        screened[f"validation.{verdict}"] += 1
                    else:
                        split = "validation" if held_out or corpus.holds_out(name) else "train"
                        writer.add(EncodedDocument(name, tokens, length), split)
                position, fraction = chunk.note
                written, count = part_totals([writer.part])
                report(number, size + written, documents + count, fraction)
                if written >= PART_BYTES:
                    writer.complete(position, screened, last=False)
                    size, documents = size + written, documents + count
                    break
            else:
                writer.complete(reading.position(), screened)
                written, count = part_totals([writer.part])
                report(number, size + written, documents + count, None if reading.progress() is None else 1.0)
                return


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


def _encoder(folder: Path, corpus: ShardedCorpus) -> Encoder:
    return Encoder((folder / "tokenizer.json").read_text(), folder / "screen" if corpus.screened else None)


def main() -> None:
    """Tokenise what is missing of a task's shards, as a task of an array: every TASKS-th shard of each corpus."""
    task, tasks = int(sys.argv[1]), int(sys.argv[2])
    for folder in map(Path, sys.argv[3:]):
        corpus = ShardedCorpus.read(folder)
        numbers = [number for number in missing_shards(folder, corpus) if number % tasks == task]
        print(f"{corpus.name}: {len(numbers)} of {len(corpus.sizes)} shards to tokenise", flush=True)
        reader = open_reader(corpus.name, corpus.source)
        run_shards(folder, corpus, reader, None, numbers, lambda *_: None)


if __name__ == "__main__":
    # Other processes find its functions by its own name, not by __main__.
    from training.corpora import shards

    try:
        shards.main()
    except shards.CorpusError as error:
        sys.exit(f"{error}")
