"""Validation documents: noise goes, the draw is fixed, what was done is not done again."""

import json
import math
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import SHAPE
from training.corpora.documents import CorpusError, sampled
from training.corpora.language_model import perplexities
from training.corpora.reader import Reader, Row
from training.corpora.source import Source, ValidationChoice
from training.corpora.tokenizer import load_tokenizer, train_tokenizer
from training.corpora.validation_choice import write_validation_set
from training.model import build_model

WORDS = ["".join(random.Random(n).choices("abcdefghijklmnop", k=2 + n % 4)) for n in range(40)]
NOISE = {f"d{n}" for n in range(0, 200, 20)}


def document(name):
    draw = random.Random(name)
    if name in NOISE:
        return "".join(draw.choices([chr(n) for n in range(0x4E00, 0x9000, 37)], k=60))
    return " ".join(draw.choices(WORDS, k=draw.randint(20, 60)))


DOCUMENTS = [(f"d{n}", document(f"d{n}")) for n in range(200)]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two models of some thousand parameters that have seen the words, of different sizes."""
    made = []
    for seed in (0, 1):
        folder = tmp_path_factory.mktemp("model") / f"m{seed}"
        train_tokenizer([text for _, text in DOCUMENTS[1:20]], 280 + 20 * seed, folder)
        tokenizer = load_tokenizer(folder)
        shape = SHAPE | {"vocab_size": len(tokenizer), "hidden_size": 16 * (seed + 1)}
        network = build_model(shape, "eager", seed)
        optimizer = torch.optim.AdamW(network.parameters(), 1e-2)
        ids = torch.tensor(tokenizer(" ".join(text for _, text in DOCUMENTS[1:20]))["input_ids"])
        for step in range(40):
            rows = torch.stack([ids[k : k + 33] for k in range(step, step + 32 * 8, 32)])
            loss = network(input_ids=rows, labels=rows).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        network.save_pretrained(folder)
        made.append(folder)
    return made


class Listed(Reader):
    """Reads DOCUMENTS; the name is the fingerprint."""

    def fingerprint(self):
        return self.name

    def rows(self, shard, after, state):
        return (Row(name, {"text": text}, name, None) for name, text in DOCUMENTS)


def write(file, models, source="s", **choice):
    lines = []
    choice = ValidationChoice(**{"sample": 100, "keep": 30, "tokens": 48} | choice)
    write_validation_set(file, Listed(source, Source(), lines.append), models, choice)
    return json.loads(file.with_suffix(".json").read_text()), lines


def read(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_perplexity_is_that_of_each_text_alone(models):
    texts = [text for _, text in DOCUMENTS[:9]] + ["", "a"]
    values = perplexities(texts, models[0], 200)
    tokenizer, network = load_tokenizer(models[0]), build_model({**SHAPE, "vocab_size": 280}, "eager", 0)
    network.load_state_dict(type(network).from_pretrained(models[0], dtype=torch.float32).state_dict())
    assert len({len(tokenizer(text)["input_ids"]) for text in texts[:9]}) > 5
    for text, value in zip(texts[:9], values[:9], strict=True):
        row = torch.tensor([tokenizer(text)["input_ids"][:200]])
        assert value == pytest.approx(math.exp(network(input_ids=row, labels=row).loss.item()), rel=1e-4)
    assert values[9:].tolist() == [math.inf] * 2


def test_noise_is_dropped_and_the_rest_is_a_draw(models, tmp_path):
    record, lines = write(tmp_path / "law.jsonl", models)
    drawn = [name for name, _ in sampled(DOCUMENTS, 100)]
    noise = NOISE & set(drawn)
    assert 3 <= len(noise) <= 10
    assert record["drawn"] == 100
    assert record["noise"] >= len(noise)
    rows = read(tmp_path / "law.jsonl")
    assert len(rows) == record["kept"] == 30
    assert not noise & {row["id"] for row in rows}
    assert [row["id"] for row in rows] == [name for name in drawn if name in {row["id"] for row in rows}]
    assert all(row["text"] == dict(DOCUMENTS)[row["id"]] and len(row["perplexity"]) == 2 for row in rows)
    assert lines[-1].startswith(f"law: 100 documents sampled, {record['noise']} noise, 30 kept in ")


def test_what_was_done_is_not_done_again(models, tmp_path, monkeypatch):
    first, _ = write(tmp_path / "law.jsonl", models)
    content = (tmp_path / "law.jsonl").read_bytes()

    def never(*_):
        raise AssertionError("done again")

    monkeypatch.setattr("training.corpora.validation_choice.perplexities", never)
    again, lines = write(tmp_path / "law.jsonl", models)
    assert again == first
    assert lines == ["law: chosen already, 30 validation documents"]
    # Killed before it was written: the perplexities are still there.
    (tmp_path / "law.jsonl").unlink()
    write(tmp_path / "law.jsonl", models)
    assert (tmp_path / "law.jsonl").read_bytes() == content


@pytest.mark.parametrize("change", [{"source": "t"}, {"keep": 20}, {"models": 1}, None], ids=str)
def test_another_set_or_file_is_not_overwritten(models, tmp_path, change):
    if change is None:
        (tmp_path / "law.jsonl").write_text('{"text": "mine"}\n')
    else:
        write(tmp_path / "law.jsonl", models)
    others = {"models": models} | (change or {})
    others["models"] = models[:1] if "models" in (change or {}) else models
    with pytest.raises(CorpusError, match=r"set of another source, .*; remove it, or give another corpora\.validation"):
        write(tmp_path / "law.jsonl", **others)


@pytest.mark.parametrize("broken", ["nothing", "no tokenizer"])
def test_a_folder_that_is_no_model_is_one_line(models, tmp_path, broken):
    (tmp_path / "model").mkdir()
    if broken == "no tokenizer":
        for name in ("config.json", "model.safetensors"):
            (tmp_path / "model" / name).write_bytes((models[0] / name).read_bytes())
    with pytest.raises(CorpusError, match=r"no config\.json|tokenizer: ") as error:
        write(tmp_path / "law.jsonl", [models[0], tmp_path / "model"])
    assert "\n" not in str(error.value)


@given(st.lists(st.integers(0, 10**6), unique=True, max_size=40), st.integers(1, 20), st.randoms())
def test_a_draw_depends_on_names_alone(numbers, count, draw):
    documents = [(f"n{number}", str(number)) for number in numbers]
    chosen = sampled(documents, count)
    draw.shuffle(documents)
    assert sampled(documents, count) == chosen
    assert chosen == sampled(documents, 40)[:count]
