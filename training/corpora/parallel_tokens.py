"""Tokenise texts on all cores, in worker processes connected by pipes.

The result does not depend on the number of workers: chunks depend on the documents only, and keep their order.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import chain, islice
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from training.corpora.documents import CorpusError
from training.corpora.near_duplicates import KEPT, Screen

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CHUNK_CHARACTERS = 1_000_000
# Fewer chunks are done before a worker process has started.
_ALONE_CHUNKS = 4


class Chunk(NamedTuple):
    """Documents to tokenise, and a note of their reader after the last one."""

    names: list[str]
    texts: list[str]
    note: Any = None


class Encoded(NamedTuple):
    """The tokenised documents of a chunk, in their order."""

    tokens: list[np.ndarray]
    """(n,) uint32 token ids of each, without the end of text; empty for a dropped document."""
    sizes: list[int]
    """Bytes of each text, UTF-8."""
    verdicts: list[str]
    """Verdict of the screen on each: near_duplicates.KEPT, SAME or NEAR."""


def core_count() -> int:
    """Number of cores for tokenising: RAYON_NUM_THREADS, as in the tokenizers library, or all of this process."""
    threads = os.environ.get("RAYON_NUM_THREADS", "")
    return int(threads) if threads.isdigit() and int(threads) > 0 else len(os.sched_getaffinity(0))


def encode_chunks(
    chunks: Iterable[Chunk], tokenizer: str, workers: int | None = None, screen: Path | None = None
) -> Iterator[tuple[Chunk, Encoded]]:
    """Tokenise chunks without special tokens or truncation. Memory holds a few chunks per worker.

    Args:
        chunks: read a few ahead of the result.
        tokenizer: a tokenizers-library tokenizer as JSON.
        workers: processes; None: one per core. With one worker, or little text, no process is started.
        screen: a saved `Screen` that drops documents; None: all are kept.

    Yields:
        Each chunk with its tokens, in the order given.

    Raises:
        CorpusError: a worker died, as when memory runs out.
    """
    workers = core_count() if workers is None else workers
    source = iter(chunks)
    first = list(islice(source, _ALONE_CHUNKS))
    if workers == 1 or len(first) < _ALONE_CHUNKS:
        backend, judge = _backend(tokenizer), Screen.open(screen) if screen else None
        for chunk in chain(first, source):
            yield chunk, _encoded(backend, judge, chunk.texts)
        return
    with _processes(workers, tokenizer, screen) as submit:
        waiting: deque[tuple[Chunk, Future[Encoded]]] = deque()
        for chunk in chain(first, source):
            waiting.append((chunk, submit(chunk.texts)))
            if len(waiting) > workers + 2:
                chunk, answer = waiting.popleft()
                yield chunk, answer.result()
        while waiting:
            chunk, answer = waiting.popleft()
            yield chunk, answer.result()


@contextmanager
def _processes(workers: int, tokenizer: str, screen: Path | None) -> Iterator[Any]:
    # Not multiprocessing: pipes need no guard in the caller's script, and a worker ends with this process, because its
    # input ends.
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "training.corpora.parallel_tokens"]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        for _ in range(workers)
    ]
    idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()

    def encode(texts: list[str]) -> Encoded:
        process = idle.get()
        try:
            _send(process.stdin, texts)
            lengths, tokens, sizes, verdicts = pickle.load(process.stdout)  # pyright: ignore[reportArgumentType]
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            raise CorpusError(
                f"a tokenising process ended with {process.wait()} (-9: out of memory); "
                "try again with fewer processes, RAYON_NUM_THREADS=1"
            ) from error
        finally:
            idle.put(process)
        return Encoded(np.split(tokens, np.cumsum(lengths)[:-1]), sizes, verdicts)

    try:
        for process in started:
            _send(process.stdin, (tokenizer, screen))
            idle.put(process)
        with ThreadPoolExecutor(workers) as pool:
            try:
                yield lambda texts: pool.submit(encode, texts)
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
    finally:
        for process in started:
            with suppress(OSError):  # a dead worker does not read the rest
                process.stdin.close()  # pyright: ignore[reportOptionalMemberAccess]
            process.stdout.close()  # pyright: ignore[reportOptionalMemberAccess]
        for process in started:
            process.wait()


def _serve() -> None:
    """Main function of a worker: read a tokenizer, then texts, and write tokens until the input ends."""
    # Ctrl-C reaches the whole process group; the parent decides, and closes the input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source, answers = sys.stdin.buffer, sys.stdout.buffer
    try:
        tokenizer, screen = pickle.load(source)
        backend, judge = _backend(tokenizer), Screen.open(screen) if screen else None
        while True:
            tokens, sizes, verdicts = _encoded(backend, judge, pickle.load(source))
            _send(answers, ([len(one) for one in tokens], np.concatenate(tokens), sizes, verdicts))
    except (EOFError, BrokenPipeError):
        os._exit(0)  # the parent is gone; a normal exit would flush stdout


def _send(stream: Any, content: Any) -> None:
    pickle.dump(content, stream, protocol=pickle.HIGHEST_PROTOCOL)
    stream.flush()


def _backend(tokenizer: str) -> Tokenizer:
    from tokenizers import Tokenizer

    backend = Tokenizer.from_str(tokenizer)
    backend.no_truncation()
    backend.no_padding()
    # A special token written in a text is text: a page about <|endoftext|> does not end there.
    backend.encode_special_tokens = True
    return backend


def _encoded(backend: Tokenizer, judge: Screen | None, texts: list[str]) -> Encoded:
    verdicts = judge.verdicts(texts) if judge else [KEPT] * len(texts)
    kept = [text for text, verdict in zip(texts, verdicts, strict=True) if verdict == KEPT]
    encodings = iter(backend.encode_batch_fast(kept, add_special_tokens=False))
    nothing = np.empty(0, dtype=np.uint32)
    tokens = [np.array(next(encodings).ids, dtype=np.uint32) if one == KEPT else nothing for one in verdicts]
    return Encoded(tokens, [len(text.encode()) for text in texts], verdicts)


if __name__ == "__main__":
    _serve()
