"""How fast text becomes tokens on disk, and in how much memory."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil

from tests.benchmarks import Row, row
from training.corpora.prepare import TokenizerChoice, prepare
from training.corpora.shards import CHUNK_CHARACTERS
from training.corpora.source import Source, SourceReader
from training.corpora.tokenizer import load_tokenizer, train_tokenizer

SMALL, LARGE = 24, 72
"""Megabytes of text."""
ROUNDS = 3
VOCABULARY = 32_000


def measure() -> list[Row]:
    """Speed and memory of `prepare`.

    Ours is all of `prepare` but the training of a tokenizer: the file read and hashed, tokenised, split, written and
    flushed. The peer is `tokenizers.encode_batch` alone, on texts that are in memory, cut as ours are, on as many
    cores. They take turns.
    """
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder, "small.jsonl"), Path(folder, "large.jsonl")
        texts = _texts(SMALL)
        _write(small, texts, SMALL)
        _write(large, texts, LARGE)
        tokenizer = train_tokenizer(texts[:: max(len(texts) // 2000, 1)], VOCABULARY, Path(folder, "tokenizer"))
        ours, peer, memory = [], [], {SMALL: 0.0, LARGE: 0.0}
        for number in range(ROUNDS):
            spent, peak = _apart(_ours, small, tokenizer, Path(folder, f"out-{number}"))
            ours.append(SMALL / spent)
            memory[SMALL] = max(memory[SMALL], peak)
            peer.append(SMALL / _apart(_peer, small, tokenizer, None)[0])
        memory[LARGE] = _apart(_ours, large, tokenizer, Path(folder, "out-large"))[1]
    cores = len(os.sched_getaffinity(0))
    # The fastest of each: on a shared machine the others measure the neighbours.
    speed = f"higher is better; peer: encode_batch of texts in memory; bar: 1/1.3, best of {ROUNDS}"
    peak = f"peak of all its processes; peer: the same at {SMALL} MB of text; bar: the same"
    return [
        row(f"preparation, {cores} cores", max(ours), "MB/s", speed, max(peer)),
        row(f"preparation, memory at {LARGE} MB", memory[LARGE], "MB", peak, memory[SMALL]),
    ]


def _texts(megabytes: int) -> list[str]:
    """The prose and code of installed Python, which every machine has."""
    reader = SourceReader({"prose": Source("installed-python"), "code": Source("installed-python", part="code")})
    return list(_first(megabytes, (text for corpus in ("prose", "code") for _, text in reader.documents(corpus))))


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


def _apart(work: Any, path: Path, tokenizer: Path, out: Path | None) -> tuple[float, float]:
    """Seconds, and the peak of memory in MB, of a piece of work in a process of its own with all its children."""
    context = multiprocessing.get_context("spawn")
    answer = context.SimpleQueue()
    process = context.Process(target=work, args=(answer, path, tokenizer, out))
    process.start()
    peak = 0.0
    while process.is_alive():
        peak = max(peak, _memory(process.pid))
        time.sleep(0.2)
    process.join()
    if process.exitcode:
        raise RuntimeError(f"{work.__name__} ended with {process.exitcode}")
    return answer.get(), peak / 1e6


def _memory(process: int | None) -> float:
    """Bytes that a process and its children have to themselves."""
    try:
        first = psutil.Process(process)
        return sum(one.memory_full_info().uss for one in [first, *first.children(recursive=True)])
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0.0


def _ours(answer: Any, path: Path, tokenizer: Path, out: Path) -> None:
    load_tokenizer(tokenizer)  # transformers is loaded once a process, whatever there is to prepare
    start = time.perf_counter()
    source = Source("files", path=str(path))
    prepare({"text": source}, TokenizerChoice(path=str(tokenizer)), out, progress=lambda _: None)
    answer.put(time.perf_counter() - start)


def _peer(answer: Any, path: Path, tokenizer: Path, out: None) -> None:
    from tokenizers import Tokenizer

    backend = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    texts = [json.loads(line)["text"] for line in path.read_text(encoding="utf-8").split("\n") if line]
    start = time.perf_counter()
    first = characters = 0
    for place, text in enumerate(texts):
        characters += len(text)
        if characters >= CHUNK_CHARACTERS or place == len(texts) - 1:
            backend.encode_batch(texts[first : place + 1], add_special_tokens=False)
            first, characters = place + 1, 0
    answer.put(time.perf_counter() - start)
