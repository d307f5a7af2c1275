"""Token stores: what goes in comes out, window by window; what is damaged is refused."""

import dataclasses
import json
import os
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.corpora.documents import CorpusError, in_validation
from training.corpora.store import TokenStore
from training.corpora.store_writer import PartWriter, Tokenisation, merge_parts, part_totals, read_parts

END = 0
HOW = Tokenisation("", "t", 1000, END, 0.2)


class Document(NamedTuple):
    name: str
    tokens: np.ndarray
    size: int


def documents(count=200, vocabulary=1000, seed=0):
    draw = np.random.default_rng(seed)
    return [Document(f"doc-{n}", draw.integers(1, vocabulary, draw.integers(0, 40)), 7) for n in range(count)]


def split_of(doc, ratio=0.2):
    return "validation" if in_validation(doc.name, ratio) else "train"


def write_part(shard, number, docs, how=HOW, *, whole=True, screened=None, position=None):
    shard.mkdir(parents=True, exist_ok=True)
    with PartWriter(shard, number, how) as writer:
        for doc in docs:
            writer.add(*doc, split_of(doc, how.validation_ratio))
        writer.part.screened.update(screened or {})
        if whole:
            writer.complete(position, last=position is None)


def write(folder, docs=None, **how):
    """A store of two parts."""
    docs, how = documents() if docs is None else docs, dataclasses.replace(HOW, **how)
    for number, half in enumerate((docs[: len(docs) // 2], docs[len(docs) // 2 :])):
        write_part(folder / "00000", number, half, how)
    merge_parts(folder, read_parts(folder / "00000"), how, {})
    return TokenStore.open(folder)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return write(tmp_path_factory.mktemp("store") / "a")


def flat(docs, split):
    return np.concatenate([np.append(doc.tokens, END) for doc in docs if split_of(doc) == split])


def test_splits_hold_the_documents_in_order_each_ended(store):
    docs = documents()
    for split in ("train", "validation"):
        expected = flat(docs, split)
        assert store.tokens(split) == len(expected)
        got = store.batch(split, np.arange(store.windows(split, 1)), 1)
        np.testing.assert_array_equal(got, np.stack([expected[:-1], expected[1:]], axis=1))
    assert sum(store.meta.documents.values()) == len(docs)
    assert sum(store.meta.bytes.values()) == 7 * len(docs)
    assert store.meta.vocabulary == 1000


@settings(deadline=None, max_examples=50)
@given(st.data(), st.integers(1, 97))
def test_batches_are_the_windows(store, data, length):
    expected = flat(documents(), "train")
    windows = store.windows("train", length)
    assert windows * length + 1 <= len(expected) < (windows + 1) * length + 1
    positions = data.draw(st.lists(st.integers(0, windows - 1), max_size=9))
    batch = store.batch("train", np.array(positions, dtype=np.int64), length)
    assert batch.shape == (len(positions), length + 1)
    assert batch.dtype == np.int64
    for row, k in zip(batch, positions, strict=True):
        np.testing.assert_array_equal(row, expected[k * length : k * length + length + 1])


def test_a_position_outside_is_refused(store):
    windows = store.windows("train", 16)
    for position in (-1, windows):
        with pytest.raises(IndexError, match=f"allowed: 0 to {windows - 1}"):
            store.batch("train", np.array([0, position]), 16)


def test_validation_windows_are_fixed_and_spread(store):
    windows = store.windows("validation", 16)
    positions = store.validation_positions(10, 16)
    assert len(positions) == 10
    assert set(np.diff(positions)) <= {windows // 10, windows // 10 + 1}
    assert abs(positions[0] - (windows - 1 - positions[-1])) <= 1
    np.testing.assert_array_equal(store.validation_positions(10**6, 16), np.arange(windows))
    with pytest.raises(CorpusError, match="less than one window of 100000"):
        store.validation_positions(1, 100_000)


def test_fingerprint_follows_the_content_the_tokenizer_and_the_split(store, tmp_path):
    same = write(tmp_path / "elsewhere")
    assert same.meta.fingerprint == store.meta.fingerprint
    other = documents()
    other[3] = Document("doc-3", np.array([5]), 7)
    changed = [
        write(tmp_path / "content", other),
        write(tmp_path / "order", documents()[::-1]),
        write(tmp_path / "tokenizer", fingerprint="u"),
        write(tmp_path / "split", validation_ratio=0.2000001),
    ]
    assert len({store.meta.fingerprint, *(other.meta.fingerprint for other in changed)}) == 5


def test_dtype_follows_the_vocabulary(tmp_path):
    assert write(tmp_path / "a", vocabulary=2**16).meta.dtype == "uint16"
    large = [Document(f"d{n}", np.array([2**16]), 1) for n in range(50)]
    store = write(tmp_path / "b", large, vocabulary=2**16 + 1)
    assert store.meta.dtype == "uint32"
    assert store.batch("train", np.array([0]), 1)[0, 0] == 2**16


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocabulary": 900}, "ids beyond the tokenizer's"),
        ({"end_of_text": 1000}, "ids beyond the tokenizer's"),
        ({"docs": documents(1)}, "none of its 1 documents falls to"),
    ],
)
def test_what_cannot_be_stored_is_refused_and_leaves_no_store(tmp_path, changes, message):
    with pytest.raises((CorpusError, AssertionError), match=message):
        write(tmp_path / "a", **changes)
    with pytest.raises(CorpusError, match="no token store here"):
        TokenStore.open(tmp_path / "a")


def test_a_part_is_whole_or_absent_and_what_was_left_of_it_is_overwritten(tmp_path):
    docs, shard = documents(), tmp_path / "00000"
    write_part(shard, 0, docs[:90], screened={"validation.near": 2}, position=[90, {"empty": 1}])
    write_part(shard, 1, docs[90:150], whole=False)
    (part,) = read_parts(shard)
    assert (part.position, part.last, part.screened) == ([90, {"empty": 1}], False, {"validation.near": 2})
    assert part_totals([part]) == (90 * 7, 90)
    write_part(shard, 1, docs[90:])
    merge_parts(tmp_path, read_parts(shard), HOW, {"empty": 1})
    expected = dataclasses.replace(write(tmp_path / "whole").meta, dropped={"empty": 1, "validation.near": 2})
    assert TokenStore.open(tmp_path).meta == expected


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_a_killed_merge_goes_on(tmp_path, kept):
    """Parts that were appended are gone; the rest of the file may hold anything."""
    docs, folder = documents(), tmp_path / "a"
    whole = write(tmp_path / "whole", [*docs[0::3], *docs[1::3], *docs[2::3]])
    for number in range(3):
        write_part(folder / "00000", number, docs[number::3])
    parts = read_parts(folder / "00000")
    with (folder / "train.bin").open("wb") as stream:
        for part in parts[:kept]:
            stream.write(part.file("train").read_bytes())
            part.file("train").unlink()
        stream.write(b"half of the next part, or more" * 999)
    merge_parts(folder, parts, HOW, {})
    assert TokenStore.open(folder).meta == whole.meta
    assert (folder / "train.bin").read_bytes() == (whole.folder / "train.bin").read_bytes()
    assert not list(folder.glob("*/*.bin"))


def test_damage_is_refused_in_one_clear_line(tmp_path):
    folder = tmp_path / "a"
    store = write(folder)
    size = (folder / "train.bin").stat().st_size

    os.truncate(folder / "train.bin", size - 2)
    with pytest.raises(CorpusError, match=rf"train\.bin: has {size - 2} bytes, meta\.json says {size}"):
        TokenStore.open(folder)
    (folder / "train.bin").unlink()
    with pytest.raises(CorpusError, match=r"train\.bin: is missing"):
        TokenStore.open(folder)
    meta = json.loads((folder / "meta.json").read_text())
    for content, message in (
        (json.dumps(meta | {"schema": 99}), r"meta\.json: schema 99; this version reads 1;"),
        (json.dumps({key: value for key, value in meta.items() if key != "dtype"}), r"meta\.json: dtype: missing"),
        ("{", r"meta\.json: not JSON"),
    ):
        (folder / "meta.json").write_text(content)
        with pytest.raises(CorpusError, match=message):
            TokenStore.open(folder)
    with pytest.raises(CorpusError, match="no token store here"):
        TokenStore.open(tmp_path / "none")
    assert store.meta.vocabulary == 1000


def test_the_split_hits_its_ratio_and_keeps_groups_together():
    held = sum(in_validation(f"doc-{number}", 0.05) for number in range(20_000))
    assert abs(held / 20_000 - 0.05) < 0.006
    for book in range(300):
        assert len({in_validation(f"book-{book}#{chapter}", 0.5) for chapter in range(8)}) == 1
    # A larger ratio holds out all that a smaller one does.
    assert all(in_validation(f"d{n}", 0.2) for n in range(2000) if in_validation(f"d{n}", 0.1))
