"""Sources: a cap that keeps a mix, and settings that cannot be."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from training.corpora.documents import capped, in_validation
from training.corpora.source import Source, SourceReader

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


def test_a_cap_leaves_the_share_of_validation_alone():
    documents = [(f"d{number}", "x") for number in range(20_000)]
    kept = capped(documents, 2000)
    assert 60 < sum(in_validation(name, 0.05) for name, _ in kept) < 140


def test_files_are_capped_and_fingerprinted(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": "word " * n}) + "\n" for n in range(1, 50)))
    source = Source("files", path=str(path), max_bytes=1000)
    documents = list(SourceReader({"a": source}).documents("a"))
    assert 1000 <= size(documents) < 1300
    assert source.fingerprint() != Source("files", path=str(path)).fingerprint()


def test_installed_python_is_read_once(monkeypatch):
    calls = []

    def read(*arguments):
        calls.append(arguments)
        return iter([("d", "text")])

    monkeypatch.setattr("training.corpora.source.installed_documents", read)
    reader = SourceReader({"a": Source("installed-python", exclude=("math",), max_bytes=7)})
    assert reader.documents("a") == reader.documents("a") == [("d", "text")]
    assert calls == [("prose", ("math",), 7)]
