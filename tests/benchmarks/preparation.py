"""How fast text becomes tokens on disk, and in how much memory."""

import itertools
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from tests.benchmarks import Row, row
from training.corpora.prepare import tokenise_corpora
from training.corpora.readers import open_reader
from training.corpora.shards import CHUNK_CHARACTERS
from training.corpora.source import Source, TokenizerChoice
from training.corpora.tokenizer import load_tokenizer, train_tokenizer

SMALL, LARGE = 24, 72
"""Megabytes of text."""
ROUNDS = 3
VOCABULARY = 32_000


def measure() -> list[Row]:
    """Speed and memory of `tokenise_corpora`.

    Ours is all of it but the training of a tokenizer: the file read and hashed, tokenised, split, written and flushed.
    The peer is `tokenizers.encode_batch_fast` alone, on texts in memory, cut as ours are, on as many cores; and
    ours on one process. They take turns.
    """
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder, "small.jsonl"), Path(folder, "large.jsonl")
        texts = _texts(SMALL)
        _write(small, texts, SMALL)
        _write(large, texts, LARGE)
        tokenizer = train_tokenizer(texts[:: max(len(texts) // 2000, 1)], VOCABULARY, Path(folder, "tokenizer"))
        ways = {"ours": (_ours, cores), "one process": (_ours, 1), "peer": (_peer, cores)}
        rounds: dict[str, list[_Spent]] = {name: [] for name in ways}
        for number in range(ROUNDS):
            for name, (work, workers) in ways.items():
                out = Path(folder, f"{name}-{number}")
                rounds[name].append(_apart(work, large, tokenizer, out, workers))
        memory = _apart(_ours, small, tokenizer, Path(folder, "out-small"), cores).memory
    # The fastest of each: on a shared machine the others measure the neighbours.
    speeds = {name: LARGE / min(one.seconds for one in spent) for name, spent in rounds.items()}
    best = f"best of {ROUNDS} of {LARGE} MB"
    speed = f"higher is better; peer: encode_batch_fast of texts in memory; bar: 1/1.3, {best}"
    scaling = f"higher is better; peer: one process; bar: 1.8 on two cores, {best}"
    peak = f"peak of all its processes; peer: the same at {SMALL} MB of text; bar: the same"
    return [
        row(f"preparation, {cores} cores", speeds["ours"], "MB/s", speed, speeds["peer"]),
        row(f"preparation, {cores} processes", speeds["ours"], "MB/s", scaling, speeds["one process"]),
        row(f"preparation, memory at {LARGE} MB", max(one.memory for one in rounds["ours"]), "MB", peak, memory),
    ]


def _texts(megabytes: int) -> list[str]:
    """The prose and code of installed Python, which every machine has."""
    readers = [open_reader(part, Source("installed-python", part=part)) for part in ("prose", "code")]
    return list(_first(megabytes, (text for reader in readers for _, text in reader.documents())))


def _first(megabytes: int, texts: Iterable[str]) -> Iterator[str]:
    size = 0
    for text in texts:
        yield text
        size += len(text.encode())
        if size >= megabytes * 1e6:
            return


def _write(path: Path, texts: list[str], megabytes: int) -> None:
    """Write the texts, again and again, as a corpus of this size."""
    with path.open("w", encoding="utf-8") as stream:
        stream.writelines(json.dumps({"text": text}) + "\n" for text in _first(megabytes, itertools.cycle(texts)))


class _Spent(NamedTuple):
    """What a piece of work took: seconds, and the peak of memory in MB, with all its children."""

    seconds: float
    memory: float


def _apart(work: Any, path: Path, tokenizer: Path, out: Path, workers: int) -> _Spent:
    """A piece of work in a process of its own."""
    context = multiprocessing.get_context("spawn")
    answer = context.SimpleQueue()
    process = context.Process(target=_timed, args=(answer, work, path, tokenizer, out, workers))
    process.start()
    peak = 0.0
    while process.is_alive():
        peak = max(peak, _memory(process.pid))
        time.sleep(0.2)
    process.join()
    if process.exitcode:
        raise RuntimeError(f"{work.__name__} ended with {process.exitcode}")
    return _Spent(answer.get(), peak / 1e6)


def _timed(answer: Any, work: Any, path: Path, tokenizer: Path, out: Path, workers: int) -> None:
    os.environ["RAYON_NUM_THREADS"] = str(workers)
    job = work(path, tokenizer, out, workers)
    start = time.perf_counter()
    job()
    answer.put(time.perf_counter() - start)


def _memory(process: int | None) -> float:
    """Bytes that a process and its children have to themselves."""
    try:
        first = psutil.Process(process)
        return sum(one.memory_full_info().uss for one in [first, *first.children(recursive=True)])
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0.0


def _ours(path: Path, tokenizer: Path, out: Path, workers: int) -> Callable[[], object]:
    load_tokenizer(tokenizer)  # transformers is loaded once a process, whatever there is to prepare
    source, choice = {"text": Source("files", path=str(path))}, TokenizerChoice(path=str(tokenizer))
    return lambda: tokenise_corpora(source, choice, out, workers=workers, progress=lambda _: None)


def _peer(path: Path, tokenizer: Path, out: Path, workers: int) -> Callable[[], object]:
    from tokenizers import Tokenizer

    backend = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    chunks: list[list[str]] = [[]]
    for line in path.read_text(encoding="utf-8").split("\n"):
        if line:
            if sum(map(len, chunks[-1])) >= CHUNK_CHARACTERS:
                chunks.append([])
            chunks[-1].append(json.loads(line)["text"])
    return lambda: [backend.encode_batch_fast(chunk, add_special_tokens=False) and None for chunk in chunks]
