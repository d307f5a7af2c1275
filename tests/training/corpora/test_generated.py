"""Text that a tiny model with random weights writes: its distribution, its bytes after a kill, and what is dropped."""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from tests.conftest import SHAPE
from tests.training.corpora.rows import with_positions
from training.corpora.documents import CorpusError
from training.corpora.generated import GeneratedReader, samples_folder, sampling_fingerprint
from training.corpora.language_model import model_fingerprint
from training.corpora.manifest import Manifest
from training.corpora.prepare import tokenise_corpora
from training.corpora.source import Generation, Source, TokenizerChoice
from training.corpora.text_sampler import TextSampler
from training.corpora.tokenizer import load_tokenizer, train_tokenizer
from training.model import build_model, read_model_directory

SMALL = {"tokens": 600, "max_tokens": 24, "batch": 5}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Equal bytes are promised for one number of threads only."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with far from uniform probabilities, whose directory asks for the likeliest token only."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    train_tokenizer(["the model writes what it likes, again and again, é"] * 9, 290, folder)
    network = build_model({**SHAPE, "vocab_size": len(load_tokenizer(folder))}, "eager", seed=1)
    with torch.no_grad():
        network.get_input_embeddings().get_parameter("weight").mul_(8)
    network.save_pretrained(folder)
    greedy = {"do_sample": True, "top_k": 1, "repetition_penalty": 9.0, "max_new_tokens": 3}
    (folder / "generation_config.json").write_text(json.dumps(greedy))
    return folder


def quiet(_line: str) -> None:
    pass


def written(folder: Path, model: Path, log: Callable[[str], object] = quiet, /, **keys: Any) -> Manifest:
    how = Generation(**{"model": str(model), **SMALL, **keys})
    source = Source("generated", path=str(folder / "texts"), generated=how)
    choice = TokenizerChoice(path=str(model))
    return tokenise_corpora({"general": source}, choice, folder / "data", validation_ratio=0.2, progress=log)


def samples(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("texts/*/*.jsonl")}


def test_a_model_writes_a_corpus_once(model: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    corpus = written(tmp_path, model, lines.append).corpora["general"]
    assert any("loading" in line for line in lines)
    assert corpus.documents["train"] > 10
    assert corpus.documents["validation"] > 0
    rows = [json.loads(line) for _, content in sorted(samples(tmp_path).items()) for line in content.splitlines()]
    kept = [row for row in rows if row["text"].strip() and row["repetition"] <= 0.3]
    tokens = [row["tokens"] for row in kept]
    read = sum(corpus.documents.values())
    assert sum(tokens[: read - 1]) < 600 <= sum(tokens[:read])
    assert sum(corpus.bytes.values()) == sum(len(row["text"].encode()) for row in kept[:read])
    before = samples(tmp_path)
    lines.clear()
    assert written(tmp_path, model, lines.append).corpora["general"] == corpus
    assert not any("loading" in line for line in lines)
    assert samples(tmp_path) == before


def test_more_tokens_add_batches_as_after_a_kill(model: Path, tmp_path: Path) -> None:
    """The batches of a killed process are whole, as those of one that was asked for fewer tokens."""
    few = written(tmp_path / "twice", model).corpora["general"]
    fewer = samples(tmp_path / "twice")
    more = written(tmp_path / "twice", model, tokens=1200).corpora["general"]
    assert samples(tmp_path / "twice").items() > fewer.items()
    assert more.source != few.source
    assert more.tokens["train"] > few.tokens["train"]
    assert written(tmp_path / "once", model, tokens=1200).corpora["general"] == more
    assert samples(tmp_path / "once") == samples(tmp_path / "twice")


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, None), (0.5, None), (1.0, 0.8)])
def test_the_first_token_has_the_models_distribution(model: Path, temperature: float, top_p: float | None) -> None:
    how = Generation(str(model), max_tokens=1, batch=4000, temperature=temperature, top_p=top_p)
    sampler = TextSampler(how, 1)
    texts = Counter(row["text"] for row in sampler.sample(0, lambda tokens: None))
    tokenizer = load_tokenizer(model)
    network = sampler._network
    with torch.no_grad():
        logits = network(input_ids=torch.tensor([[tokenizer.eos_token_id]])).logits[0, -1].double()
    chances = torch.softmax(logits / temperature, 0)
    ordered, positions = chances.sort(descending=True)
    if top_p is not None:
        ordered[ordered.cumsum(0) - ordered >= top_p] = 0
    expected: Counter[str] = Counter()
    for chance, place in zip((ordered / ordered.sum()).tolist(), positions.tolist(), strict=True):
        text = "" if place == tokenizer.eos_token_id else str(tokenizer.decode([place])).rstrip("\ufffd")
        expected[text] += chance
    distance = sum(abs(texts[text] / 4000 - expected[text]) for text in texts | expected) / 2
    spread = sum((chance / (2 * torch.pi * 4000)) ** 0.5 for chance in expected.values())
    assert distance < 1.5 * spread


