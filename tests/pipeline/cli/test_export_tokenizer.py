"""The tokenizer that a trainer loads makes the tokens of the study, or the export and `cptlaw follow` say that not."""

import dataclasses
import json
from pathlib import Path

import pytest
import yaml
from transformers import AutoTokenizer

from pipeline.cli.main import run
from pipeline.cli.trainers.tokenization import other_tokens, saved_other_tokens, tokenised_alike
from pipeline.goals.registry import read_question
from pipeline.plan.runs import data_folder
from pipeline.question.schema import Question
from pipeline.study.artifacts import RecommendedRun
from pipeline.study.folder import study_of
from tests.pipeline.cli.test_export import ANSWERED, PLAN
from tests.pipeline.goals.ratio.examples import recommendation
from tests.pipeline.small import small_words
from training.checkpoints.weights import save_weights
from training.corpora.manifest import Manifest
from training.corpora.tokenizer import load_tokenizer
from training.model import build_model

TEXT = "X: 25\n\n2.11 café don't 1234567 |: A2 B2 c3/2 :|\n  \tdu bist's\n"


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A planned study of a qwen2 from scratch on notes and numbers, with an answer and the weights before CPT."""
    folder = tmp_path_factory.mktemp("numbers")
    for corpus in ("general", "code"):
        (folder / "texts" / corpus).mkdir(parents=True)
        for number in range(60):
            lines = "".join(f"{corpus} {number * n}.{n}\n{TEXT}" for n in range(6))
            (folder / "texts" / corpus / f"{number}.txt").write_text(lines)
    words = small_words(folder / "texts", folder, without=("goal.tolerance",))
    for verb in ("prepare", "plan"):
        assert run([verb, *words]) == 0
    question = read_question(words)
    study = study_of(question)
    before = next(one for one in study.read_plan() if one.spec.phase == "pretrain" and one.model == question.model.name)
    files = Manifest.open(data_folder(question)).tokenizer_files()
    save_weights(study.runs / before.name, before.spec.steps, build_model(before.spec.model, "eager", 0), files)
    tokens = 48 * question.target.global_batch * question.sequence_length / 1e9
    recommendation(**ANSWERED, target=RecommendedRun(question.model.name, 1e-4, tokens, 48)).write(study)
    return words


@pytest.fixture
def question(words: list[str]) -> Question:
    return read_question(words)


@pytest.fixture
def manifest(question: Question) -> Manifest:
    return Manifest.open(data_folder(question))


def weights(question: Question) -> str:
    (found,) = study_of(question).runs.glob("pretrain-qwen2-0.15m-*/checkpoints/step-*")
    return str(found)


def ids(tokenizer) -> list[int]:
    return tokenizer(TEXT, add_special_tokens=False)["input_ids"]


def by_auto(folder: str | Path) -> list[int]:
    return ids(AutoTokenizer.from_pretrained(folder, trust_remote_code=False))


@pytest.mark.parametrize("name", ["trl", "llama-factory", "axolotl", "megatron"])
def test_the_exported_model_is_tokenised_as_the_study(name, question, manifest, tmp_path, capsys) -> None:
    study, before = study_of(question), weights(question)
    own = ids(load_tokenizer(manifest.tokenizer_path))
    assert by_auto(before) != own, "transformers reads tokenizer.json as it is: the directory of links has no use"
    assert ids(load_tokenizer(Path(before))) == own
    assert run(["export", str(study.folder), f"format={name}", f"output={tmp_path / 'x.yaml'}"]) == 0
    text, shown = (tmp_path / "x.yaml").read_text(), capsys.readouterr().err
    made = tmp_path / "x-data" / "model"
    holds = f"note: tokenizer: the model of this file is {made}, whose tokenizer is the study's"
    assert f"{holds}, since AutoTokenizer reads that of {before} otherwise, as Qwen2Tokenizer (" in shown
    assert "other tokens); of what the trainer saves, load the tokenizer by PreTrainedTokenizerFast\n" in shown
    assert (yaml.safe_load(text).get("model_name_or_path", str(made)) if name == "trl" else str(made)) in text
    assert by_auto(made) == own
    weighed = {file.name: file.resolve() for file in made.iterdir() if file.is_symlink()}
    assert weighed == {file.name: file for file in Path(before).iterdir() if not file.name.startswith("tokenizer")}


def test_without_a_file_and_where_the_trainer_reads_it_itself(question, capsys) -> None:
    folder = str(study_of(question).folder)
    assert run(["export", folder, "format=trl"]) == 0
    shown = capsys.readouterr().err
    assert "passages of domain become other tokens" in shown or "passages of general become other tokens" in shown
    assert "note: tokenizer: output=FILE writes beside it a directory of the model with the study's: Auto" in shown
    assert run(["export", folder, "format=torchtitan"]) == 0
    assert "note: tokenizer" not in capsys.readouterr().err


def test_other_models_are_left_as_they_are(question, manifest, tmp_path) -> None:
    before, model = Path(weights(question)), tmp_path / "qwen3"
    model.mkdir()
    for file in before.iterdir():
        (model / file.name).write_bytes(file.read_bytes())
    shape = json.loads((before / "config.json").read_text()) | {"model_type": "qwen3"}
    (model / "config.json").write_text(json.dumps(shape))
    plan = dataclasses.replace(PLAN, model=str(model))
    assert tokenised_alike(plan, question, tmp_path / "data") == (plan, [])
    # A base model of the user's whose tokenizer is not that of the study.
    shape = json.loads((model / "tokenizer.json").read_text()) | {"normalizer": {"type": "Lowercase"}}
    (model / "tokenizer.json").write_text(json.dumps(shape))
    (line,) = tokenised_alike(plan, question, None)[1]
    assert f"AutoTokenizer reads that of {model} otherwise, as TokenizersBackend (" in line
    for as_it_is in (False, True):
        changed, (line,) = tokenised_alike(plan, question, tmp_path / str(as_it_is), as_it_is)
        assert (f"whose tokenizer is the study's, since that of {model} is another (" in line) == as_it_is
        assert ("load the tokenizer by PreTrainedTokenizerFast" in line) != as_it_is
        assert by_auto(changed.model) == ids(load_tokenizer(manifest.tokenizer_path))
        assert other_tokens(manifest, (Path(changed.model) / "tokenizer.json").read_text()) == ""
    gone = dataclasses.replace(PLAN, model=str(tmp_path / "gone"))
    kept, (line,) = tokenised_alike(gone, question, None)
    assert kept is gone
    assert line.startswith(f"tokenizer: not compared with the study's: that of {gone.model} cannot be loaded (")
    for model, data in (("MODEL", question.data), (str(before), str(tmp_path / "none"))):
        asked = dataclasses.replace(question, data=data)
        assert tokenised_alike(dataclasses.replace(PLAN, model=model), asked, None)[1] == []


def test_follow_says_that_what_was_saved_has_another_tokenizer(question, manifest, tmp_path, capsys) -> None:
    before = Path(weights(question))
    saved = tmp_path / "out" / "checkpoint-48"
    saved.mkdir(parents=True)
    for file in before.iterdir():
        (saved / file.name).write_bytes(file.read_bytes())
    assert saved_other_tokens(manifest, saved.parent) == saved_other_tokens(manifest, saved) == ""
    # As the Trainer of transformers saves what AutoTokenizer loaded.
    AutoTokenizer.from_pretrained(before).save_pretrained(saved)
    line = saved_other_tokens(manifest, saved.parent)
    assert "become other tokens than the study's: the one that begins with " in line
    assert other_tokens(manifest, (before / "tokenizer.json").read_text()) == ""
