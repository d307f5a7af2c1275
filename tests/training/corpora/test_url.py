"""Corpora by URL, of a file system in memory that stands for a bucket: read as local files are."""

import functools
import http.server
import importlib.util
import threading

import fsspec
import pytest

from pipeline.cli.main import run as cptlaw
from tests.training.corpora.rows import as_lines, with_places, write
from training.corpora.documents import CorpusError
from training.corpora.filters import Chooser, Filters
from training.corpora.manifest import Manifest
from training.corpora.text_files import FileReading, file_bytes, file_fingerprint

LINES = as_lines({"text": f"Text {number} of many.", "source": "a"} for number in range(40))
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
    expected, _ = with_places(FileReading(local))
    found, places = with_places(FileReading("memory://bucket/texts"))
    assert len(found) == 4 * 40 + 1
    assert found == expected
    for number in (0, 39, 75, 130):
        position, dropped = places[number]
        rest = FileReading("memory://bucket/texts", chooser=Chooser(Filters(), dropped), position=position)
        assert list(rest) == expected[number + 1 :]
    assert list(FileReading("memory://bucket/texts/d.parquet")) == list(FileReading(local / "d.parquet"))
    assert file_bytes("memory://bucket/texts") == file_bytes(local)


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
        assert list(FileReading(url)) == list(FileReading(tmp_path / "a.jsonl.gz"))
        before = file_fingerprint(url)
        assert before == file_fingerprint(url)
        write(tmp_path / "a.jsonl.gz", LINES + LINES)
        assert file_fingerprint(url) != before
        server.shutdown()


def test_what_cannot_be_read_is_one_line(local):
    for url, said in {
        "memory://bucket/nothing": "memory://bucket/nothing: no such file or folder",
        "buckets://texts": "buckets://texts: Unsupported filesystem: 'buckets'",
    }.items():
        with pytest.raises(CorpusError) as refused:
            list(FileReading(url))
        assert str(refused.value) == said


@pytest.mark.skipif(importlib.util.find_spec("s3fs") is not None, reason="s3fs is installed")
def test_a_missing_package_is_named(capsys, tmp_path):
    words = ["experiment=own", f"data={tmp_path}", f"studies={tmp_path}", "corpora.folder=s3://bucket"]
    words += ["corpora.sources.general.path=prose", "corpora.sources.domain.path=law.jsonl"]
    assert cptlaw(["prepare", *words]) == 3
    said = capsys.readouterr().err
    for name, path in (("general", "prose"), ("domain", "law.jsonl")):
        line = f"corpora.sources.{name}.path: 's3://bucket/{path}' cannot be read (Install s3fs to access S3)"
        assert line in " ".join(said.split())


def test_prepared_tokens_are_those_of_local_files(tmp_path, bucket):
    rows = {"general": "The quick brown fox jumps over dog", "domain": "Whereas the party of the first part agrees to"}
    for name, text in rows.items():
        lines = ({"text": f"{text} number {number}. " * 20} for number in range(60))
        write(tmp_path / f"{name}.jsonl", as_lines(lines))
        bucket.put(str(tmp_path / f"{name}.jsonl"), f"/bucket/{name}.jsonl")
    tokens = []
    for number, folder in enumerate((str(tmp_path), "memory://bucket")):
        data = tmp_path / f"data{number}"
        words = ["experiment=own", f"data={data}", f"studies={data}", f"corpora.folder={folder}", "precision=fp32"]
        words += [f"corpora.sources.{name}.path={name}.jsonl" for name in rows]
        assert cptlaw(["prepare", *words, "corpora.tokenizer.vocabulary=300", "corpora.validation_ratio=0.2"]) == 0
        (manifest,) = (Manifest.open(path.parent) for path in data.rglob("manifest.json"))
        stores = [manifest.folder / manifest.corpora[name].folder for name in rows]
        tokens.append([(store / f"{part}.bin").read_bytes() for store in stores for part in ("train", "validation")])
    assert all(tokens[0])
    assert tokens[0] == tokens[1]
