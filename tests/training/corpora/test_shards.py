"""Shards: they follow from the files, hold every document once, and are tokenised by any processes that may die."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest
from upath import UPath

from tests.training.corpora.rows import as_lines, file_reader, read, with_positions, write
from training.corpora.corpus_store import make_store
from training.corpora.documents import CorpusError
from training.corpora.files import FileReader, shards_of
from training.corpora.shards import ShardedCorpus, main
from training.corpora.source import Source
from training.corpora.store_writer import Tokenisation
from training.corpora.tokenizer import Chunk, Encoder, load_tokenizer, train_tokenizer

DRAW = random.Random(0)
TEXTS = [
    f"{' '.join(''.join(DRAW.choices('abcdefgh', k=5)) for _ in range(8))} of {n}, thé, isn't it? <|endoftext|>\n"
    for n in range(80)
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = train_tokenizer(TEXTS, 300, tmp_path_factory.mktemp("tokenizer") / "bpe")
    return load_tokenizer(folder).backend_tokenizer.to_str()


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr("training.corpora.files.SHARD_BYTES", (2000, 2000))


def test_it_reads_a_little_ahead_and_no_more(tokenizer):
    read = 0

    def counted():
        nonlocal read
        for number in range(100):
            read += 1
            yield Chunk([str(number)], [TEXTS[number % 80]])

    answers = Encoder(tokenizer).encode(counted(), wide=True)
    for taken in range(1, 20):
        next(answers)
        assert read <= taken + 3


def mixed(folder):
    """Files of every kind, large and small, with blank lines, a byte-order mark, and no newline at an end."""
    folder.mkdir(exist_ok=True)
    rows = [{"text": text} for text in TEXTS]
    lines = as_lines(rows).replace(b"}\n", b"}\r\n\n").removesuffix(b"\r\n\n")
    for name, content in (
        ("a.jsonl", b"\xef\xbb\xbf" + lines),
        ("b.jsonl.gz", as_lines(rows)),
        ("c.parquet", as_lines(rows * 40)),
        ("d.jsonl", as_lines([{"text": "x" * 9000}, *rows, {"text": "y" * 9000}])),
        *((f"e{number}.txt", TEXTS[number].encode()) for number in range(30)),
        ("f.jsonl", b"\n" * 5000),
    ):
        write(folder / name, content)
    return folder


@pytest.mark.parametrize("where", ["folder", "memory"])
def test_shards_follow_from_the_files_and_hold_every_document_once(tmp_path, small_shards, where):
    path = mixed(tmp_path / "texts")
    if where == "memory":
        for file in path.iterdir():
            UPath("memory://shards", file.name).write_bytes(file.read_bytes())
        path = "memory://shards"
    shards = shards_of(path)
    assert shards == shards_of(path)
    names = ["+".join(name for name, _ in shard.files) for shard in shards]
    # Large files are cut, but not a compressed one; small ones come together.
    assert [names.count(f"{name}") > 2 for name in ("a.jsonl", "b.jsonl.gz", "c.parquet", "d.jsonl")] == [1, 0, 1, 1]
    assert any(name.count("+") > 10 for name in names)
    reader, whole = file_reader(path), read(path)
    assert [document for shard in shards for document in reader.documents(shard)] == whole
    assert len(whole) == 80 + 80 + 3200 + 82 + 30
    # From any place in a shard the rest of it is read.
    for shard in shards:
        reading = reader.documents(shard)
        documents, positions = with_positions(reading)
        assert 0.9 < reading.progress() <= 1.0 or not documents or "parquet" in shard.files[0][0]
        for number in range(0, len(documents), 40):
            assert list(reader.documents(shard, positions[number])) == documents[number + 1 :]
    # One file by itself has the same shards.
    assert shards_of(f"{path}/d.jsonl") == [
        shard for shard, name in zip(shards, names, strict=True) if name == "d.jsonl"
    ]


def test_an_error_in_a_shard_names_line_and_byte_of_the_file(tmp_path, small_shards):
    content = as_lines({"text": text} for text in TEXTS)
    path = write(tmp_path / "a.jsonl", content + b'{"text": "\xff"}\n')
    message = rf"a\.jsonl line 81: not UTF-8 at byte {len(content) + 10} of the file"
    with pytest.raises(CorpusError, match=message):
        list(file_reader(path).documents(shards_of(path)[-1]))


@pytest.fixture
def making(tmp_path, tokenizer, small_shards, monkeypatch):
    """A corpus of some fifty shards, and a function that makes its store."""
    monkeypatch.setattr("training.corpora.shards.CHUNK_CHARACTERS", 500)
    rows = [{"text": TEXTS[row % 80] * (row % 7)} for row in range(400)]
    path = write(tmp_path / "a.jsonl", as_lines(rows))

    def make(out, workers, lines=None, path=path):
        reader = FileReader("a", Source(path=str(path)), (lines if lines is not None else []).append)
        how = Tokenisation(tokenizer, "t", 300, 0, 0.1)
        return make_store(tmp_path / out, tmp_path / f"{out}.unfinished", reader, how, workers=workers)

    return make


def children():
    """Processes that tokenise; Python's tracker of resources stays until the end."""
    running = set()
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            running |= {child} if "spawn_main" in " ".join(child.cmdline()) else set()
    return running


