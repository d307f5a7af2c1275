"""Data sets by name: a folder stands for one, and the hub's own cache for the hub."""

import json
import os
import socket
import subprocess
import sys

import pytest

from tests.training.corpora.rows import as_lines, with_positions, write
from training.corpora.documents import CorpusError
from training.corpora.hub import pinned_revision
from training.corpora.manifest import Manifest
from training.corpora.prepare import tokenise_corpora
from training.corpora.readers import open_reader
from training.corpora.source import Source, TokenizerChoice

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def write_set(folder, kind="parquet", files=3, rows=40):
    (folder / "data").mkdir(parents=True)
    for number in range(files):
        texts = [{"body": f"text {number} of row {row}, é", "book": f"b{row % 4}"} for row in range(rows)]
        write(folder / "data" / f"train-{number:05d}-of-{files:05d}.{kind}", as_lines(texts))
    return folder


def hub(folder, **changes):
    return Source("hub", **{"name": str(folder), "column": "body"} | changes)


def reader_of(folder, **changes):
    return open_reader("a", hub(folder, **changes))


def test_files_that_datasets_does_not_read_are_named(tmp_path):
    (tmp_path / "sets" / ".hidden").mkdir(parents=True)
    for name in ("a.jsonl", "b.JSONL", "c.csv", ".hidden/d.jsonl"):
        (tmp_path / "sets" / name).write_text('{"text": "x"}\n')
    reader = open_reader("a", Source("hub", name=str(tmp_path / "sets")))
    assert [text for _, text in reader.documents()] == ["x"]
    assert reader.passed_over() == "3 that datasets does not read (.hidden/, b.JSONL, c.csv)"


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_a_folder_is_streamed_like_a_data_set_from_any_place_on(tmp_path, kind):
    reader = reader_of(write_set(tmp_path / "set", kind), group="book")
    documents, positions = with_positions(reader.documents())
    assert len(documents) == 120
    assert documents[0] == ("b0#train:1", "text 0 of row 0, é")
    assert documents[-1] == ("b3#train:120", "text 2 of row 39, é")
    for number in (0, 15, 16, 39, 40, 77, 118, 119):
        assert list(reader.documents(position=positions[number])) == documents[number + 1 :]


def test_of_a_stream_the_first_bytes_are_taken_and_no_more(tmp_path):
    folder = write_set(tmp_path / "set")
    # The last file is never opened.
    (folder / "data" / "train-00002-of-00003.parquet").write_bytes(b"damaged")
    reader = reader_of(folder, max_bytes=200)
    documents, positions = with_positions(reader.documents())
    assert 200 <= sum(len(text.encode()) for _, text in documents) < 230
    assert reader_of(folder).sample(200) == documents
    assert list(reader.documents(position=positions[0])) == documents[1:]


def test_the_fingerprint_of_a_folder_is_its_files(tmp_path):
    one, two = write_set(tmp_path / "one"), write_set(tmp_path / "two")
    before = reader_of(one).fingerprint()
    assert open_reader("a", reader_of(one).pinned()).fingerprint() == reader_of(two).fingerprint() == before
    (two / ".cache").mkdir()
    (two / ".cache" / "x").write_text("hidden")
    assert reader_of(two).fingerprint() == before
    (two / "README.md").write_text("---\n---\n")
    assert reader_of(two).fingerprint() != before
    changes = [{"group": "book"}, {"split": "test"}, {"subset": "en"}, {"max_bytes": 9}, {"column": "book"}]
    assert len({before, *(reader_of(one, **change).fingerprint() for change in changes)}) == 6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"split": "test"}, r"cannot be read by datasets \(.*test"),
        ({"subset": "french"}, r"cannot be read by datasets \(.*french"),
        ({"column": "text"}, r"train row 1: no column 'text'; its columns: body, book; give .*sources\.a\.column=body"),
        ({"folder": "no such/set/anywhere"}, r"no such folder, and not a name on the hub; allowed: owner/name"),
    ],
)
def test_faults_are_one_line(tmp_path, changes, message):
    reader = reader_of(**{"folder": write_set(tmp_path / "set")} | changes)
    with pytest.raises(CorpusError, match=message) as error:
        list(reader.documents())
    assert "\n" not in str(error.value)


def test_a_damaged_file_and_a_folder_with_a_revision_are_refused(tmp_path):
    folder = write_set(tmp_path / "set")
    (folder / "data" / "train-00001-of-00003.parquet").write_bytes(b"damaged")
    with pytest.raises(CorpusError, match="cannot be read by datasets"):
        list(reader_of(folder).documents())
    with pytest.raises(CorpusError, match="a local folder has no revision"):
        pinned_revision(str(folder), "main")
    assert pinned_revision("owner/name", COMMIT) == COMMIT


ASK = """
import json, sys
from training.corpora.documents import CorpusError
from training.corpora.readers import open_reader
from training.corpora.source import Source, TokenizerChoice
for name, revision in json.loads(sys.argv[1]):
    try:
        reader = open_reader("a", Source("hub", name=name, column="body", revision=revision))
        reader = open_reader("a", reader.pinned())
        documents = list(reader.documents())
        print(reader.source.revision, reader.fingerprint(), len(documents), documents[-1])
    except CorpusError as error:
        print("REFUSED", error)
"""


@pytest.mark.slow
def test_offline_the_cache_is_the_hub(tmp_path):
    cached = tmp_path / "hub" / "datasets--owner--name"
    write_set(cached / "snapshots" / COMMIT)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(COMMIT)
    questions = json.dumps([("owner/name", None), ("owner/name", COMMIT), ("owner/other", None), ("owner/name", "v2")])
    # In a process of its own: the environment is read once.
    environment = os.environ | {"HF_HOME": str(tmp_path), "HF_DATASETS_OFFLINE": "1"}
    command = [sys.executable, "-c", ASK, questions]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    newest, pinned, other, tagged = done.stdout.splitlines()
    assert newest.startswith(COMMIT)
    assert newest.endswith("120 ('train:120', 'text 2 of row 39, é')")
    assert pinned == newest
    assert other.startswith("REFUSED owner/other: offline, and not in the Hugging Face cache; go online, or fetch it")
    assert "not in the Hugging Face cache at revision v2; go online" in tagged


def test_a_hub_that_cannot_be_reached_is_one_line(monkeypatch):
    monkeypatch.setattr("training.corpora.hub._offline", lambda: False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{listening.getsockname()[1]}")
        with pytest.raises(CorpusError) as error:
            reader_of("owner/name").pinned()
    (line,) = str(error.value).splitlines()
    assert line.startswith("owner/name: the Hugging Face hub cannot be reached (")
    assert "set HF_HUB_OFFLINE=1" in line


def test_the_commit_is_in_the_manifest_and_stays(tmp_path, monkeypatch):
    folder = write_set(tmp_path / "set")
    commits = iter([COMMIT, "f" * 40])
    monkeypatch.setattr("training.corpora.hub.pinned_revision", lambda name, revision: revision or next(commits))
    monkeypatch.setattr("training.corpora.hub._offline", lambda: True)
    monkeypatch.setattr("training.corpora.hub._cached", lambda name, revision: folder)
    for revision, expected in ((None, COMMIT), (None, COMMIT), ("e" * 40, "e" * 40)):
        source = hub("owner/name", revision=revision)
        tokenise_corpora({"a": source}, TokenizerChoice(300), tmp_path / "out", progress=lambda _: None)
        assert Manifest.open(tmp_path / "out").corpora["a"].revision == expected
