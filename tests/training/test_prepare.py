"""Preparing: done once, whole or not at all, redone where something changed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from training.corpus_error import CorpusError
from training.manifest import Manifest
from training.prepare import TokenizerChoice, prepare
from training.source import Source
from training.tokenizer import load_tokenizer, train_tokenizer


@pytest.fixture
def sources(tmp_path):
    draw = np.random.default_rng(0)
    made = {}
    for name in ("general", "law"):
        path = tmp_path / f"{name}.jsonl"
        rows = [{"text": " ".join(f"{name}{word}" for word in draw.integers(0, 50, 30))} for _ in range(200)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        made[name] = Source("files", path=str(path))
    return made


@pytest.fixture
def brought(tmp_path):
    return TokenizerChoice(path=str(train_tokenizer(["general law 1 2 3 4 5"] * 9, 265, tmp_path / "brought")))


def quiet(*_):
    pass


def texts(source):
    return {json.loads(line)["text"] for line in Path(source.path).read_text().splitlines()}


def append(source, text):
    with Path(source.path).open("a") as stream:
        stream.write(text)


def test_the_stores_hold_the_text(sources, tmp_path):
    choice = TokenizerChoice(vocabulary=300)
    manifest = prepare(sources, choice, tmp_path / "out", validation_share=0.1, progress=quiet)
    tokenizer = load_tokenizer(manifest.tokenizer_path)
    assert manifest.vocabulary == len(tokenizer) == 300
    assert list(manifest.corpora) == ["general", "law"]
    for name, corpus in manifest.corpora.items():
        store = manifest.store(name)
        read = []
        for split in ("train", "validation"):
            assert store.tokens(split) == corpus.tokens[split] > 0
            tokens = store.batch(split, np.array([0]), store.tokens(split) - 1)[0]
            assert tokens[-1] == tokenizer.eos_token_id
            read += tokenizer.decode(tokens).split(tokenizer.eos_token)[:-1]
        assert len(read) == 200
        assert set(read) == texts(sources[name])
        assert corpus.fingerprint == store.fingerprint
        assert sum(corpus.bytes.values()) == sum(len(text) for text in read)
        assert 5 <= corpus.documents["validation"] <= 40
    assert Manifest.open(tmp_path / "out") == manifest


def test_a_second_time_nothing_is_done(sources, tmp_path, monkeypatch):
    out = tmp_path / "out"
    first = prepare(sources, TokenizerChoice(vocabulary=300), out, progress=quiet)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.bin")}

    def never(*_, **__):
        raise AssertionError("done again")

    for name in ("write_store", "train_tokenizer", "load_tokenizer"):
        monkeypatch.setattr(f"training.prepare.{name}", never)
    lines = []
    assert prepare(sources, TokenizerChoice(vocabulary=300), out, progress=lines.append) == first
    assert all("prepared already" in line for line in lines)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.bin")} == before


def test_what_changed_is_done_again_and_the_rest_is_not(sources, brought, tmp_path):
    out = tmp_path / "out"
    first = prepare(sources, brought, out, progress=quiet)
    append(sources["law"], '{"text": "one law more"}\n')
    lines = []
    second = prepare(sources, brought, out, progress=lines.append)
    assert second.corpora["general"] == first.corpora["general"]
    assert second.corpora["law"].fingerprint != first.corpora["law"].fingerprint
    assert sum("prepared already" in line for line in lines) == 1
    # Runs that began with the first preparation still find their store.
    assert first.store("law").fingerprint == first.corpora["law"].fingerprint
    third = prepare(sources, brought, out, validation_share=0.2, progress=quiet)
    assert third.corpora["general"].fingerprint != first.corpora["general"].fingerprint
    fourth = prepare(sources, TokenizerChoice(vocabulary=290), out, progress=quiet)
    assert fourth.corpora["general"].fingerprint != first.corpora["general"].fingerprint


def test_elsewhere_and_in_another_order_gives_the_same(sources, brought, tmp_path):
    one = prepare(sources, brought, tmp_path / "one", progress=quiet)
    two = prepare(dict(reversed(sources.items())), brought, tmp_path / "two", progress=quiet)
    files = [tmp_path / folder / "manifest.json" for folder in ("one", "two")]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert one.corpora == two.corpora
    (tmp_path / "one").rename(tmp_path / "moved")
    assert Manifest.open(tmp_path / "moved").store("law").fingerprint == two.corpora["law"].fingerprint


def test_a_brought_tokenizer_is_copied(sources, brought, tmp_path):
    manifest = prepare(sources, brought, tmp_path / "out", progress=quiet)
    for path in (tmp_path / "brought").iterdir():
        path.unlink()
    assert len(load_tokenizer(manifest.tokenizer_path)) == manifest.vocabulary == 265


PROGRAM = """
import os, signal, sys
from training.prepare import *
from training.source import Source
folder, kill = sys.argv[1], int(sys.argv[2])
lines = []
def progress(line):
    lines.append(line)
    if len(lines) == kill:
        os.kill(os.getpid(), signal.SIGKILL)