@pytest.mark.parametrize(
    ("fault", "message"),
    [("line", "a.jsonl line 300: not JSON"), ("worker", r"a tokenising process was killed, .*RAYON_NUM_THREADS=1")],
)
def test_an_error_or_a_dead_worker_comes_through_leaves_no_process_and_goes_on(making, tmp_path, fault, message):
    others, path = children(), tmp_path / "a.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    if fault == "line":
        path.write_bytes(b"".join([*lines[:299], b"{" + b" " * (len(lines[299]) - 2) + b"\n", *lines[300:]]))

    def kill():
        # Both: in Python 3.11 a thread of the pool ends with an error where one dies while another starts.
        while len(workers := children() - others) < 2:
            time.sleep(0.01)
        for worker in workers:
            worker.kill()

    killer = threading.Thread(target=kill)
    if fault == "worker":
        killer.start()
    with pytest.raises(CorpusError, match=rf"corpora\.a: .*{message}"):
        making("out", 2)
    assert children() == others
    path.write_bytes(b"".join(lines))
    assert making("out", 1).meta == making("clean", 1).meta


def test_an_interrupt_is_for_the_parent_alone_also_while_a_worker_starts(making, capfd):
    others, done = children(), threading.Event()

    def interrupt():
        while not done.wait(0.01):
            for worker in children() - others:
                with contextlib.suppress(psutil.NoSuchProcess):
                    worker.send_signal(signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    try:
        interrupted_workers = making("out", 2).meta
    finally:
        done.set()
        interrupting.join()
    assert interrupted_workers == making("clean", 1).meta
    assert "Traceback" not in capfd.readouterr().err


def interrupted(*_: object) -> None:
    # Not by a signal: a process in the background of a script ignores SIGINT.
    raise KeyboardInterrupt


def test_shards_that_are_there_are_not_made_again_and_a_merge_goes_on(making, tmp_path, monkeypatch):
    lines, clean = [], making("clean", 1)
    with monkeypatch.context() as patch:
        patch.setattr("training.corpora.corpus_store.merge_parts", interrupted)
        with pytest.raises(KeyboardInterrupt):
            making("out", 2)
    monkeypatch.setattr("training.corpora.files.shards_of", None)
    monkeypatch.setattr("training.corpora.shards.ShardedCorpus.tokenise", None)
    monkeypatch.setattr("training.corpora.shards.spawned_processes", None)
    with monkeypatch.context() as patch:
        # Killed after the merge.
        patch.setattr("training.corpora.corpus_store.Path.rename", interrupted)
        with pytest.raises(KeyboardInterrupt):
            making("out", 2, lines)
    assert f"a: resumes after {sum(clean.meta.documents.values()):,} documents" in lines[0]
    monkeypatch.setattr("training.corpora.corpus_store.merge_parts", None)
    assert making("out", 2).meta == clean.meta
    assert not (tmp_path / "out.unfinished").exists()


def begin(tmp_path, tokenizer, path):
    """A corpus whose shards are planned and no more."""
    reader, how = file_reader(path, where={"n": [1, 2]}), Tokenisation(tokenizer, "t", 300, 0, 0.1)
    return ShardedCorpus.begin(tmp_path / "out.unfinished", reader, how, None)


def test_tasks_of_an_array_make_every_shard_once(tmp_path, tokenizer, small_shards, monkeypatch, capsys):
    rows = [{"text": text, "n": number % 3} for number, text in enumerate(TEXTS)]
    corpus = begin(tmp_path, tokenizer, write(tmp_path / "a.jsonl", as_lines(rows)))
    everything = corpus.missing_shards()
    monkeypatch.setenv("RAYON_NUM_THREADS", "1")
    for task, numbers in (("1", everything[1::2]), ("0", everything[::2]), ("1", [])):
        monkeypatch.setattr(sys, "argv", ["shards", task, "2", str(corpus.folder)])
        main()
        assert capsys.readouterr().out == f"a: {len(numbers)} of {len(everything)} shards to tokenise\n"
        assert set(numbers).isdisjoint(corpus.missing_shards())
    command = [sys.executable, "-m", "training.corpora.shards", "1", "2", tmp_path]
    missing = subprocess.run(command, capture_output=True, text=True)
    assert (missing.returncode, "no shards to tokenise here" in missing.stderr) == (1, True)


@pytest.mark.slow
def test_workers_end_with_the_one_they_work_for(tmp_path, tokenizer, small_shards):
    rows = [{"text": TEXTS[row % 80] * 200, "n": 1} for row in range(3000)]
    folder = begin(tmp_path, tokenizer, write(tmp_path / "a.jsonl", as_lines(rows))).folder
    environment = os.environ | {"RAYON_NUM_THREADS": "2"}
    command = [sys.executable, "-m", "training.corpora.shards", "0", "1", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        while len(workers := psutil.Process(process.pid).children()) < 3 or not list(folder.glob("*/*.train.bin")):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    until = time.monotonic() + 20
    while any(psutil.pid_exists(worker.pid) for worker in workers):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert json.loads((folder / "plan.json").read_text())["source"]["where"] == {"n": [1, 2]}
