"""Preparing: done once, whole or not at all, redone where something changed."""

import functools
import itertools
import json
import os
import re
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from tests.processes import FORKS
from tests.training.corpora.rows import as_lines, write
from training.corpora.documents import CorpusError
from training.corpora.manifest import Manifest
from training.corpora.prepare import tokenise_corpora
from training.corpora.source import Source, TokenizerChoice
from training.corpora.store_writer import PartWriter
from training.corpora.tokenizer import load_tokenizer, train_tokenizer


@pytest.fixture
def sources(tmp_path):
    draw = np.random.default_rng(0)
    made = {}
    for name in ("general", "law"):
        rows = [{"text": " ".join(f"{name}{word}" for word in draw.integers(0, 50, 30))} for _ in range(200)]
        made[name] = Source("files", path=str(write(tmp_path / f"{name}.jsonl", as_lines(rows))))
    return made


@pytest.fixture
def brought(tmp_path):
    return TokenizerChoice(path=str(train_tokenizer(["general law 1 2 3 4 5"] * 9, 265, tmp_path / "brought")))


@pytest.fixture
def prepare(sources, brought, tmp_path):
    """Prepare the sources above, or others, by the tokenizer above, or another, in a folder."""

    def prepare(out="out", given=sources, choice=brought, lines=None, **keys):
        log = quiet if lines is None else lines.append
        return tokenise_corpora(given, choice, tmp_path / out, progress=log, **keys)

    return prepare


STORE_FILES = {"meta.json", "train.bin", "validation.bin", "train.documents", "validation.documents"}


def quiet(*_):
    pass


def texts(source):
    return [json.loads(line)["text"] for line in Path(source.path).read_text().splitlines()]


def decoded(manifest, name, split):
    """The documents of a split, decoded."""
    store, tokenizer = manifest.store(name), load_tokenizer(manifest.tokenizer_path)
    tokens = store.batch(split, np.array([0]), store.tokens(split) - 1)[0]
    assert tokens[-1] == tokenizer.eos_token_id
    return tokenizer.decode(tokens).split(tokenizer.eos_token)[:-1]


def append(source, *texts):
    with Path(source.path).open("ab") as stream:
        stream.write(as_lines({"text": text} for text in texts))


def test_the_stores_hold_the_text(prepare, sources, tmp_path):
    manifest = prepare(choice=TokenizerChoice(vocabulary=300), validation_ratio=0.1)
    assert manifest.vocabulary == len(load_tokenizer(manifest.tokenizer_path)) == 300
    assert list(manifest.corpora) == ["general", "law"]
    for name, corpus in manifest.corpora.items():
        store = manifest.store(name)
        assert corpus.tokens == {split: store.tokens(split) for split in ("train", "validation")}
        read = decoded(manifest, name, "train") + decoded(manifest, name, "validation")
        assert len(read) == 200
        assert set(read) == set(texts(sources[name]))
        assert corpus.fingerprint == store.meta.fingerprint
        assert sum(corpus.bytes.values()) == sum(len(text) for text in read)
        assert 5 <= corpus.documents["validation"] <= 40
    assert Manifest.open(tmp_path / "out") == manifest


def test_few_long_documents_leave_little_to_validate_aloud(prepare, sources):
    lines = []
    prepare("even", lines=lines)
    assert not any("of the tokens validate" in line for line in lines)
    append(sources["law"], "a law " * 20_000)
    prepare(lines=lines)
    (line,) = (line for line in lines if "of the tokens validate" in line)
    assert re.match(r"law: [01]\.\d% of the tokens validate, where 5% was asked: whole documents are set apart", line)


def test_validation_text_that_is_trained_on_too_is_counted_aloud(prepare, sources):
    assert [(corpus.repeated, corpus.repetition) for corpus in prepare("first").corpora.values()] == [(0, "")] * 2
    given = texts(sources["law"])
    append(sources["law"], *given[::3])
    # Its page of law is in the training text, or the validation text, of another corpus.
    append(sources["general"], *given[1::3])
    manifest = prepare(validation_ratio=0.2)
    trained = {text for name in manifest.corpora for text in decoded(manifest, name, "train")}
    tokenizer = load_tokenizer(manifest.tokenizer_path)
    for name, corpus in manifest.corpora.items():
        repeated = [text for text in decoded(manifest, name, "validation") if text in trained]
        # Some are held out wherever they are.
        assert 0 < len(repeated) < corpus.documents["validation"]
        assert corpus.repeated == sum(len(tokenizer(text)["input_ids"]) + 1 for text in repeated)
        part = corpus.repeated / corpus.tokens["validation"]
        said = f"{part:.0%} of its validation text are documents that training text has word for word, so "
        assert corpus.repetition.startswith(said)