sources = {name: Source("files", path=f"{folder}/{name}.jsonl") for name in ("general", "law")}
prepare(sources, TokenizerChoice(vocabulary=300), folder + "/out", progress=progress)
"""


@pytest.mark.parametrize("kill", [1, 2])
def test_killed_in_between_it_goes_on(sources, tmp_path, kill):
    out = tmp_path / "out"
    out.mkdir()
    (out / ".general-0.part").mkdir()
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path), str(kill)])
    assert done.returncode == -signal.SIGKILL
    with pytest.raises(CorpusError, match=r"manifest\.json: missing; prepare the corpora first"):
        Manifest.open(out)
    lines = []
    prepare(sources, TokenizerChoice(vocabulary=300), out, progress=lines.append)
    assert ["prepared already" in line for line in lines] == [True] * kill + [False] * (3 - kill)
    assert not list(out.glob(".*.part"))
    clean = prepare(sources, TokenizerChoice(vocabulary=300), tmp_path / "clean", progress=quiet)
    assert Manifest.open(out).corpora == clean.corpora


def test_two_at_once_agree(sources, tmp_path):
    run = [sys.executable, "-c", PROGRAM, str(tmp_path), "-1"]
    both = [subprocess.Popen(run) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert len(list((tmp_path / "out").glob("*.json"))) == 1
    assert not list((tmp_path / "out").glob(".*.part"))
    assert Manifest.open(tmp_path / "out").store("law").tokens("train") > 0


@pytest.mark.parametrize("damaged", ["train.bin", "meta.json"])
def test_a_damaged_store_is_made_again(sources, brought, tmp_path, damaged):
    first = prepare(sources, brought, tmp_path / "out", progress=quiet)
    os.truncate(tmp_path / "out" / first.corpora["law"].folder / damaged, 10)
    with pytest.raises(CorpusError, match="prepare the corpora again"):
        first.store("law")
    lines = []
    assert prepare(sources, brought, tmp_path / "out", progress=lines.append) == first
    assert sum("prepared already" in line for line in lines) == 1
    assert first.store("law").fingerprint == first.corpora["law"].fingerprint


def test_a_fault_in_a_corpus_leaves_no_manifest(sources, brought, tmp_path):
    append(sources["law"], "{\n")
    with pytest.raises(CorpusError, match=r"corpora\.law: .*law\.jsonl line 201: not JSON"):
        prepare(sources, brought, tmp_path / "out", progress=quiet)
    assert not (tmp_path / "out" / "manifest.json").exists()
    assert not list((tmp_path / "out").glob(".*.part"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sources": {}}, "corpora: none named"),
        ({"sources": {"a/b": Source("installed-python")}}, "corpora: 'a/b' is no name for a corpus"),
        ({"sources": {"a": Source("web")}}, r"corpora\.a\.kind: 'web'"),
        ({"sources": {"a": Source("files", path="/none")}}, "/none: no such file or folder"),
        ({"tokenizer": TokenizerChoice()}, "tokenizer: vocabulary None, path None; allowed: one of the two"),
        ({"tokenizer": TokenizerChoice(300, "x")}, "tokenizer: vocabulary 300, path x"),
        ({"tokenizer": TokenizerChoice(9)}, "vocabulary: 9; allowed: 257"),
        ({"tokenizer": TokenizerChoice(path="/none")}, "tokenizer: /none is not a folder"),
        ({"validation_share": 1.0}, r"validation_share: 1\.0"),
    ],
)
def test_mistakes_are_named(sources, tmp_path, changes, message):
    arguments = {"sources": sources, "tokenizer": TokenizerChoice(300), "validation_share": 0.05} | changes
    with pytest.raises(CorpusError, match=message):
        prepare(folder=tmp_path / "out", progress=quiet, **arguments)


def test_a_manifest_that_cannot_be_read_is_refused(sources, brought, tmp_path):
    manifest = prepare(sources, brought, tmp_path / "out", progress=quiet)
    with pytest.raises(CorpusError, match=r"no 'music' in .*; allowed: general, law"):
        manifest.store("music")
    path = tmp_path / "out" / "manifest.json"
    fields = json.loads(path.read_text())
    path.write_text(json.dumps(fields | {"schema": 0}))
    with pytest.raises(CorpusError, match=r"manifest\.json: schema 0; this version reads 1"):
        Manifest.open(tmp_path / "out")
    for damaged in ("{", "[]", json.dumps({"schema": 1}), json.dumps(fields | {"more": 1})):
        path.write_text(damaged)
        with pytest.raises(CorpusError, match=r"manifest\.json: damaged .*; prepare the corpora again"):
            Manifest.open(tmp_path / "out")
