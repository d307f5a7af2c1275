"""Tokenizers: nothing is lost, nothing depends on chance, Hugging Face loads them."""

import json
import random
import sys
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tests.training.corpora.rows import as_lines, write
from training.corpora.documents import CorpusError
from training.corpora.prepare import tokenise_corpora
from training.corpora.source import Source, TokenizerChoice
from training.corpora.tokenizer import (
    END_OF_TEXT,
    Chunk,
    Encoder,
    copy_tokenizer,
    end_of_text_id,
    id_count,
    load_tokenizer,
    tokenizer_fingerprint,
    train_tokenizer,
)

NOUNS = ("cat", "law")
TEXTS = [f"The {noun} of number {n} is thé best, isn't it?\n" for n in range(40) for noun in NOUNS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return train_tokenizer(TEXTS, 300, tmp_path_factory.mktemp("tokenizer") / "bpe")


@pytest.fixture(scope="module")
def tokenizer(folder):
    return load_tokenizer(folder)


def encode(tokenizer, *texts):
    chunk = Chunk(["d"] * len(texts), list(texts))
    (answer,) = Encoder(tokenizer.backend_tokenizer.to_str()).encode([chunk])
    return answer[1].tokens


@settings(deadline=None, max_examples=20)
@given(st.lists(st.text(max_size=80), min_size=1, max_size=5))
def test_any_text_survives(tokenizer, texts):
    for text, tokens in zip(texts, encode(tokenizer, *texts), strict=True):
        assert tokenizer.decode(tokens) == text


def test_a_special_token_spelled_out_is_text(tokenizer):
    (tokens,) = encode(tokenizer, f"a {END_OF_TEXT} b")
    assert end_of_text_id(tokenizer) not in tokens
    assert tokenizer.decode(tokens) == f"a {END_OF_TEXT} b"
    # The tokenizer handed in is not changed by that.
    assert end_of_text_id(tokenizer) in tokenizer.encode(f"a {END_OF_TEXT} b")


def test_truncation_set_in_the_file_cuts_nothing(folder, tmp_path, tokenizer):
    copy = copy_tokenizer(folder, tmp_path / "cut")
    content = json.loads((copy / "tokenizer.json").read_text())
    content["truncation"] = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    (copy / "tokenizer.json").write_text(json.dumps(content))
    np.testing.assert_array_equal(encode(load_tokenizer(copy), TEXTS[0])[0], encode(tokenizer, TEXTS[0])[0])
    assert tokenizer_fingerprint(copy) == tokenizer_fingerprint(folder)


def test_fingerprint_follows_what_it_says_and_not_how_it_is_set_out(folder, tmp_path):
    spaced = copy_tokenizer(folder, tmp_path / "spaced")
    content = json.loads((spaced / "tokenizer.json").read_text())
    (spaced / "tokenizer.json").write_text(json.dumps(dict(reversed(content.items())), indent=7))
    assert tokenizer_fingerprint(spaced) == tokenizer_fingerprint(folder)
    assert tokenizer_fingerprint(train_tokenizer(TEXTS, 301, tmp_path / "other")) != tokenizer_fingerprint(folder)


def test_a_tokenizer_of_another_kind_is_taken_with_its_separator(tmp_path):
    from transformers import BertTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    BertTokenizerFast(vocab=str(tmp_path / "vocab.txt")).save_pretrained(tmp_path / "bert")
    tokenizer = load_tokenizer(copy_tokenizer(tmp_path / "bert", tmp_path / "copy"))
    assert end_of_text_id(tokenizer) == 3
    assert encode(tokenizer, "the cat")[0].tolist() == [5, 6]


def _prefixed():
    """A tokenizer that puts a space before each text, as those of Llama 2 and T5 do."""
    trained = Tokenizer(models.BPE(unk_token="?"))
    trained.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")  # pyright: ignore
    trained.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=120, special_tokens=["?"], show_progress=False))
    return trained.to_str()