def test_a_second_time_nothing_is_done(prepare, tmp_path, monkeypatch):
    out = tmp_path / "out"
    first = prepare(choice=TokenizerChoice(vocabulary=300))
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.bin")}

    def never(*_, **__):
        raise AssertionError("done again")

    for name in ("make_store", "train_tokenizer", "load_tokenizer", "Screen.of"):
        monkeypatch.setattr(f"training.corpora.prepare.{name}", never)
    lines = []
    assert prepare(choice=TokenizerChoice(vocabulary=300), lines=lines) == first
    assert all("prepared already" in line for line in lines)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.bin")} == before


def test_what_changed_is_done_again_and_the_rest_is_not(prepare, sources):
    first = prepare()
    append(sources["law"], "one law more")
    lines = []
    second = prepare(lines=lines)
    assert second.corpora["general"] == first.corpora["general"]
    assert second.corpora["law"].fingerprint != first.corpora["law"].fingerprint
    assert sum("prepared already" in line for line in lines) == 1
    # Runs that began with the first preparation still find their store.
    assert first.store("law").meta.fingerprint == first.corpora["law"].fingerprint
    third = prepare(validation_ratio=0.2)
    assert third.corpora["general"].fingerprint != first.corpora["general"].fingerprint
    fourth = prepare(choice=TokenizerChoice(vocabulary=290))
    assert fourth.corpora["general"].fingerprint != first.corpora["general"].fingerprint


def test_another_end_of_text_of_the_same_tokenizer_makes_other_stores(prepare, brought):
    """As of a base model and its chat model, which have one tokenizer.json."""
    before = prepare()
    file = Path(brought.path or "", "tokenizer_config.json")
    settings = json.loads(file.read_text())
    file.write_text(json.dumps(settings | {"eos_token": "e"}))
    after = prepare()
    assert after.tokenizer == before.tokenizer
    for name in after.corpora:
        assert decoded(after, name, "train")
        assert after.store(name).meta.end_of_text != before.store(name).meta.end_of_text
    file.write_text(json.dumps(settings))
    assert prepare() == before


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_a_damaged_file_of_the_tokenizer_is_made_again(prepare, name, brought):
    for choice in (TokenizerChoice(290), brought):
        place = prepare(choice=choice).tokenizer_path
        whole = (place / name).read_bytes()
        (place / name).write_bytes(whole[:50])
        prepare(choice=choice)
        assert (place / name).read_bytes() == whole


def test_a_folder_is_complete_in_itself_and_can_be_moved(prepare, tmp_path):
    before = prepare()
    shutil.rmtree(tmp_path / "brought")
    (tmp_path / "out").rename(tmp_path / "moved")
    moved = Manifest.open(tmp_path / "moved")
    assert moved.store("law").meta.fingerprint == before.corpora["law"].fingerprint
    assert len(load_tokenizer(moved.tokenizer_path)) == moved.vocabulary == 265


@pytest.mark.parametrize("damaged", ["train.bin", "meta.json", "train.documents"])
def test_a_damaged_store_is_made_again(prepare, tmp_path, damaged):
    first = prepare()
    os.truncate(tmp_path / "out" / first.corpora["law"].folder / damaged, 10)
    with pytest.raises(CorpusError, match="prepare the corpora again"):
        first.store("law")
    lines = []
    assert prepare(lines=lines) == first
    assert sum("prepared already" in line for line in lines) == 1
    assert first.store("law").meta.fingerprint == first.corpora["law"].fingerprint


def test_a_fault_in_a_corpus_leaves_no_manifest(prepare, sources, tmp_path):
    Path(sources["law"].path).write_bytes(b"{\n")
    with pytest.raises(CorpusError, match=r"corpora\.law: .*law\.jsonl line 1: not JSON"):
        prepare()
    assert not (tmp_path / "out" / "manifest.json").exists()
    assert not list((tmp_path / "out").glob(".*.part"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"given": {"a": Source("files", path="/none")}}, "/none: no such file or folder"),
        ({"choice": TokenizerChoice(path="/none")}, "tokenizer: /none is not a folder"),
    ],
)
def test_mistakes_are_named(prepare, changes, message):
    with pytest.raises(CorpusError, match=message) as error:
        prepare(**changes)
    assert "\n" not in str(error.value)


def test_a_manifest_that_cannot_be_read_is_refused(prepare, tmp_path):
    manifest = prepare()
    with pytest.raises(CorpusError, match=r"no 'music' in .*; allowed: general, law"):
        manifest.store("music")
    path = tmp_path / "out" / "manifest.json"
    fields = json.loads(path.read_text())
    path.write_text(json.dumps(fields | {"schema": 0}))
    with pytest.raises(CorpusError, match=r"manifest\.json: schema 0; this version reads 1"):
        Manifest.open(tmp_path / "out")
    for damaged in ("{", "[]", json.dumps({"schema": 1}), json.dumps(fields | {"vocabulary": "9"})):
        path.write_text(damaged)
        with pytest.raises(CorpusError, match=r"manifest\.json: .*; prepare the corpora again"):
            Manifest.open(tmp_path / "out")


