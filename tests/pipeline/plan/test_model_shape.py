"""Models by shape, directory and hub name, and their kept weights."""

import dataclasses
import json
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub.constants
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from pipeline.goals.registry import read_question
from pipeline.plan.model_shape import configuration_of, directory_of, separator_is_first
from pipeline.plan.prepared_corpora import prepare_corpora
from pipeline.question.messages import ConfigError
from pipeline.question.presets import preset
from pipeline.question.schema import ModelConfig
from tests.conftest import SHAPE
from training.checkpoints.weights import save_weights
from training.corpora.manifest import Manifest
from training.model import build_model
from training.spec import SpecError

COMMIT = "0123456789abcdef0123456789abcdef01234567"
PLACES = {"general": "general", "domain": "code"}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Hugging Face's cache with the model some/model, offline."""
    model = tmp_path / "models--some--model"
    snapshot = model / "snapshots" / COMMIT
    build_model({**SHAPE, "vocab_size": 300}, "eager", seed=0).save_pretrained(snapshot)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(COMMIT)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return snapshot


def test_a_hub_name_is_its_snapshot_whose_folder_is_the_commit(cache: Path) -> None:
    model = ModelConfig(name="hf", path="some/model")
    assert directory_of(model) == directory_of(dataclasses.replace(model, revision=COMMIT)) == cache
    assert configuration_of(model, 300, 16, 0)["hidden_size"] == SHAPE["hidden_size"]


def test_a_tokenizer_may_be_a_hub_name_whose_commit_the_manifest_keeps(cache, manifest, texts, tmp_path) -> None:
    for file in manifest.tokenizer_path.iterdir():
        shutil.copy(file, cache)
    words = ["experiment=own", f"data={tmp_path / 'data'}", "corpora.tokenizer.path=some/model"]
    words += [f"corpora.sources.{name}.path={texts / folder}" for name, folder in PLACES.items()]
    prepared = prepare_corpora(read_question(words), lambda _: None)
    assert (prepared.tokenizer, prepared.vocabulary) == (manifest.tokenizer, manifest.vocabulary)
    assert Manifest.open(prepared.folder).tokenizer_revision == COMMIT
    missing = read_question([*words, "corpora.tokenizer.path=other/model"])
    with pytest.raises(SpecError, match=r"^corpora\.tokenizer\.path: other/model: neither a folder nor available .*$"):
        prepare_corpora(missing, lambda _: None)


def test_an_unavailable_model_is_one_line(cache: Path) -> None:
    with pytest.raises(SpecError, match=r"model\.path: other/model: neither a folder nor available from the hub"):
        directory_of(ModelConfig(name="hf", path="other/model"))
    with pytest.raises(SpecError, match=r"plan experiment=base-model model=hf model\.path=Qwen/Qwen3-4B-Base prints"):
        directory_of(ModelConfig(name="hf", path="Qwen/Qwen3-4B-Base"))
    with pytest.raises(SpecError, match="some/model at v2"):
        directory_of(ModelConfig(name="hf", path="some/model", revision="v2"))
    with pytest.raises(SpecError, match="no such folder"):
        directory_of(ModelConfig(name="hf", path="./nothing/there"))


def test_a_vocabulary_smaller_than_the_tokenizer_is_refused() -> None:
    small = dataclasses.replace(preset("qwen2.5-0.5b"), vocab_size=1000)
    with pytest.raises(ConfigError, match=r"model\.vocab_size: 1000; allowed: 1001 or more"):
        configuration_of(small, 1001, 128, 0)


@pytest.mark.parametrize("name", ["qwen1.5-0.5b", "qwen3-0.6b", "llama-106m", "gpt2-large"])
def test_kept_weights_give_plain_transformers_the_same_logits(name: str, manifest: Manifest, tmp_path: Path) -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    narrow = dataclasses.replace(preset(name), **sizes, num_key_value_heads=2, vocab_size=None)
    narrow.head_dim = narrow.head_dim and 16
    model = build_model(configuration_of(narrow, manifest.vocabulary, 64, 0), "eager", seed=1)
    save_weights(tmp_path, 7, model, manifest.tokenizer_files())
    folder = tmp_path / "checkpoints" / "step-7"
    again = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = "ab cde fghij"
    assert tokenizer(text)["input_ids"] == AutoTokenizer.from_pretrained(manifest.tokenizer_path)(text)["input_ids"]
    tokens = torch.tensor([tokenizer(text)["input_ids"]])
    with torch.no_grad():
        assert torch.equal(again(tokens).logits, model(tokens).logits)
    tied = again.get_output_embeddings().weight is again.get_input_embeddings().weight
    assert tied == preset(name).tie_word_embeddings
    if narrow.rope_theta:
        assert again.config.rope_parameters["rope_theta"] == narrow.rope_theta


@pytest.mark.parametrize(("name", "words"), [("a/gated", "log in with hf auth login"), ("a/none", "no such name")])
def test_a_hub_that_does_not_give_a_model_says_what_to_do(name: str, words: str, tmp_path: Path, monkeypatch) -> None:
    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            gated = "gated" in self.path
            self.send_response(403 if gated else 404)
            self.send_header("X-Error-Code", "GatedRepo" if gated else "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *words: object) -> None:
            """Nothing is printed."""

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(SpecError, match=f"^model.path: {name}: neither a folder nor .*{words}"):
            directory_of(ModelConfig(name="hf", path=name))
        server.shutdown()


ENDS = {"bos_token": "<bos>", "eos_token": "<eos>"}


@pytest.mark.parametrize(
    ("words", "config", "first"),
    [
        ([], {**ENDS, "document_separator": "<bos>"}, True),
        ([], {**ENDS, "bos_token": {"content": "<bos>"}, "document_separator": "<bos>"}, True),
        ([], ENDS, False),
        ([], {"bos_token": "<end>", "eos_token": "<end>", "document_separator": "<end>"}, False),
        (["corpora.tokenizer.separator=<bos>"], ENDS, True),
        (["sequence_start=text"], {**ENDS, "document_separator": "<bos>"}, False),
        (["sequence_start=separator"], {}, True),
    ],
)
def test_sequences_begin_with_the_separator_of_models_whose_documents_do(words, config, first, tmp_path) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    manifest = SimpleNamespace(tokenizer="known", tokenizer_path=tmp_path)
    context: Any = SimpleNamespace(question=read_question(["experiment=quickstart", *words]), manifest=manifest)
    assert separator_is_first(context) == first
