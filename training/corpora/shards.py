"""Tokenise the shards of a corpus: each by one process, from text to token files.

A shard is a folder of parts, of which each is whole or absent; the last one says that it is. Few shards have more than
one: those of a stream or of a long compressed file. `python -m training.corpora.shards TASK TASKS FOLDER...` tokenises
every TASKS-th shard, on all cores, as a task of an array.
"""

from __future__ import annotations

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

from training.corpora.documents import CorpusError, in_validation
from training.corpora.near_duplicates import KEPT, Screen
from training.corpora.reader import Documents, Reader, Shard
from training.corpora.readers import open_reader
from training.corpora.source import Generation, Source
from training.corpora.store_writer import Part, PartWriter, Tokenisation, is_complete, part_totals, read_parts
from training.corpora.tokenizer import Chunk, Encoder
from training.durable import locked_folder, read_json, write_whole
from training.stop import spawned_processes, started_quietly

PART_BYTES = 1_000_000_000
"""Bytes of text in a part of a shard; few shards have more than one."""
CHUNK_CHARACTERS = 1_000_000

Report = Callable[[int, int, int, float | None], object]
"""Called with a shard's number, its bytes of text and documents so far, and the fraction of it that has been read."""


@dataclass(frozen=True)
class ShardedCorpus:
    """A corpus whose shards are tokenised in a folder; plan.json in it says how, for other processes."""

    folder: Path
    reader: Reader
    how: Tokenisation
    screened: bool
    """Whether screen/ of the folder drops documents."""
    shards: list[Shard]
    """With a validation set it is the first."""

    @classmethod
    def begin(cls, folder: Path, reader: Reader, how: Tokenisation, screen: Screen | None) -> ShardedCorpus:
        """Plan the shards of a corpus in a folder, made if missing, whose name says what its store is made of.

        A plan that is there stays, with its shards.

        Raises:
            CorpusError: the source cannot be used.
        """
        try:
            shards = cls.open(folder).shards
        except CorpusError:
            shutil.rmtree(folder, ignore_errors=True)
            held_out = [Shard([], 0, held_out=True)] if reader.source.validation else []
            shards = [*held_out, *reader.shards()]
            (folder / "screen").mkdir(parents=True)
            if screen:
                screen.save(folder / "screen")
        # Written anew, since the source may have been moved.
        plan = {"name": reader.name, "how": asdict(how), "screened": screen is not None, "shards": shards}
        write_whole(folder / "plan.json", json.dumps({**plan, "source": asdict(reader.source)}) + "\n")
        return cls(folder, reader, how, screen is not None, shards)

    @classmethod
    def open(cls, folder: Path) -> ShardedCorpus:
        """The corpus that was planned in a folder. Raises CorpusError: its plan.json is missing or damaged."""
        try:
            plan = read_json(folder / "plan.json")
            source = Source(**plan["source"] | {"generated": Generation(**plan["source"]["generated"])})
            shards = [Shard([(name, size) for name, size in files], *rest) for files, *rest in plan["shards"]]
            return cls(folder, open_reader(plan["name"], source), Tokenisation(**plan["how"]), plan["screened"], shards)
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            line = f"{folder}: no shards to tokenise here ({error}); run cptlaw prepare again"
            raise CorpusError(line) from error

    def parts(self, number: int) -> list[Part]:
        """The parts of a shard that are whole."""
        return read_parts(self.folder / f"{number:05d}")

    def missing_shards(self) -> list[int]:
        """Numbers of the shards that are not complete."""
        return [number for number in range(len(self.shards)) if not is_complete(self.parts(number))]

    @functools.cached_property
    def _encoder(self) -> Encoder:
        return Encoder(self.how.tokenizer, self.folder / "screen" if self.screened else None)

    def tokenise(self, number: int, report: Report = lambda *_: None, wide: bool = False) -> tuple[int, int]:
        """Write a shard, unless it is complete; whole parts that a killed process left stay.

        With `wide` all threads of the tokenizers library are used. Returns its bytes of text, and documents.

        Raises:
            CorpusError: the source cannot be used.
        """
        folder = self.folder / f"{number:05d}"
        folder.mkdir(exist_ok=True)
        # A process whose parent was killed may still be writing.
        with locked_folder(folder):
            parts = read_parts(folder)
            if not is_complete(parts):
                self._write_parts(folder, number, parts, report, wide)
        return part_totals(parts)

    def _write_parts(self, folder: Path, number: int, parts: list[Part], report: Report, wide: bool) -> None:
        """Write the parts of a shard that are missing, and add them to those that are there."""
        reader, shard = self.reader, self.shards[number]
        by_hash = reader.source.validation is None
        if shard.held_out:
            reader, shard = open_reader(reader.name, Source(path=reader.source.validation or "")), None
        reading = reader.documents(shard, parts[-1].position if parts else None)
        chunks = self._encoder.encode(_chunks(reading), screened=shard is not None, wide=wide)
        while not is_complete(parts):
            with PartWriter(folder, len(parts), self.how) as writer:
                parts.append(writer.part)
                for chunk, encoded in chunks:
                    for name, tokens, size, verdict in zip(chunk.names, *encoded, strict=True):
                        if verdict != KEPT:
                            reason = f"validation.{verdict}"
                            writer.part.screened[reason] = writer.part.screened.get(reason, 0) + 1
                            continue
                        held_out = in_validation(name, self.how.validation_ratio) if by_hash else shard is None
                        writer.add(name, tokens, size, "validation" if held_out else "train")
                    position, fraction = chunk.note
                    report(number, *part_totals(parts), fraction)
                    if part_totals([writer.part])[0] >= PART_BYTES:
                        writer.complete(position, last=False)
                        break
                else:
                    writer.complete(reading.position())
                    report(number, *part_totals(parts), None if reading.progress() is None else 1.0)


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


def run_shards(corpus: ShardedCorpus, workers: int | None, numbers: Sequence[int], report: Report) -> None:
    """Tokenise shards: one that is more than two processes' work in this process with all threads, others side by side.

    `workers` is the number of processes; None: RAYON_NUM_THREADS, as in the tokenizers library, or one per core.
    `report` is called from this thread; for a shard of another process once, when it is complete.

    Raises:
        CorpusError: the source cannot be used, or a process died, as when memory runs out.
    """
    if workers is None:
        threads = os.environ.get("RAYON_NUM_THREADS", "")
        workers = int(threads) if threads.isdigit() and int(threads) > 0 else len(os.sched_getaffinity(0))
    sizes = [shard.size for shard in corpus.shards]
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
        print(f"{corpus.reader.name}: {len(numbers)} of {len(corpus.shards)} shards to tokenise", flush=True)
        run_shards(corpus, None, numbers, lambda *_: None)


if __name__ == "__main__":
    # Other processes find its functions by its own name, not by __main__.
    from training.corpora import shards

    try:
        shards.main()
    except shards.CorpusError as error:
        sys.exit(f"{error}")
