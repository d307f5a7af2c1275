"""Filters: what passes, what is counted, what cannot be asked."""

import json

import pyarrow
import pytest
from pyarrow import parquet

from training.corpora.documents import CorpusError
from training.corpora.source import Source, SourceReader

ROWS = [
    {"text": "short", "lang": "en", "meta": {"set": "Wiki"}, "score": 3},
    {"text": "a longer text in English", "lang": "en", "meta": {"set": "Wikipedia"}, "score": 5},
    {"text": "ein Text auf Deutsch", "lang": "de", "meta": {"set": "Books"}, "score": 1},
    {"text": " ", "lang": "en", "meta": {"set": "Wiki"}, "score": 3},
    {"text": "no language, no score", "lang": None, "meta": {"set": None}, "score": None},
    {"text": "the longest of all these texts, by far and away", "lang": "en", "meta": {"set": "Books"}, "score": 4},
]


@pytest.fixture(params=["jsonl", "parquet", "hub"])
def source(request, tmp_path):
    """The same rows by each of the readers."""

    def made(**rules):
        if request.param == "jsonl":
            path = tmp_path / "a.jsonl"
            path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
            return Source("files", path=str(path), **rules)
        parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "a.parquet", row_group_size=2)
        if request.param == "parquet":
            return Source("files", path=str(tmp_path / "a.parquet"), **rules)
        return Source("hub", name=str(tmp_path), **rules)

    return made


@pytest.mark.parametrize(
    ("rules", "kept", "dropped"),
    [
        ({}, [1, 2, 3, 5, 6], {"empty": 1}),
        ({"min_characters": 6}, [2, 3, 5, 6], {"empty": 1, "min_characters": 1}),
        ({"max_characters": 24}, [1, 2, 3, 5], {"empty": 1, "max_characters": 1}),
        ({"where": {"lang": ["en"]}}, [1, 2, 6], {"empty": 1, "where.lang": 2}),
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
    reading = SourceReader({"a": source(**rules)}).reading("a")
    assert [int(name.rpartition(":")[2]) for name, _ in reading] == kept
    assert reading.chooser.dropped == dropped
    assert len(ROWS) == len(kept) + sum(dropped.values())


def test_a_reading_from_any_place_on_gives_the_rest_and_the_same_counts(source):
    reader = SourceReader({"a": source(where={"lang": ["en", "de"]})})
    whole = reader.reading("a")
    documents, places = [], []
    for document in whole:
        documents.append(document)
        places.append(json.loads(json.dumps(whole.place())))
    for number, place in enumerate(places):
        rest = reader.reading("a", place)
        assert list(rest) == documents[number + 1 :]
        assert rest.chooser.dropped == whole.chooser.dropped


def test_rules_are_in_the_fingerprint_and_no_rules_are_not(source):
    every = [
        source(),
        source(min_characters=6),
        source(max_characters=6),
        source(where={"lang": ["en"]}),
        source(where={"lang": "en"}),
        source(where={"lang": ["en", "de"]}),
    ]
    assert len({one.fingerprint() for one in every}) == len(every)
    assert source(where={}).fingerprint() == source().fingerprint()


def test_rules_that_leave_nothing_are_told(source):
    with pytest.raises(CorpusError, match=r"no document passes the filters \(.*where\.lang dropped 5"):
        list(SourceReader({"a": source(where={"lang": ["fr"]})}).documents("a"))


def test_a_regular_expression_needs_a_text(source):
    with pytest.raises(CorpusError, match=r"row 1: column score is int; a regular expression needs a text"):
        list(SourceReader({"a": source(where={"score": "3"})}).documents("a"))


def test_installed_python_is_filtered_too():
    source = Source("installed-python", part="graphs", max_bytes=50_000, max_characters=1000)
    reading = SourceReader({"a": source}).reading("a")
    texts = [text for _, text in reading]
    assert max(map(len, texts)) <= 1000
    assert reading.chooser.dropped["max_characters"] > 0


@pytest.mark.parametrize(
    ("rules", "messages"),
    [
        ({"min_characters": -1}, [r"corpora\.law\.min_characters: -1; allowed: 0 or more"]),
        ({"min_characters": 9, "max_characters": 8}, [r"corpora\.law\.max_characters: 8; allowed: at least"]),
        ({"where": {"lang": "("}}, [r"corpora\.law\.where\.lang: '\(' is not a regular expression"]),
        ({"where": {"lang": []}, "min_characters": -1}, ["min_characters", r"where\.lang: \[\]; allowed: a list"]),
    ],
)
def test_mistakes_are_named_all_at_once(rules, messages):
    with pytest.raises(CorpusError) as error:
        Source("files", path="x", **rules).check("corpora.law")
    lines = str(error.value).split("\n")
    assert len(lines) == len(messages)
    for message in messages:
        assert error.match(message)
