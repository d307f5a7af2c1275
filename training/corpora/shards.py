"""Tokenise the shards of a corpus: each by one process, from text to token files.

A shard that is there is not made again. A long one, of a stream or a compressed file, is written in parts, of which
each is whole or absent. `python -m training.corpora.shards TASK TASKS FOLDER...` tokenises every TASKS-th shard, on all
cores, as a task of an array.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from training.corpora.documents import CorpusError, in_validation
from training.corpora.near_duplicates import KEPT, Screen
from training.corpora.reader import Documents, Reader, Shard
from training.corpora.readers import open_reader
from training.corpora.source import Generation, Source
from training.corpora.store_writer import Part, PartWriter, Tokenisation, part_totals, read_parts
from training.corpora.tokenizer import Chunk, Encoder
from training.durable import flush_folder, locked_folder, read_json, write_whole
from training.stop import spawned_processes, started_quietly

PART_BYTES = 1_000_000_000
"""Bytes of text in a part of a shard; few shards have more than one."""
CHUNK_CHARACTERS = 1_000_000

Report = Callable[[int, int, int, float | None], object]
"""Called with a shard's number, its bytes of text and documents so far, and the fraction of it that has been read."""


@dataclass(frozen=True)
class ShardedCorpus:
    """A corpus whose shards are tokenised in a folder; job.json in it says how, for other processes."""

    folder: Path
    reader: Reader
    how: Tokenisation
    screened: bool
    """Whether screen/ of the folder drops documents."""
    shards: list[Shard | None]
    """None: the whole source. The validation set of the source is another shard, the first."""

    @classmethod
    def begin(cls, folder: Path, reader: Reader, how: Tokenisation, screen: Screen | None) -> ShardedCorpus:
        """Plan the shards of a corpus in a folder, made if missing; shards of the same plan that are complete stay.

        Raises:
            CorpusError: the source cannot be used.
        """
        corpus = cls(folder, reader, how, screen is not None, reader.shards())
        plan = {"name": reader.name, "how": asdict(how), "screened": corpus.screened, "shards": corpus.shards}
        plan = json.loads(json.dumps(plan))
        with contextlib.suppress(CorpusError):
            # The source may have been moved.
            if {**cls._plan(folder), "source": None} != {**plan, "source": None}:
                shutil.rmtree(folder)
        (folder / "screen").mkdir(parents=True, exist_ok=True)
        if screen:
            screen.save(folder / "screen")
        write_whole(folder / "job.json", json.dumps({**plan, "source": asdict(reader.source)}) + "\n")
        return corpus

    @classmethod
    def open(cls, folder: Path) -> ShardedCorpus:
        """The corpus that was planned in a folder. Raises CorpusError: its job.json is missing or damaged."""
        plan = cls._plan(folder)
        try:
            source = Source(**plan["source"] | {"generated": Generation(**plan["source"]["generated"])})
            shards = [one and Shard([(name, size) for name, size in one[0]], *one[1:]) for one in plan["shards"]]
            return cls(folder, open_reader(plan["name"], source), Tokenisation(**plan["how"]), plan["screened"], shards)
        except (TypeError, KeyError, AttributeError) as error:
            raise _no_plan(folder, error) from error

    @staticmethod
    def _plan(folder: Path) -> dict[str, Any]:
        try:
            return read_json(folder / "job.json")
        except (OSError, ValueError) as error:
            raise _no_plan(folder, error) from error

    @property
    def sizes(self) -> list[int]:
        """Relative sizes of all shards: bytes on disk of files; a validation set counts for nothing."""
        return [0] * bool(self.reader.source.validation) + [shard.size if shard else 1 for shard in self.shards]

    def shard_folder(self, number: int, complete: bool = True) -> Path:
        """Where a shard is once it is complete, or while it is written."""
        return self.folder / (f"{number:05d}" if complete else f"{number:05d}.part")

    def missing_shards(self) -> list[int]:
        """Numbers of the shards that are not complete."""
        return [number for number in range(len(self.sizes)) if not self.shard_folder(number).exists()]

    @functools.cached_property
    def _encoder(self) -> Encoder:
        return Encoder(self.how.tokenizer, self.folder / "screen" if self.screened else None)

    def tokenise(self, number: int, report: Report = lambda *_: None, wide: bool = False) -> tuple[int, int]:
        """Write a shard, unless it is complete; whole parts that a killed process left stay.

        With `wide` all threads of the tokenizers library are used. Returns its bytes of text, and documents.

        Raises:
            CorpusError: the source cannot be used.
        """
        complete, unfinished = self.shard_folder(number), self.shard_folder(number, complete=False)
        unfinished.mkdir(exist_ok=True)
        # A process whose parent was killed may still be writing.
        with locked_folder(unfinished):
            if not complete.exists():
                self._write_parts(unfinished, number, report, wide)
                unfinished.rename(complete)
                flush_folder(self.folder)
        return part_totals(read_parts(complete))

    def _write_parts(self, folder: Path, number: int, report: Report, wide: bool) -> None:
        """Write the parts of a shard that are missing."""
        parts = read_parts(folder)
        validation = self.reader.source.validation
        held_out = number == 0 and validation is not None
        reading = self._documents(number, parts[-1].position if parts else None)
        chunks = self._encoder.encode(_chunks(reading), screened=not held_out, wide=wide)
        while not (parts and parts[-1].last):
            with PartWriter(folder, len(parts), self.how) as writer:
                parts.append(writer.part)
                for chunk, encoded in chunks:
                    for name, tokens, size, verdict in zip(chunk.names, *encoded, strict=True):
                        if verdict != KEPT:
                            reason = f"validation.{verdict}"
                            writer.part.screened[reason] = writer.part.screened.get(reason, 0) + 1
                            continue
                        by_hash = validation is None and in_validation(name, self.how.validation_ratio)
                        writer.add(name, tokens, size, "validation" if held_out or by_hash else "train")
                    position, fraction = chunk.note
                    report(number, *part_totals(parts), fraction)
                    if part_totals([writer.part])[0] >= PART_BYTES:
                        writer.complete(position, last=False)
                        break
                else:
                    writer.complete(reading.position())
                    report(number, *part_totals(parts), None if reading.progress() is None else 1.0)

    def _documents(self, number: int, position: Any) -> Documents:
        """The documents of a shard after a position; None: from its first."""
        validation = self.reader.source.validation
        if validation is None:
            return self.reader.documents(self.shards[number], position)
        if number > 0:
            return self.reader.documents(self.shards[number - 1], position)
        return open_reader(self.reader.name, Source(path=validation)).documents(position=position)

    def parts(self) -> list[list[Part]]:
        """The parts of each shard, all of which must be complete."""
        return [read_parts(self.shard_folder(number)) for number in range(len(self.sizes))]