@pytest.fixture
def many(tmp_path):
    """Four corpora of half a megabyte in all, of every kind of file, cut into many chunks and parts."""
    draw = np.random.default_rng(1)
    words = np.array(["".join(draw.choice(list("abcdefghij"), 5)) for _ in range(300)])
    for number, kind in enumerate(("jsonl", "jsonl.gz", "parquet", "parquet")):
        rows = [{"text": " ".join(draw.choice(words, 60)), "n": row % 10} for row in range(400)]
        folder = tmp_path / f"c{number}"
        folder.mkdir()
        for part in range(3):
            write(folder / f"part-{part}.{kind}", as_lines(rows[part::3]), row_group_size=50)
        if number == 1:
            write(tmp_path / "held-out.jsonl", as_lines(rows[:20]))
    return of_files(tmp_path) | {"c3": Source("hub", name=f"{tmp_path}/c3", where=WHERE)}


WHERE = {"n": list(range(9))}


def of_files(folder):
    """Those of `many` that are files, of which one has a validation set."""
    sources = {f"c{number}": Source(path=f"{folder}/c{number}", where=WHERE) for number in range(3)}
    sources["c1"].validation = f"{folder}/held-out.jsonl"
    return sources


def all_bytes(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


SMALL = {"shards.CHUNK_CHARACTERS": 4000, "shards.PART_BYTES": 10_000, "files.SHARD_BYTES": (20_000, 20_000)}
"""Every file is cut."""


@pytest.fixture
def small_chunks(monkeypatch):
    for name, value in SMALL.items():
        monkeypatch.setattr(f"training.corpora.{name}", value)


@pytest.mark.slow
def test_any_number_of_corpora_and_workers_gives_the_same_bytes(prepare, many, tmp_path, small_chunks, monkeypatch):
    manifest = prepare("one", given=many, workers=1)
    assert list(manifest.corpora) == ["c0", "c1", "c2", "c3"]
    prepare("three", given=dict(reversed(many.items())), workers=3)
    monkeypatch.undo()
    prepare("whole", given=many, workers=1)
    expected = all_bytes(tmp_path / "one")
    for name in ("three", "whole"):
        assert all_bytes(tmp_path / name) == expected
    for name, corpus in manifest.corpora.items():
        assert {path.name for path in (manifest.folder / corpus.folder).iterdir()} == STORE_FILES
        # Of the twenty held out the filter drops two.
        screened = {"validation.same": 18} if name == "c1" else {}
        assert corpus.dropped == {"where.n": 40, **screened}
        assert sum(corpus.documents.values()) == (362 if name == "c1" else 360)


def _prepare_many(folder, moment, after):
    for name, value in SMALL.items():
        pytest.MonkeyPatch().setattr(f"training.corpora.{name}", value)
    inner, calls = getattr(PartWriter, moment), itertools.count(1)

    def dying(*arguments, **options):
        if next(calls) == after:
            os.kill(os.getpid(), signal.SIGKILL)
        return inner(*arguments, **options)

    setattr(PartWriter, moment, dying)
    lines = functools.partial(print, file=open(folder / "lines", "a"), flush=True)  # noqa: SIM115
    choice = TokenizerChoice(path=f"{folder}/brought")
    tokenise_corpora(of_files(folder), choice, folder / "out", workers=1, progress=lines)


def started(folder, moment="complete", call=0):
    """A process that prepares the files of `many`, and kills itself at a call of the writer; 0: it does not."""
    process = FORKS.Process(target=_prepare_many, args=(folder, moment, call))
    process.start()
    return process


def killed(folder, moment, call):
    """The lines that a process printed before it was killed."""
    (folder / "lines").unlink(missing_ok=True)
    process = started(folder, moment, call)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    return (folder / "lines").read_text().splitlines()


def test_two_at_once_agree(many, brought, tmp_path):
    both = [started(tmp_path) for _ in range(2)]
    assert [process.join() or process.exitcode for process in both] == [0, 0]
    out = tmp_path / "out"
    assert len(list(out.glob("*.json"))) == 1
    assert not list(out.glob(".*.part")) + list(out.glob("*.unfinished"))
    assert Manifest.open(out).store("c0").tokens("train") > 0


def test_killed_again_and_again_it_goes_on_and_ends_with_the_same_bytes(prepare, many, tmp_path, small_chunks):
    prepare("clean", given=of_files(tmp_path), workers=1)
    out, lines = tmp_path / "out", []
    (out / ".c0-0.part").mkdir(parents=True)
    kills = [("complete", 4), ("add", 700), ("complete", 1)]
    for moment, call in kills:
        lines += killed(tmp_path, moment, call)
        with pytest.raises(CorpusError, match=r"manifest\.json: missing; prepare the corpora first"):
            Manifest.open(out)
    prepare(given=of_files(tmp_path), workers=2, lines=lines)
    assert sum("resumes after" in line for line in lines) == len(kills)
    assert not list(out.glob(".*.part"))
    assert all_bytes(out) == all_bytes(tmp_path / "clean")


def test_what_was_begun_is_not_continued_where_the_corpus_has_changed(prepare, many, tmp_path, small_chunks):
    killed(tmp_path, "add", 40)
    assert list((tmp_path / "out").glob("*.unfinished"))
    write(tmp_path / "c0" / "part-9.jsonl", as_lines([{"text": "one more", "n": 1}]))
    lines = []
    prepare(given=of_files(tmp_path), workers=1, lines=lines)
    assert not any("resumes after" in line for line in lines)
    assert not list((tmp_path / "out").glob("*.unfinished"))
    prepare("clean", given=of_files(tmp_path), workers=1)
    assert all_bytes(tmp_path / "out") == all_bytes(tmp_path / "clean")


def test_progress_goes_to_a_bar_or_into_lines(prepare, many, small_chunks, monkeypatch):
    calls, lines = [], []
    read = {name: many[name] for name in ("c0", "c3")}
    prepare("bar", given=read, workers=1, bar=lambda *call: calls.append(call))
    assert calls.pop(0) == ("c0", 0, None), "begun"
    sizes, fractions = zip(*[(size, fraction) for name, size, fraction in calls if name == "c0"], strict=True)
    assert list(sizes) == sorted(sizes)
    assert list(fractions) == sorted(fractions)
    assert 0 < fractions[0] < 0.5
    assert fractions[-1] == 1.0
    assert {fraction for name, _, fraction in calls if name == "c3"} == {None}
    monkeypatch.setattr("training.corpora.corpus_store._REPORT_SECONDS", 0.0)
    prepare("lines", given={"c0": many["c0"]}, workers=1, lines=lines)
    assert any(re.fullmatch(r"c0: 0 MB tokenised, \d+ documents, \d+% of the source", line) for line in lines)


def test_a_validation_set_is_the_validation_split_and_stays_out_of_all_training(prepare, sources, tmp_path):
    law = texts(sources["law"])
    held_out = law[:20]
    near = [" ".join([*text.split()[:-1], "changed"]) for text in held_out[:7]]
    append(sources["law"], *near)
    append(sources["general"], f"Before it. {held_out[9]} After it.")
    path = write(tmp_path / "validation.jsonl", as_lines({"text": text} for text in held_out))
    sources["law"].validation = str(path)
    lines = []
    manifest = prepare(lines=lines)
    assert decoded(manifest, "law", "validation") == held_out
    assert decoded(manifest, "law", "train") == law[20:]
    assert manifest.corpora["law"].dropped == {"validation.same": 20, "validation.near": 7}
    assert manifest.corpora["general"].dropped == {"validation.near": 1}
    validation = decoded(manifest, "general", "validation")
    assert validation
    assert not any(held_out[9] in text for text in decoded(manifest, "general", "train") + validation)
    assert "law: kept 200 of 227 documents; dropped: 7 validation.near, 20 validation.same" in lines
    # The set is part of what the stores are made of.
    again = prepare(lines=lines)
    assert again == manifest
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:10]))
    fewer = prepare()
    assert fewer.corpora["law"].documents == {"train": 190, "validation": 10}
    assert fewer.corpora["general"].folder != manifest.corpora["general"].folder


def test_sources_that_cannot_be_read_are_told_at_once_and_long_ones_before(prepare, sources, monkeypatch):
    gone = {"a": Source("files", path="/none"), "b": Source("hub", name="/none"), **sources}
    with pytest.raises(CorpusError) as error:
        prepare(given=gone)
    assert re.fullmatch(r"corpora\.a: /none: .*\ncorpora\.b: /none: .*", str(error.value))
    monkeypatch.setattr("training.corpora.prepare._LONG_BYTES", 1)
    monkeypatch.setattr("training.corpora.reader._QUICK_SECONDS", 0.0)
    lines = []
    prepare(choice=TokenizerChoice(300), lines=lines)
    begun = ["tokenizer: drawing text, and training on it", "tokenizer: ", "general: tokenising", "general: "]
    begun = ["general: fingerprint of 0.0 GB", "law: fingerprint of 0.0 GB", *begun, "law: tokenising", "law: "]
    assert [line.startswith(start) for line, start in zip(lines, begun, strict=True)] == [True] * len(begun)
