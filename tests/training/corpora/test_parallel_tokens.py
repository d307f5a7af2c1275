"""Tokenising in processes: the same tokens however many there are, and an end when one of them ends."""

import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

from training.corpora.documents import CorpusError
from training.corpora.near_duplicates import KEPT, SAME, Screen
from training.corpora.parallel_tokens import Chunk, core_count, encode_chunks
from training.corpora.tokenizer import load_tokenizer, train_tokenizer

DRAW = random.Random(0)
TEXTS = [
    f"{' '.join(''.join(DRAW.choices('abcdefgh', k=5)) for _ in range(8))} of {n}, thé, isn't it? <|endoftext|>\n"
    for n in range(80)
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = train_tokenizer(TEXTS, 300, tmp_path_factory.mktemp("tokenizer") / "bpe")
    return load_tokenizer(folder).backend_tokenizer.to_str()


def chunks(size=7):
    texts = [*TEXTS, "", "x" * 5000]
    for first in range(0, len(texts), size):
        names = [f"d{number}" for number in range(first, min(first + size, len(texts)))]
        yield Chunk(names, texts[first : first + size], first)


def test_tokens_sizes_and_order_do_not_depend_on_the_workers(tokenizer):
    alone = list(encode_chunks(chunks(), tokenizer, 1))
    assert [name for chunk, _ in alone for name in chunk.names] == [f"d{n}" for n in range(82)]
    assert [size for _, encoded in alone for size in encoded.sizes][:2] == [len(text.encode()) for text in TEXTS[:2]]
    for other in (list(encode_chunks(chunks(), tokenizer, 3)), list(encode_chunks(chunks(82), tokenizer, 1))):
        assert [chunk for chunk, _ in other] == [chunk for chunk, _ in alone] or len(other) == 1
        for one, two in zip(
            (tokens for _, encoded in alone for tokens in encoded.tokens),
            (tokens for _, encoded in other for tokens in encoded.tokens),
            strict=True,
        ):
            np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_screened_document_has_no_tokens(tokenizer, tmp_path, workers):
    Screen.of([TEXTS[3], TEXTS[44]]).save(tmp_path)
    verdicts, tokens = [], []
    for _, encoded in encode_chunks(chunks(), tokenizer, workers, tmp_path):
        verdicts += encoded.verdicts
        tokens += encoded.tokens
    assert [place for place, verdict in enumerate(verdicts) if verdict != KEPT] == [3, 44]
    assert verdicts[3] == verdicts[44] == SAME
    assert [len(tokens[place]) > 0 for place in (2, 3, 44, 45)] == [True, False, False, True]


def test_it_reads_a_little_ahead_and_no_more(tokenizer):
    read = 0

    def counted():
        nonlocal read
        for number in range(100):
            read += 1
            yield Chunk([str(number)], [TEXTS[number % 80]])

    answers = encode_chunks(counted(), tokenizer, 2)
    for taken in range(1, 20):
        next(answers)
        assert read <= taken + 8
    answers.close()


@pytest.mark.parametrize(
    ("fault", "message"),
    [("reader", "the file ends here"), ("worker", r"a tokenising process ended with -9 .*RAYON_NUM_THREADS=1")],
)
def test_an_error_of_the_reader_or_a_dead_worker_comes_through_and_leaves_no_process(tokenizer, fault, message):
    others = psutil.Process().children()

    def faulty():
        for number, chunk in enumerate(chunks(2)):
            if number == 10 and fault == "reader":
                raise CorpusError("the file ends here")
            if number == 10:
                for child in set(psutil.Process().children()) - set(others):
                    child.kill()
            yield chunk

    with pytest.raises(CorpusError, match=message):
        list(encode_chunks(faulty(), tokenizer, 2))
    assert psutil.Process().children() == others


def test_workers_end_with_the_one_they_work_for(tokenizer, tmp_path):
    (tmp_path / "tokenizer.json").write_text(tokenizer)
    program = (
        "import sys, time, psutil; from pathlib import Path\n"
        "from training.corpora.parallel_tokens import Chunk, encode_chunks\n"
        "answers = encode_chunks((Chunk(['d'], ['text']) for _ in range(10**9)), Path(sys.argv[1]).read_text(), 2)\n"
        "next(answers)\n"
        "print(*(child.pid for child in psutil.Process().children()), flush=True)\n"
        "time.sleep(60)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "tokenizer.json")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        workers = [int(word) for word in process.stdout.readline().split()]
        process.send_signal(signal.SIGKILL)
    assert len(workers) == 2
    until = time.monotonic() + 20
    while any(psutil.pid_exists(worker) for worker in workers):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_cores_are_those_of_the_process_or_as_the_tokenizers_library_is_told(monkeypatch):
    monkeypatch.delenv("RAYON_NUM_THREADS", raising=False)
    assert core_count() == len(os.sched_getaffinity(0))
    monkeypatch.setenv("RAYON_NUM_THREADS", "3")
    assert core_count() == 3