def _no_plan(folder: Path, error: Exception) -> CorpusError:
    return CorpusError(f"{folder}: no shards to tokenise here ({error}); run cptlaw prepare again")


def _chunks(documents: Documents) -> Iterator[Chunk]:
    """Chunks of a megabyte of documents, each noted with position and progress after its last one."""

    def noted() -> Chunk:
        # A copy, through JSON as it will be read back: the reader changes what it returned.
        return chunk._replace(note=json.loads(json.dumps([documents.position(), documents.progress()])))

    chunk, characters = Chunk([], []), 0
    for name, text in documents:
        chunk.names.append(name)
        chunk.texts.append(text)
        characters += len(text)
        if characters >= CHUNK_CHARACTERS:
            yield noted()
            chunk, characters = Chunk([], []), 0
    if chunk.names:
        yield noted()


def core_count() -> int:
    """Number of cores for tokenising: RAYON_NUM_THREADS, as in the tokenizers library, or all of this process."""
    threads = os.environ.get("RAYON_NUM_THREADS", "")
    return int(threads) if threads.isdigit() and int(threads) > 0 else len(os.sched_getaffinity(0))


def run_shards(corpus: ShardedCorpus, workers: int | None, numbers: Sequence[int], report: Report) -> None:
    """Tokenise shards: one that is more than two processes' work in this process with all threads, others side by side.

    `workers` is the number of processes, None: one per core. `report` is called from this thread; for a shard of
    another process once, when it is complete.

    Raises:
        CorpusError: the source cannot be used, or a process died, as when memory runs out.
    """
    workers = core_count() if workers is None else workers
    sizes = corpus.sizes
    total = sum(sizes[number] for number in numbers)
    # The largest first, so that no process is left with it when the others are done.
    numbers = sorted(numbers, key=lambda number: -sizes[number])
    apart = [number for number in numbers if workers > 1 and sizes[number] * workers < 2 * total]
    if len(apart) == 1:
        apart = []
    for number in numbers:
        if number not in apart:
            corpus.tokenise(number, report, wide=workers > 1)
    if apart:
        with spawned_processes(min(workers, len(apart))) as pool:
            try:
                # A process that dies while others start ends it here already.
                with started_quietly():
                    futures = {pool.submit(_tokenise_apart, corpus.folder, number): number for number in apart}
                for future in as_completed(futures):
                    report(futures[future], *future.result(), 1.0)
            except BrokenProcessPool as error:
                raise CorpusError(
                    "a tokenising process was killed, as when memory runs out; try again with fewer processes, "
                    "RAYON_NUM_THREADS=1"
                ) from error


def _tokenise_apart(folder: Path, number: int) -> tuple[int, int]:
    """Tokenise a shard in a process of its own; returns its bytes of text and documents."""
    return _opened(folder).tokenise(number)


_opened = functools.cache(ShardedCorpus.open)


def main() -> None:
    """Tokenise what is missing of a task's shards, as a task of an array: every TASKS-th shard of each corpus."""
    task, tasks = int(sys.argv[1]), int(sys.argv[2])
    for corpus in map(ShardedCorpus.open, map(Path, sys.argv[3:])):
        numbers = [number for number in corpus.missing_shards() if number % tasks == task]
        print(f"{corpus.reader.name}: {len(numbers)} of {len(corpus.sizes)} shards to tokenise", flush=True)
        run_shards(corpus, None, numbers, lambda *_: None)


if __name__ == "__main__":
    # Other processes find its functions by its own name, not by __main__.
    from training.corpora import shards

    try:
        shards.main()
    except shards.CorpusError as error:
        sys.exit(f"{error}")
