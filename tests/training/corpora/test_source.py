"""Sources: filters, what they count, a cap that keeps a mix, and settings that cannot be."""

import re
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.corpora.rows import as_lines, with_positions, write
from training.corpora.documents import CorpusError, capped, in_validation
from training.corpora.readers import open_reader
from training.corpora.source import Source

ROWS = [
    {"text": "short", "lang": "en", "meta": {"set": "Wiki"}, "score": 3},
    {"text": "a longer text in English", "lang": "en", "meta": {"set": "Wikipedia"}, "score": 5},
    {"text": "ein Text auf Deutsch", "lang": "de", "meta": {"set": "Books"}, "score": 1},
    {"text": " ", "lang": "en", "meta": {"set": "Wiki"}, "score": 3},
    {"text": "no language, no score", "lang": None, "meta": {"set": None}, "score": None},
    {"text": "the longest of all these texts, by far and away", "lang": "en", "meta": {"set": "Books"}, "score": 4},
]


def fingerprint(source):
    return open_reader("a", source).fingerprint()


@pytest.fixture(params=["jsonl", "parquet", "hub"])
def source(request, tmp_path):
    """The same rows by each of the readers; call it with filters."""
    path = write(tmp_path / ("a.jsonl" if request.param == "jsonl" else "a.parquet"), as_lines(ROWS), row_group_size=2)
    return partial(Source, "hub", name=str(tmp_path)) if request.param == "hub" else partial(Source, path=str(path))


@pytest.mark.parametrize(
    ("rules", "kept", "dropped"),
    [
        ({}, [1, 2, 3, 5, 6], {"empty": 1}),
        ({"min_characters": 6}, [2, 3, 5, 6], {"empty": 1, "min_characters": 1}),
        ({"max_characters": 24}, [1, 2, 3, 5], {"empty": 1, "max_characters": 1}),
        ({"where": {"lang": ["en", None]}}, [1, 2, 5, 6], {"empty": 1, "where.lang": 1}),
        ({"where": {"score": [3, 5]}}, [1, 2], {"empty": 1, "where.score": 3}),
        ({"where": {"meta.set": "^Wiki"}}, [1, 2], {"empty": 1, "where.meta.set": 3}),
        ({"where": {"text": "[Tt]ext"}}, [2, 3, 6], {"empty": 1, "where.text": 2}),
        (
            {"min_characters": 6, "max_characters": 30, "where": {"lang": ["en", "de"], "meta.set": "i"}},
            [2],
            {"empty": 1, "min_characters": 1, "max_characters": 1, "where.lang": 1, "where.meta.set": 1},
        ),
    ],
)
def test_what_passes_is_taken_and_the_rest_counted_once(source, rules, kept, dropped):
    reading = open_reader("a", source(**rules)).documents()
    assert [int(name.rpartition(":")[2]) for name, _ in reading] == kept
    assert reading.dropped == dropped
    assert len(ROWS) == len(kept) + sum(dropped.values())


def test_a_reading_from_any_place_on_gives_the_rest_and_the_same_counts(source):
    reader = open_reader("a", source(where={"lang": ["en", "de"]}))
    whole = reader.documents()
    documents, positions = with_positions(whole)
    for number, position in enumerate(positions):
        rest = reader.documents(position=position)
        assert list(rest) == documents[number + 1 :]
        assert rest.dropped == whole.dropped


def test_rules_are_in_the_fingerprint_and_no_rules_are_not(source):
    rules = [{}, {"min_characters": 6}, {"max_characters": 6}]
    rules += [{"where": {"lang": allowed}} for allowed in (["en"], "en", ["en", "de"])]
    assert len({fingerprint(source(**rule)) for rule in rules}) == len(rules)
    assert fingerprint(source(where={})) == fingerprint(source())


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"lang": ["fr"]}, r"no document passes the filters \(.*where\.lang dropped 5"),
        ({"score": "3"}, r"row 1: column score is int; a regular expression needs a text"),
    ],
)
def test_rules_that_do_not_fit_the_rows_are_refused(source, where, message):
    with pytest.raises(CorpusError, match=message):
        list(open_reader("a", source(where=where)).documents())


@pytest.mark.parametrize(
    ("keys", "messages"),
    [
        ({"path": "x", "min_characters": -1}, [r"min_characters: -1; allowed: 0 to"]),
        ({"path": "x", "min_characters": 9, "max_characters": 8}, [r"max_characters: 8; allowed: at least"]),
        ({"path": "x", "where": {"lang": "("}}, [r"where\.lang: '\(' is not a regular expression"]),
        ({"path": "x", "where": {"lang": []}, "min_characters": -1}, ["min_", r"where\.lang: \[\]; allowed: a list"]),
        ({"kind": "installed-python", "path": "x"}, ["kind: installed-python does not read x; allowed: files for"]),
        ({"kind": "hub", "name": "a/b", "path": "x"}, ["path: x; kind=hub reads name; of files give kind=files"]),
        ({"kind": "generated", "path": "x"}, []),
    ],
)
def test_mistakes_are_named_all_at_once(keys, messages):
    lines = Source(**keys).problems("corpora.law")
    for line, message in zip(lines, messages, strict=True):
        assert re.match(rf"corpora\.law\.{message}", line)


texts = st.lists(st.text("aé", min_size=1, max_size=9), min_size=1, max_size=60)


def size(documents):
    return sum(len(text.encode()) for _, text in documents)


@settings(deadline=None)
@given(texts, st.integers(1, 300), st.integers(1, 100))
def test_a_cap_is_just_reached_in_order_and_grows(words, cap, more):
    documents = [(f"d{number}", word) for number, word in enumerate(words)]
    kept = capped(documents, cap)
    assert kept == [document for document in documents if document in kept]
    if size(documents) >= cap:
        assert size(kept) >= cap
        assert size(kept) - max(len(text.encode()) for _, text in kept) < cap
    else:
        assert kept == documents
    assert set(kept) <= set(capped(documents, cap + more))
    assert sorted(capped(documents[::-1], cap)) == sorted(kept)


def test_a_cap_leaves_the_ratio_of_validation_alone():
    documents = [(f"d{number}", "x") for number in range(20_000)]
    kept = capped(documents, 2000)
    assert 60 < sum(in_validation(name, 0.05) for name, _ in kept) < 140


def test_files_are_capped_and_fingerprinted(tmp_path):
    path = write(tmp_path / "a.jsonl", as_lines({"text": "word " * n} for n in range(1, 50)))
    source = Source("files", path=str(path), max_bytes=1000)
    documents = list(open_reader("a", source).documents())
    assert 1000 <= size(documents) < 1300
    assert fingerprint(source) != fingerprint(Source("files", path=str(path)))


def test_installed_python_is_parsed_once(monkeypatch):
    reader = open_reader("a", Source("installed-python", part="graphs", max_bytes=9000))
    first = list(reader.documents())
    monkeypatch.setattr("training.corpora.installed_python._prose", None)
    assert list(reader.documents()) == first
    assert [document for document, _ in reader.sample(10**6)] == [document for document, _ in first]
