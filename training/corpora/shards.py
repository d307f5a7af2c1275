"""Tokenise the shards of a corpus: each by one process from text to token files, whole or absent.

A shard that is being written is continued from its last mark after a kill. `python -m training.corpora.shards TASK
TASKS FOLDER...` tokenises every TASKS-th shard, on all cores, as a task of an array; shards that are there are skipped.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from training.corpora.documents import CorpusError, in_validation
from training.corpora.filters import Chooser, Reading
from training.corpora.generation import Generation
from training.corpora.near_duplicates import KEPT
from training.corpora.source import Source, SourceReader
from training.corpora.store_writer import EncodedDocument, StoreWriter
from training.corpora.text_files import FileReading, Shard
from training.corpora.tokenizer import Chunk, Encoder
from training.durable import flush_folder, locked_folder, write_whole

MARK_BYTES = 64_000_000
"""Bytes of text between two marks: the most that a kill loses of a shard."""
CHUNK_CHARACTERS = 1_000_000

Report = Callable[[int, int, int, float | None], object]
"""Called with a shard's number, its bytes of text and documents so far, and the fraction of it that has been read."""


@dataclass(frozen=True)
class ShardedCorpus:
    """How the documents of a corpus become shards; in job.json of the folder that holds them."""

    name: str
    """Of the corpus."""
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

    def reading(self, number: int, reader: SourceReader, place: Any) -> Reading:
        """The documents of a shard after a place; None: from its first."""
        if self.source.validation is None:
            return reader.reading(self.name, place, self.shards[number])
        if number > 0:
            return reader.reading(self.name, place, self.shards[number - 1])
        position, dropped = place or (None, None)
        return FileReading(self.source.validation, chooser=Chooser(None, dropped), position=position)


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
    reader: SourceReader,
    workers: int | None,
    numbers: Sequence[int],
    report: Report,
) -> None:
    """Tokenise shards in processes of their own, the largest first; a single one, or few cores' work, in this process.

    Args:
        folder, corpus, reader: where the shards are, how they are made, and what reads the source in this process.
        workers: processes; None: one per core. A shard that would be more than two processes' work has all threads.
        numbers: of the shards.
        report: called from this thread.

    Raises:
        CorpusError: the source cannot be used, or a worker died, as when memory runs out.
    """
    workers = core_count() if workers is None else workers
    total = sum(corpus.sizes[number] for number in numbers)
    jobs = deque(
        (number, workers > 1 and corpus.sizes[number] * workers >= 2 * total)
        for number in sorted(numbers, key=lambda number: -corpus.sizes[number])
    )
    if workers == 1 or sum(corpus.sizes[number] > 0 for number in numbers) <= 1:
        encoder = _encoder(folder, corpus)
        for number, wide in jobs:
            tokenise_shard(folder, corpus, number, reader, encoder, report, wide)
        return
    events: SimpleQueue[tuple[int, int, int, float | None] | Exception | None] = SimpleQueue()

    def serve(process: subprocess.Popen[str]) -> None:
        try:
            while jobs:
                _hand_out(process, *jobs.popleft(), events.put)
        except IndexError:
            pass  # another thread took the last one
        except Exception as error:
            events.put(error)
        finally:
            events.put(None)

    with _processes(min(workers, len(jobs)), workers, folder) as processes, ThreadPoolExecutor(workers) as pool:
        try:
            for process in processes:
                pool.submit(serve, process)
            running = len(processes)
            while running:
                match events.get():
                    case None:
                        running -= 1
                    case Exception() as error:
                        raise error
                    case progress:
                        report(*progress)
        finally:
            # A shard can be killed at any moment, and these have none left or one that cannot be used.
            jobs.clear()
            for process in processes:
                process.kill()