def test_an_end_and_a_cut_character_are_no_text(model: Path) -> None:
    sampler = TextSampler(Generation(str(model), max_tokens=60, batch=50), 1)
    rows = sampler.sample(3, lambda tokens: None)
    assert any(row["tokens"] <= 60 for row in rows)
    assert not any("<|endoftext|>" in row["text"] or row["text"].endswith("\ufffd") for row in rows)
    assert rows == sampler.sample(3, lambda tokens: None)
    assert rows != sampler.sample(4, lambda tokens: None)


def test_a_model_that_only_repeats_itself_is_refused_also_the_second_time(model: Path, tmp_path: Path) -> None:
    keys = {"temperature": 0.3, "max_repetition": 0.0, "tokens": 10**6}
    kept = r"\d of 6[4-8] sampled documents are kept \(empty dropped \d+, repetition dropped \d+\); raise generated\."
    for again in (False, True):
        lines: list[str] = []
        with pytest.raises(CorpusError, match=f"^corpora.general: {kept}"):
            written(tmp_path, model, lines.append, **keys)
        assert any("loading" in line for line in lines) is not again


def reader_of(how: Generation, folder: Path = Path()) -> GeneratedReader:
    return GeneratedReader("general", Source("generated", path=str(folder), generated=how), quiet)


def test_reading_goes_on_from_any_place(model: Path, tmp_path: Path) -> None:
    how = Generation(str(model), **SMALL)
    reader = reader_of(how, tmp_path)
    documents, positions = with_positions(reader.documents())
    for number in (0, 3, 4, 5, len(documents) - 1):
        assert list(reader.documents(position=positions[number])) == documents[number + 1 :]
    assert reader.outlook() == ""
    assert "tokens/s, about" in reader_of(replace(how, tokens=10**6), tmp_path).outlook()
    (samples_folder(reader.source) / "000001.jsonl").write_text("{}\n")
    with pytest.raises(CorpusError, match=r"000001.jsonl: damaged; remove it"):
        list(reader.documents())


def test_the_fingerprint_knows_the_model_and_all_keys(model: Path, tmp_path: Path) -> None:
    how = Generation(str(model))
    copy = shutil.copytree(model, tmp_path / "copy")
    assert reader_of(replace(how, model=str(copy))).fingerprint() == reader_of(how).fingerprint()
    other: dict[str, Any] = {"tokens": 9, "max_tokens": 9, "temperature": 0.9, "top_p": 0.9, "seed": 1, "batch": 9}
    other |= {"max_repetition": 0.2, "separator": str(load_tokenizer(model).convert_ids_to_tokens(9))}
    changes = [{}, *({key: value} for key, value in other.items())]
    prints = [reader_of(replace(how, **keys)).fingerprint() for keys in changes]
    build_model({**SHAPE, "vocab_size": len(load_tokenizer(model))}, "eager", seed=2).save_pretrained(copy)
    prints.append(reader_of(replace(how, model=str(copy))).fingerprint())
    assert len(set(prints)) == len(other) + 2
    # What selects among samples does not sample again.
    assert sampling_fingerprint(replace(how, tokens=9, max_repetition=0.2)) == sampling_fingerprint(how)


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"max_tokens": 64}, "generated.max_tokens: 64; allowed: 1 to 63, which the model can read"),
        ({"model": "/none"}, "generated.model: /none: no config.json"),
        ({"separator": "<none>"}, "'<none>' is not a token; allowed: <|endoftext|>"),
    ],
)
def test_a_mistake_is_one_line(model: Path, tmp_path: Path, keys: dict[str, Any], line: str) -> None:
    with pytest.raises(CorpusError) as error:
        written(tmp_path, model, **keys)
    assert line in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_a_model_with_nan_is_refused(model: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(model, tmp_path / "copy")
    network = build_model({**SHAPE, "vocab_size": len(load_tokenizer(model))}, "eager", seed=2)
    with torch.no_grad():
        network.get_input_embeddings().get_parameter("weight")[3, 3] = torch.nan
    network.save_pretrained(copy)
    with pytest.raises(CorpusError, match=r"embed_tokens.weight: 1 of [\d,]+ values are NaN or infinite; give an und"):
        written(tmp_path, copy)


def test_samples_keep_their_names_though_the_tokenizer_is_read_as_it_is(model: Path) -> None:
    by_class = AutoTokenizer.from_pretrained(model).backend_tokenizer
    assert load_tokenizer(model).backend_tokenizer.to_str() != by_class.to_str()
    named = read_model_directory(model)[1] + by_class.to_str()
    assert model_fingerprint(model, "key") == hashlib.blake2b(named.encode(), digest_size=16).hexdigest()
