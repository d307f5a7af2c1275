"""Corpora by URL, of a file system in memory that stands for a bucket: read as local files are."""

import functools
import http.server
import importlib.util
import random
import threading

import fsspec
import pytest
from huggingface_hub import HfFileSystem

from pipeline.cli.main import run as cptlaw
from tests.training.corpora.rows import as_lines, file_reader, read, with_positions, write
from training.corpora.documents import CorpusError
from training.corpora.files import file_fingerprint, shards_of, whole
from training.corpora.manifest import Manifest

LINES = as_lines({"text": f"Text {number} of many.", "source": "a"} for number in range(40))
WORDS = {
    "general": "the quick brown fox jumps over a lazy dog",
    "domain": "whereas the party of the first part agrees to pay",
}
UNREACHABLE = {"general": "hf://datasets/x/y", "domain": "https://localhost:9/law.jsonl"}
FILES = ("a.jsonl", "b.jsonl.gz", "deep/c.jsonl.zst", "d.parquet", "e.txt")


@pytest.fixture
def bucket():
    memory = fsspec.filesystem("memory")
    yield memory
    memory.rm("/", recursive=True)


@pytest.fixture
def local(tmp_path, bucket):
    folder = tmp_path / "texts"
    (folder / "deep").mkdir(parents=True)
    for name in FILES:
        write(folder / name, LINES if not name.endswith("txt") else b"A text.\n")
    bucket.put(str(folder), "/bucket/texts", recursive=True)
    return folder


def test_the_documents_are_those_of_local_files_from_any_place(local):
    expected, _ = with_positions(file_reader(local).documents())
    found, positions = with_positions(file_reader("memory://bucket/texts").documents())
    assert len(found) == 4 * 40 + 1
    assert found == expected
    for number in (0, 39, 75, 130):
        rest = file_reader("memory://bucket/texts").documents(position=positions[number])
        assert list(rest) == expected[number + 1 :]
    assert read("memory://bucket/texts/d.parquet") == read(local / "d.parquet")
    assert whole("memory://bucket/texts") == whole(local)


def test_a_changed_file_has_another_fingerprint(local, bucket):
    before = file_fingerprint("memory://bucket/texts")
    assert before == file_fingerprint("memory://bucket/texts")
    bucket.pipe("/bucket/texts/a.jsonl", LINES + b'{"text": "More."}\n')
    assert file_fingerprint("memory://bucket/texts") != before


