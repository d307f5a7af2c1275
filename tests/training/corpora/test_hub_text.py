"""Data sets by name: a folder stands for one, and the hub's own cache for the hub."""

import json
import os
import socket
import subprocess
import sys

import pytest

from tests.training.corpora.rows import as_lines, with_places, write
from training.corpora.documents import CorpusError
from training.corpora.hub_text import HubReading, folder_fingerprint, pinned_revision
from training.corpora.manifest import Manifest
from training.corpora.prepare import TokenizerChoice, prepare
from training.corpora.source import Source, SourceReader

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def write_set(folder, kind="parquet", files=3, rows=40):
    (folder / "data").mkdir(parents=True)
    for number in range(files):
        texts = [{"body": f"text {number} of row {row}, é", "book": f"b{row % 4}"} for row in range(rows)]
        write(folder / "data" / f"train-{number:05d}-of-{files:05d}.{kind}", as_lines(texts))
    return folder


def hub(folder, **changes):
    return Source("hub", **{"name": str(folder), "column": "body"} | changes)


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_a_folder_is_streamed_like_a_data_set(tmp_path, kind):
    source = hub(write_set(tmp_path / "set", kind), group="book")
    documents = list(SourceReader({"a": source}).documents("a"))
    assert len(documents) == 120
    assert documents[0] == ("b0#train:1", "text 0 of row 0, é")
    assert documents[-1] == ("b3#train:120", "text 2 of row 39, é")


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_a_stream_goes_on_from_any_place(tmp_path, kind):
    reader = SourceReader({"a": hub(write_set(tmp_path / "set", kind))})
    documents, places = with_places(reader.reading("a"))
    for number in (0, 15, 16, 39, 40, 77, 118, 119):
        assert list(reader.reading("a", places[number])) == documents[number + 1 :]


def test_of_a_stream_the_first_bytes_are_taken_and_no_more(tmp_path):
    folder = write_set(tmp_path / "set")
    # The last file is never opened.
    (folder / "data" / "train-00002-of-00003.parquet").write_bytes(b"damaged")
    source = hub(folder, max_bytes=200)
    documents, places = with_places(SourceReader({"a": source}).reading("a"))
    assert 200 <= sum(len(text.encode()) for _, text in documents) < 230
    assert SourceReader({"a": hub(folder)}).sample("a", 200) == documents
    assert list(SourceReader({"a": source}).reading("a", places[0])) == documents[1:]


def test_the_fingerprint_of_a_folder_is_its_files(tmp_path):
    one, two = write_set(tmp_path / "one"), write_set(tmp_path / "two")
    assert folder_fingerprint(one) == folder_fingerprint(two)
    assert hub(one).pinned().fingerprint() == hub(two).fingerprint()
    (two / ".cache").mkdir()
    (two / ".cache" / "x").write_text("hidden")
    assert folder_fingerprint(one) == folder_fingerprint(two)
    (two / "README.md").write_text("---\n---\n")
    assert folder_fingerprint(one) != folder_fingerprint(two)
    changes = [{"group": "book"}, {"split": "test"}, {"subset": "en"}, {"max_bytes": 9}, {"column": "book"}]
    assert len({hub(one, **change).fingerprint() for change in [{}, *changes]}) == 6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"split": "test"}, r"cannot be read by datasets \(.*test"),
        ({"subset": "french"}, r"cannot be read by datasets \(.*french"),
        ({"column": "text"}, r"train row 1: no column 'text'; its columns: body, book"),
        ({"name": "no such/set/anywhere"}, r"no such folder, and not a name on the hub; allowed: owner/name"),
    ],
)
def test_faults_are_one_line(tmp_path, changes, message):
    source = hub(write_set(tmp_path / "set"), **changes)
    with pytest.raises(CorpusError, match=message) as error:
        list(SourceReader({"a": source}).documents("a"))
    assert "\n" not in str(error.value)


def test_a_damaged_file_and_a_folder_with_a_revision_are_refused(tmp_path):
    folder = write_set(tmp_path / "set")
    (folder / "data" / "train-00001-of-00003.parquet").write_bytes(b"damaged")
    with pytest.raises(CorpusError, match="cannot be read by datasets"):
        list(HubReading(str(folder), column="body"))
    with pytest.raises(CorpusError, match="a local folder has no revision"):
        pinned_revision(str(folder), "main")
    assert pinned_revision("owner/name", COMMIT) == COMMIT


ASK = """
import json, sys
from training.corpora.documents import CorpusError
from training.corpora.source import Source, SourceReader
for name, revision in json.loads(sys.argv[1]):
    try:
        source = Source("hub", name=name, column="body", revision=revision).pinned()
        documents = list(SourceReader({"a": source}).documents("a"))
        print(source.revision, source.fingerprint(), len(documents), documents[-1])
    except CorpusError as error:
        print("REFUSED", error)
"""


def ask(*questions, **environment):
    """A line for each (name, revision), from a process with this environment: it is read once a process."""
    command = [sys.executable, "-c", ASK, json.dumps(questions)]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize("switch", ["HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"])
def test_offline_the_cache_is_the_hub(tmp_path, switch):
    cached = tmp_path / "hub" / "datasets--owner--name"
    write_set(cached / "snapshots" / COMMIT)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(COMMIT)
    questions = [("owner/name", None), ("owner/name", COMMIT), ("owner/other", None), ("owner/name", "v2")]
    newest, pinned, other, tagged = ask(*questions, **{"HF_HOME": str(tmp_path), switch: "1"})
    assert newest.startswith(COMMIT)
    assert newest.endswith("120 ('train:120', 'text 2 of row 39, é')")
    assert pinned == newest
    assert other.startswith("REFUSED owner/other: offline, and not in the Hugging Face cache; go online, or fetch it")
    assert "not in the Hugging Face cache at revision v2; go online" in tagged


def test_a_hub_that_cannot_be_reached_is_one_line(tmp_path):
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{listening.getsockname()[1]}"
        (answer,) = ask(("owner/name", None), HF_HOME=str(tmp_path), HF_ENDPOINT=nobody, HF_HUB_OFFLINE="0")
    assert answer.startswith("REFUSED owner/name: the Hugging Face hub cannot be reached (")
    assert "set HF_HUB_OFFLINE=1" in answer


def test_the_commit_is_in_the_manifest_and_stays(tmp_path, monkeypatch):
    folder = write_set(tmp_path / "set")
    commits = iter([COMMIT, "f" * 40])
    monkeypatch.setattr("training.corpora.source.pinned_revision", lambda name, revision: revision or next(commits))
    monkeypatch.setattr("training.corpora.hub_text._offline", lambda: True)
    monkeypatch.setattr("training.corpora.hub_text._cached", lambda name, revision: folder)
    lines = []
    for _ in range(2):
        prepare({"a": hub("owner/name")}, TokenizerChoice(300), tmp_path / "out", progress=lines.append)
        assert Manifest.open(tmp_path / "out").corpora["a"].revision == COMMIT
    assert lines[-1].startswith("a: prepared already")
    prepare({"a": hub("owner/name", revision="e" * 40)}, TokenizerChoice(300), tmp_path / "out", progress=lines.append)
    assert Manifest.open(tmp_path / "out").corpora["a"].revision == "e" * 40
