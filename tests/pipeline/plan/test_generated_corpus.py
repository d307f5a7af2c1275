"""A general corpus that the base model writes itself, from the command line."""

import shutil
from pathlib import Path

import pytest

from pipeline.cli.main import run
from pipeline.goals.registry import read_question
from pipeline.plan.prepared_corpora import sources_of
from pipeline.plan.runs import data_folder
from tests.conftest import SHAPE
from tests.pipeline.small import refused, small_words
from training.corpora.manifest import Manifest
from training.corpora.readers import open_reader
from training.corpora.tokenizer import END_OF_TEXT, load_tokenizer, train_tokenizer
from training.model import build_model

GENERAL = "corpora.sources.general."


@pytest.fixture(scope="module")
def model(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with random weights and the tokenizer of its text."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    train_tokenizer([file.read_text() for file in sorted((texts / "general").iterdir())], 300, folder)
    build_model({**SHAPE, "vocab_size": len(load_tokenizer(folder))}, "eager", seed=0).save_pretrained(folder)
    return folder


def generated_words(texts: Path, folder: Path, model: Path | None, *more: str) -> list[str]:
    without = ("model=", "ladder=", "corpora.tokenizer")
    words = [word for word in small_words(texts, folder, without=without) if not word.startswith(f"{GENERAL}path")]
    brought = ["model=local", f"model.path={model}"] if model else ["model=qwen2-0.15m"]
    keys = [f"{GENERAL}kind=generated", f"{GENERAL}generated.tokens=3000", f"{GENERAL}generated.max_tokens=50"]
    return [*words, *brought, "ladder=[]", *keys, *more]


def test_a_model_without_its_corpus_is_prepared_and_planned(texts: Path, tmp_path: Path, model: Path, capsys) -> None:
    words = generated_words(texts, tmp_path, model)
    assert run(["plan", *words]) == 0, capsys.readouterr().err
    line = "general: the model has yet to write 3,000 of 3,000 tokens: prepare measures the time in its first 5 s"
    assert line in capsys.readouterr().out
    assert run(["prepare", *words]) == 0, capsys.readouterr().err
    assert "general: loading" in capsys.readouterr().out
    question = read_question(words)
    corpus = Manifest.open(data_folder(question)).corpora["general"]
    assert corpus.source == open_reader("general", sources_of(question)["general"]).fingerprint()
    assert corpus.tokens["train"] > 2000
    assert len(list((tmp_path / "data" / "generated").glob("tiny-*/*.jsonl"))) > 2
    assert run(["plan", *words]) == 0, capsys.readouterr().err
    output = capsys.readouterr().out
    assert "yet to write" not in output
    assert "3 runs" in output
    # More of it: the speed is known now.
    assert run(["plan", *words, f"{GENERAL}generated.tokens=100000"]) == 0
    output = capsys.readouterr().out
    assert "of 100,000 tokens: " in output
    assert "tokens/s, about" in output


def test_model_and_separator_are_the_questions(texts: Path, tmp_path: Path, model: Path) -> None:
    words = generated_words(texts, tmp_path, model, f'corpora.tokenizer.separator="{END_OF_TEXT}"')
    generated = sources_of(read_question(words))["general"].generated
    assert generated.separator == END_OF_TEXT
    assert generated.model == str(model)
    # Of a model of its own it is not.
    other = shutil.copytree(model, tmp_path / "other")
    generated = sources_of(read_question([*words, f"{GENERAL}generated.model={other}"]))["general"].generated
    assert generated.separator is None
    assert generated.model == str(other)


def test_the_folder_of_other_questions_keeps_its_name(texts: Path, tmp_path: Path, model: Path) -> None:
    words = small_words(texts, tmp_path)
    more = [f"{GENERAL}generated.temperature=0.5", f"{GENERAL}generated.tokens=7"]
    assert data_folder(read_question(words)) == data_folder(read_question([*words, *more]))
    assert data_folder(read_question(["experiment=quickstart"])).name == "general-code-f2ad2288"
    words = [*generated_words(texts, tmp_path, model), f"corpora.tokenizer.path={model}"]
    folders = {data_folder(read_question([*words, *one])) for one in ([], ["model.path=other"], more[:1])}
    assert len(folders) == 3


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("generated.temperature=0", "corpora.sources.general.generated.temperature: 0.0; allowed: above 0"),
        ("generated.model=/none", "corpora.sources.general.generated.model: /none: no such folder"),
        ("max_bytes=9", "corpora.sources.general.max_bytes: 9; allowed for generated text: null"),
        ("where={language: [en]}", "corpora.sources.general.where: {'language': ['en']}; generated has no columns"),
    ],
)
def test_a_mistake_is_one_line(texts: Path, tmp_path: Path, model: Path, capsys, override: str, line: str) -> None:
    words = generated_words(texts, tmp_path, model, f"{GENERAL}{override}")
    assert refused(["prepare", *words], capsys).startswith(line)


def test_a_question_without_a_model_directory_is_refused(texts: Path, tmp_path: Path, capsys) -> None:
    line = "corpora.sources.general.generated.model: null, and model.path too; give the base model, model=local"
    for verb in ("plan", "prepare"):
        assert refused([verb, *generated_words(texts, tmp_path, None)], capsys).startswith(line)