def test_a_changed_file_behind_http_has_another_fingerprint(tmp_path):
    write(tmp_path / "a.jsonl.gz", LINES)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("localhost", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://localhost:{server.server_port}/a.jsonl.gz"
        assert read(url) == read(tmp_path / "a.jsonl.gz")
        before = file_fingerprint(url)
        assert before == file_fingerprint(url)
        write(tmp_path / "a.jsonl.gz", LINES + LINES)
        assert file_fingerprint(url) != before
        server.shutdown()


def test_what_cannot_be_read_is_one_line(local):
    for url, said in {
        "memory://bucket/nothing": "memory://bucket/nothing: no such file or folder",
        "buckets://texts": "buckets://texts: Unsupported filesystem: 'buckets'; allowed: those that fsspec knows, like "
        "s3://, gs://, hf:// and https://",
    }.items():
        with pytest.raises(CorpusError) as refused:
            read(url)
        assert str(refused.value) == said


@pytest.fixture
def unreachable_hub(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://localhost:9")
    HfFileSystem.clear_instance_cache()
    yield
    HfFileSystem.clear_instance_cache()


def test_an_error_of_the_network_is_one_line_beside_the_other_mistakes(unreachable_hub, capsys, tmp_path):
    words = ["experiment=own", f"data={tmp_path}", f"studies={tmp_path}", "corpora.validation=memory://none"]
    words += [f"corpora.sources.{name}.path={url}" for name, url in UNREACHABLE.items()]
    assert cptlaw(["prepare", *words]) == 3
    hub, general, web, domain = capsys.readouterr().err.splitlines()
    assert hub.startswith("corpora.sources.general.path: hf://datasets/x/y: cannot be read (")
    assert hub.endswith("); check the address, the network and your access to it")
    absent = "does not exist, or cannot be reached; give"
    assert web == f"corpora.sources.domain.path: 'https://localhost:9/law.jsonl' {absent} a file or folder of text"
    for name, line in (("general", general), ("domain", domain)):
        folder = f"the URL of a folder with {name}.jsonl"
        assert line == f"corpora.validation: 'memory://none/{name}.jsonl' {absent} {folder}"


def test_an_error_of_the_network_while_reading_is_one_line(local, bucket, monkeypatch):
    class Lost(Exception):
        """As httpx.ReadTimeout: no OSError."""

    def lost(*_, **__):
        raise Lost("the other side hung up")

    for name in FILES:
        url = f"memory://bucket/texts/{name}"
        with monkeypatch.context() as patched:
            patched.setattr(type(bucket), "_open", lost)
            with pytest.raises(CorpusError, match=rf"^{url}: .* \(the other side hung up\); check the address"):
                read(url)
    monkeypatch.setattr(type(bucket), "info", lost)
    for ask in (file_fingerprint, whole, shards_of):
        with pytest.raises(CorpusError, match=r"cannot be read \(the other side hung up\); check the address"):
            ask("memory://bucket/texts")


@pytest.mark.skipif(importlib.util.find_spec("s3fs") is not None, reason="s3fs is installed")
def test_a_missing_package_is_named(capsys, tmp_path):
    words = ["experiment=own", f"data={tmp_path}", f"studies={tmp_path}", "corpora.folder=s3://bucket"]
    words += ["corpora.sources.general.path=prose", "corpora.sources.domain.path=law.jsonl"]
    assert cptlaw(["prepare", *words]) == 3
    said = capsys.readouterr().err
    for name, path in (("general", "prose"), ("domain", "law.jsonl")):
        line = f"corpora.sources.{name}.path: s3://bucket/{path}: cannot be read (Install s3fs to access S3)"
        assert line in " ".join(said.split())


def test_prepared_tokens_are_those_of_local_files(tmp_path, bucket):
    draw = random.Random(0)
    (tmp_path / "sets").mkdir()
    for name in ("general", "domain"):
        rows = [{"text": " ".join(draw.choices(WORDS[name].split(), k=100))} for _ in range(60)]
        write(tmp_path / f"{name}.jsonl", as_lines(rows))
        write(tmp_path / "sets" / f"{name}.jsonl", as_lines(rows[:5]))
    bucket.put(f"{tmp_path}/*", "/bucket/", recursive=True)
    tokens = []
    for number, folder in enumerate((str(tmp_path), "memory://bucket")):
        data = tmp_path / f"data{number}"
        words = ["experiment=own", f"data={data}", f"studies={data}", f"corpora.folder={folder}", "precision=fp32"]
        # Where runs are trained elsewhere no speed is measured.
        words += ["model=qwen2-0.05m", "ladder=[]", "launcher=slurm"]
        words += [f"corpora.sources.{name}.path={name}.jsonl" for name in WORDS]
        # The validation set of general is named, that of the domain found.
        words += ["corpora.sources.general.validation=sets/general.jsonl", f"corpora.validation={folder}/sets"]
        assert cptlaw(["prepare", *words, "corpora.tokenizer.vocabulary=300"]) == 0
        (manifest,) = (Manifest.open(path.parent) for path in data.rglob("manifest.json"))
        stores = [manifest.folder / manifest.corpora[name].folder for name in WORDS]
        tokens.append([(store / f"{part}.bin").read_bytes() for store in stores for part in ("train", "validation")])
    assert all(tokens[0])
    assert tokens[0] == tokens[1]