@pytest.mark.parametrize("kind", ["byte-level", "prefixed"])
def test_the_tokens_of_a_long_text_are_those_of_the_whole(tokenizer, monkeypatch, kind):
    encoder = Encoder(tokenizer.backend_tokenizer.to_str() if kind == "byte-level" else _prefixed())
    texts = ["".join(TEXTS), "short", "", " ".join(TEXTS[::-1]), "字符，漢語。" * 30 if kind == "byte-level" else "a"]
    chunk = Chunk([*"abcde"], texts)

    def tokens():
        ((_, encoded),) = encoder.encode([chunk])
        return [ids.tolist() for ids in encoded.tokens]

    whole = tokens()
    for characters in (40, 41, 47, 100):
        monkeypatch.setattr("training.corpora.tokenizer.PIECE_CHARACTERS", characters)
        assert tokens() == whole


def test_equal_texts_give_equal_files_and_long_words_are_cut(folder, tmp_path):
    whole = train_tokenizer(["".join(TEXTS)], 300, tmp_path / "whole")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (whole / name).read_bytes() == (folder / name).read_bytes()
    letters = random.Random(0).choices("ACGT", k=200_000)
    start = time.monotonic()
    train_tokenizer(["".join(letters)], 300, tmp_path / "letters")
    assert time.monotonic() - start < 10  # With the square of the length it would be minutes.


def test_a_tokenizer_learns_from_so_much_of_long_words_and_no_more(tmp_path, monkeypatch):
    monkeypatch.setattr("training.corpora.tokenizer.MOST_LONG_WORDS", 2)
    text, letters = "the cat sat on the mat " * 50, random.Random(0).choices("ACGT", k=1 << 12)
    folders = [
        train_tokenizer([text, "".join(letters[:length])], 400, tmp_path / str(length))
        for length in (1 << 11, 1 << 12, 1 << 10)
    ]
    some, more, fewer = ((folder / "tokenizer.json").read_bytes() for folder in folders)
    assert some == more != fewer


def test_ids_may_have_gaps(folder, tmp_path):
    gap = copy_tokenizer(folder, tmp_path / "gap")
    content = json.loads((gap / "tokenizer.json").read_text())
    content["added_tokens"][0]["id"] = content["model"]["vocab"][END_OF_TEXT] = 340
    (gap / "tokenizer.json").write_text(json.dumps(content))
    tokenizer = load_tokenizer(gap)
    assert (len(tokenizer), id_count(tokenizer), end_of_text_id(tokenizer)) == (300, 341, 340)
    source = Source(path=str(write(tmp_path / "a.jsonl", as_lines({"text": text} for text in TEXTS))))
    choice = TokenizerChoice(path=str(gap))
    manifest = tokenise_corpora({"a": source}, choice, tmp_path / "out", progress=lambda _: None)
    assert manifest.vocabulary == 341
    assert 340 in manifest.store("a").batch("train", np.array([0]), 100)


def test_without_an_end_it_is_refused(folder, tmp_path):
    copy = copy_tokenizer(folder, tmp_path / "endless")
    (copy / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    with pytest.raises(CorpusError, match="neither an eos_token nor a sep_token"):
        end_of_text_id(load_tokenizer(copy))


def test_a_package_that_a_tokenizer_needs_is_named(tmp_path, monkeypatch):
    (tmp_path / "tokenizer.model").write_bytes(b"\n\x0e\n\x05<unk>\x15\x00\x00\x00\x00\x18\x02")
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(CorpusError, match=r"tokenizer\.model is of SentencePiece: pip install sentencepiece protobuf$"):
        load_tokenizer(tmp_path)


def test_mistakes_are_named(tmp_path):
    with pytest.raises(CorpusError, match="none is not a folder"):
        load_tokenizer(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    for use in (load_tokenizer, lambda path: copy_tokenizer(path, tmp_path / "copy")):
        with pytest.raises(CorpusError, match="empty holds no tokenizer that transformers loads"):
            use(tmp_path / "empty")
    with pytest.raises(CorpusError, match=r"tokenizer\.json cannot be read"):
        tokenizer_fingerprint(tmp_path / "empty")
    (tmp_path / "empty" / "tokenizer.json").write_text("{")
    with pytest.raises(CorpusError, match=r"tokenizer\.json: not JSON"):
        tokenizer_fingerprint(tmp_path / "empty")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty"]