@contextmanager
def _processes(count: int, threads: int, folder: Path) -> Iterator[list[subprocess.Popen[str]]]:
    # Not multiprocessing: pipes need no guard in the caller's script.
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "RAYON_NUM_THREADS": str(threads), "OMP_NUM_THREADS": "1"}
    environment.pop("TOKENIZERS_PARALLELISM", None)
    command = [sys.executable, "-m", "training.corpora.shards", str(folder)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    # Ctrl-C reaches the whole process group, and the parent decides. A process inherits the mask, so that no
    # interrupt meets it while it imports.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        processes = [subprocess.Popen(command, **pipes) for _ in range(count)]
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()
            process.communicate()


def _hand_out(process: subprocess.Popen[str], number: int, wide: bool, put: Callable[[Any], None]) -> None:
    """Have a worker process tokenise a shard; passes on what it reports."""
    assert process.stdin
    assert process.stdout
    with suppress(OSError):  # a dead worker does not read it, and no line follows
        print(json.dumps([number, wide]), file=process.stdin, flush=True)
    for line in process.stdout:
        match json.loads(line):
            case None:
                return
            case {"errno": int(code), "error": message}:
                raise OSError(code, message)
            case {"error": message}:
                raise CorpusError(message)
            case progress:
                put(progress)
    raise CorpusError(
        f"a tokenising process ended with {process.wait()} (-9: out of memory); "
        "try again with fewer processes, RAYON_NUM_THREADS=1"
    )


def tokenise_shard(
    folder: Path, corpus: ShardedCorpus, number: int, reader: SourceReader, encoder: Encoder, report: Report, wide: bool
) -> None:
    """Write a shard, unless it is complete; what a killed process left is continued.

    Raises:
        CorpusError: the source cannot be used.
    """
    place, part = shard_folder(folder, number), shard_folder(folder, number, complete=False)
    part.mkdir(exist_ok=True)
    # A process whose parent was killed may still be writing.
    with locked_folder(part):
        if place.exists():
            return
        with StoreWriter(part, corpus.vocabulary, corpus.end_of_text) as writer:
            place_read, before = writer.place or (None, {})
            reading, screened = corpus.reading(number, reader, place_read), Counter(before)
            held_out = number == 0 and corpus.source.validation is not None
            chunks = _chunks(reading, lambda: (reading.place(), reading.progress()))
            marked, fraction = writer.bytes, 0.0
            for chunk, encoded in encoder.encode(chunks, screened=not held_out, wide=wide):
                documents = map(EncodedDocument, chunk.names, encoded.tokens, encoded.sizes)
                for document, verdict in zip(documents, encoded.verdicts, strict=True):
                    if verdict != KEPT:
                        screened[f"validation.{verdict}"] += 1
                    else:
                        writer.add(document, "validation" if held_out or corpus.holds_out(document.name) else "train")
                place_read, fraction = chunk.note
                if writer.bytes - marked >= MARK_BYTES:
                    writer.mark([place_read, dict(screened)])
                    marked = writer.bytes
                report(number, writer.bytes, writer.documents, fraction)
            writer.complete({} if held_out else reading.chooser.dropped, screened)
            report(number, writer.bytes, writer.documents, None if fraction is None else 1.0)
        part.rename(place)
        flush_folder(folder)


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


def _serve(folder: Path) -> None:
    """A worker process: read numbers of shards until the input ends; write a line for each report, null after each."""
    corpus = ShardedCorpus.read(folder)
    reader, encoder = SourceReader({corpus.name: corpus.source}), _encoder(folder, corpus)

    def send(message: Any) -> None:
        try:
            print(json.dumps(message), flush=True)
        except BrokenPipeError:
            os._exit(1)  # the parent is gone

    for line in sys.stdin:
        number, wide = json.loads(line)
        try:
            tokenise_shard(folder, corpus, number, reader, encoder, lambda *progress: send(progress), wide)
            send(None)
        except CorpusError as error:
            send({"error": str(error)})
        except OSError as error:
            send({"errno": error.errno or 0, "error": error.strerror or str(error)})


def _run_task(task: int, tasks: int, folders: Sequence[Path]) -> None:
    """A task of an array: every `tasks`-th shard of each corpus."""
    for folder in folders:
        corpus = ShardedCorpus.read(folder)
        numbers = [number for number in missing_shards(folder, corpus) if number % tasks == task]
        print(f"{corpus.name}: {len(numbers)} of {len(corpus.sizes)} shards to tokenise", flush=True)
        reader = SourceReader({corpus.name: corpus.source})
        run_shards(folder, corpus, reader, None, numbers, lambda *_: None)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        _serve(Path(sys.argv[1]))
    else:
        try:
            _run_task(int(sys.argv[1]), int(sys.argv[2]), [Path(word) for word in sys.argv[3:]])
        except CorpusError as error:
            sys.exit(f"{error}")
