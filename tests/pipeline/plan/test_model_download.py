"""Base models from GGUF files and directories: equal logits, the right token before documents, mistakes in one line."""

import dataclasses
import json
import os
import shutil
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import huggingface_hub
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from conf import options
from pipeline.cli.main import run
from pipeline.goals.registry import read_question
from pipeline.plan.model_download import NOTE, PACKAGES
from pipeline.plan.prepared_corpora import prepare_corpora
from pipeline.plan.runs import data_folder, planned_runs
from pipeline.question.presets import HUB, preset
from pipeline.study.context import context_of
from pipeline.study.number_format import quantity
from tests.pipeline.small import refused, small_words
from tests.pipeline.tiny_model import END_OF_TURN
from tests.training.test_device_reads import SHAPES
from training.base_model.examination import PLAIN_ENGLISH, examine
from training.base_model.gguf_file import convert_gguf, lost_in_conversion, read_gguf_header
from training.corpora.tokenizer import END_OF_TEXT, load_tokenizer, train_tokenizer
from training.model import build_model, model_from_directory
from training.spec import SpecError

gguf = pytest.importorskip("gguf")
KIND = gguf.GGUFValueType
KINDS = {str: KIND.STRING, float: KIND.FLOAT32, int: KIND.UINT32, bool: KIND.BOOL}
OWN = ("model=", "ladder=", "corpora.tokenizer")
"""Keys of the small question that a base model has of its own."""


def write_gguf(
    path: Path,
    model: PreTrainedModel,
    tokenizer_folder: Path,
    keys: Mapping[str, object] = MappingProxyType({}),
    changed: Mapping[str, np.ndarray | None] = MappingProxyType({}),
) -> None:
    """A Qwen2 model as llama.cpp's converter writes it, in fp32, with further keys and changed tensors (None: none)."""
    writer, config = gguf.GGUFWriter(path, "qwen2"), model.config
    writer.add_name("Tiny")
    writer.add_license("mit")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    content = json.loads((tokenizer_folder / "tokenizer.json").read_text())
    ids = load_tokenizer(tokenizer_folder).get_vocab()
    tokens = sorted(ids, key=lambda token: ids[token])
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token.startswith("<|") else 1 for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in content["model"]["merges"]])
    writer.add_bos_token_id(ids[END_OF_TURN])
    writer.add_eos_token_id(ids[END_OF_TURN])
    for key, value in keys.items():
        writer.add_key_value(key, value, KINDS[type(value)])
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN2, config.num_hidden_layers)
    tensors: dict[str, np.ndarray | None] = {}
    for name, weight in model.state_dict().items():
        stem, suffix = name.rsplit(".", 1)
        if name != "lm_head.weight" or not config.tie_word_embeddings:
            tensors[f"{names.get_name(stem)}.{suffix}"] = weight.numpy().astype(np.float32)
    for name, tensor in {**tensors, **changed}.items():
        if tensor is not None:
            writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def file(brought: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "Tiny-Instruct.gguf"
    write_gguf(path, model_from_directory(brought, "eager"), brought)
    return path


def test_a_gguf_file_becomes_a_directory_whose_token_between_documents_was_measured(
    brought: Path, file: Path, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    (data / "models").mkdir(parents=True)
    (data / "models" / ".Tiny-Instruct.killed.part").mkdir()
    assert run(["model", str(file), f"data={data}"]) == 0
    shown = capsys.readouterr().out
    assert f"documents are preceded by {END_OF_TEXT}, not by the declared {END_OF_TURN}" in shown
    assert "licence: mit" in shown
    assert "instruction-tuned (its name has 'Instruct')" in shown
    assert "dequantised" not in shown
    folder = data / "models" / "Tiny-Instruct"
    assert sorted(path.name for path in folder.parent.iterdir()) == [".lock", "Tiny-Instruct"]

    tokens = torch.arange(40)[None]
    with torch.no_grad():
        again, model = (model_from_directory(place, "eager").eval()(tokens).logits for place in (folder, brought))
    assert torch.equal(again, model)
    ids, brought_ids = (load_tokenizer(place)("mended 12 nets")["input_ids"] for place in (folder, brought))
    assert ids == brought_ids

    before = (folder / NOTE).stat().st_mtime_ns
    assert run(["model", str(file), f"data={data}"]) == 0
    assert "converted already" in capsys.readouterr().out
    assert (folder / NOTE).stat().st_mtime_ns == before

    own = ["model=local", f"model.path={folder}", "ladder=[]"]
    words = small_words(texts, tmp_path, *own, without=OWN)
    question = read_question(words)
    manifest = prepare_corpora(question, lambda _: None)
    assert manifest.store("general").meta.end_of_text == 0
    declared = read_question([*words, f'corpora.tokenizer.separator="{END_OF_TURN}"'])
    assert data_folder(declared) != data_folder(question)
    other = prepare_corpora(declared, lambda _: None)
    assert other.store("general").meta.end_of_text == 300
    contexts = [dataclasses.replace(context_of(question), given_manifest=one) for one in (manifest, other)]
    hashes = [{one.spec.hash for one in planned_runs(context)} for context in contexts]
    assert not hashes[0] & hashes[1]
    missing = read_question([*words, "corpora.tokenizer.separator=xyz"])
    with pytest.raises(ValueError, match=r"^corpora\.tokenizer\.separator: 'xyz' is not a token; allowed: .*im_end"):
        prepare_corpora(missing, lambda _: None)


def test_a_directory_is_used_where_it_is_with_the_key_that_it_needs(brought: Path, tmp_path: Path, capsys) -> None:
    assert run(["model", str(brought), f"data={tmp_path}"]) == 0
    shown = capsys.readouterr().out
    assert f"model=local model.path={brought}" in shown
    assert f'corpora.tokenizer.separator="{END_OF_TEXT}"' in shown
    assert not list(tmp_path.iterdir())
    assert examine(brought, "", "").perplexity[END_OF_TEXT] < 0.9 * examine(brought, "", "").perplexity[END_OF_TURN]


def test_bad_models_are_one_line_and_leave_nothing(brought, file, tmp_path, capsys, monkeypatch) -> None:
    def line(path: Path | str) -> str:
        error = refused(["model", str(path), f"data={tmp_path / 'data'}"], capsys)
        assert not [left for left in (tmp_path / "data").glob("models/*") if left.name != ".lock"]
        return error

    content = file.read_bytes()
    for size in (20, 5000, len(content) - 10):
        (tmp_path / "cut.gguf").write_bytes(content[:size])
        assert f"cut.gguf: cut short or damaged at {size:,} bytes" in line(tmp_path / "cut.gguf")
    (tmp_path / "text.gguf").write_text("hello" * 99)
    assert "not a GGUF file" in line(tmp_path / "text.gguf")
    assert "nowhere.gguf: no such folder" in line(tmp_path / "nowhere.gguf")

    model, broken = model_from_directory(brought, "eager"), tmp_path / "nan.gguf"
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight[1, 2] = np.nan
    write_gguf(broken, model, brought)
    assert f"{broken}: model.layers.0.mlp.up_proj.weight: 1 of 2,048 values are NaN or infinite" in line(broken)

    other = shutil.copytree(brought, tmp_path / "other")
    for kept in train_tokenizer(PLAIN_ENGLISH, 310, tmp_path / "bpe").iterdir():
        shutil.copy(kept, other)
    assert "the tokenizer has 310 token ids, the embedding 301 rows" in line(other)

    quantised = shutil.copytree(brought, tmp_path / "quantised")
    config = json.loads((quantised / "config.json").read_text()) | {"quantization_config": {"quant_method": "gptq"}}
    (quantised / "config.json").write_text(json.dumps(config))
    assert "its weights are quantised (gptq); give its unquantised weights" in line(quantised)
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    assert "an adapter (LoRA); merge it into its base model" in line(tmp_path / "adapter")

    # A loss after the token itself was seen would fall to nothing.
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    encoder = shutil.copytree(brought, tmp_path / "encoder")
    build_model({"model_type": "bert", "vocab_size": 301, **shape}, "eager", seed=0).save_pretrained(encoder)
    why = "no causal language model, which predicts a token from those before it alone; give one"
    assert f"encoder: bert: {why}" in line(encoder)
    base = [
        "plan",
        "experiment=base-model",
        "model=local",
        f"model.path={encoder}",
        "corpora.sources.domain.path=README.md",
    ]
    assert f"model.path: {encoder}: bert: {why}" in refused([*base, "corpora.sources.general.path=LICENSE"], capsys, 2)
    (encoder / "config.json").write_text('{"model_type": "t5"}')
    assert line(encoder).endswith(f"encoder: T5: {why}")

    assert refused(["model"], capsys, 2) == "cptlaw model: 0 models; allowed: one, see cptlaw model --help"
    assert "precision: no such key; allowed: data" in refused(["model", "smollm2-135m", "precision=1"], capsys, 2)


def test_a_published_shape_is_its_base_model_in_the_hub(brought: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    kept = tmp_path / "models--Qwen--Qwen2.5-1.5B"
    snapshot = Path(shutil.copytree(brought, kept / "snapshots" / ("0" * 40)))
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text("0" * 40)
    for name in ("qwen2.5-1.5b", "Qwen2.5-1.5B"):
        assert run(["model", name]) == 0
        shown = capsys.readouterr().out
        assert f"{name}: Qwen/Qwen2.5-1.5B of the hub" in shown
        assert f"model=local model.path={snapshot}" in shown
    assert {*HUB} <= {*options("model")}
    allowed = f"; allowed: {', '.join([*PACKAGES, *HUB])}, a GGUF file"
    mistake = refused(["model", "qwen2.5-1b"], capsys, 3)
    assert f"model: qwen2.5-1b: no such model{allowed}" in mistake
    assert mistake.endswith("did you mean qwen2.5-1.5b?")
    assert f"model: llama-106m: a shape without weights{allowed}" in refused(["model", "llama-106m"], capsys, 3)


def test_without_weights_the_parameters_are_counted_all_the_same(brought, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    shape = tmp_path / "shape"
    shape.mkdir()
    shutil.copy(brought / "config.json", shape)
    model = examine(brought, "", "")
    counted = (
        f"qwen2, {model.parameters:,} parameters, {model.non_embedding:,} of them non-embedding, by its config.json"
    )
    published = "qwen2, 1,543,714,304 parameters, 1,310,340,608 of them non-embedding, by its published shape"
    for name, line, error in (
        (str(shape), counted, "no *.safetensors"),
        ("qwen2.5-1.5b", published, "neither a folder nor available from the hub"),
        ("Qwen/Qwen2.5-1.5B", published, "neither a folder nor available from the hub"),
    ):
        assert run(["model", name]) == 3
        shown = capsys.readouterr()
        assert f"  {line} alone\n" in shown.out
        assert error in shown.err
    (tmp_path / "text.txt").write_text("some text " * 100_000)
    texts = [f"corpora.sources.{name}.path={tmp_path / 'text.txt'}" for name in ("general", "domain")]
    asked = [
        "experiment=base-model",
        "model=local",
        f"model.path={shape}",
        *texts,
        f"studies={tmp_path}",
        f"data={brought}",
    ]
    assert run(["plan", *asked]) == 0
    shown = capsys.readouterr().out
    assert f"the corpora are not prepared, and {shape} has config.json alone, no *.safetensors: this is an" in shown
    assert quantity(model.non_embedding) in shown
    assert f"{shape}: no *.safetensors; save the model there" in refused(["prepare", *asked], capsys, 3)
    (shape / "config.json").write_text(json.dumps(SHAPES["llama"] | {"model_type": "falcon"}))
    refusal = "boundaries: 'documents' with model_type falcon, which sees the documents before; allowed: none"
    assert refusal in refused(["plan", *asked, "boundaries=documents"], capsys, 2)
    assert run(["plan", *asked]) == 0
    (shape / "config.json").write_text("{}")
    assert "no *.safetensors" in refused(["model", str(shape)], capsys, 3)
    assert "no *.safetensors" in refused(["plan", *asked], capsys, 3)


MANY, ONE_KEY = struct.pack("<Q", 2**60), struct.pack("<QQ", 0, 1)


def _key(name: bytes, kind: int, value: bytes) -> bytes:
    return ONE_KEY + struct.pack("<Q", len(name)) + name + struct.pack("<I", kind) + value


@pytest.mark.parametrize(
    "content",
    [
        MANY + MANY,
        ONE_KEY + MANY + b"name",
        _key(b"general.name", KIND.STRING, MANY + b"x"),
        _key(b"a", KIND.ARRAY, struct.pack("<IQ", 0, 3 << 20) + bytes(4 << 20)),
        _key(b"a", KIND.ARRAY, struct.pack("<I", 8) + MANY + bytes(4 << 20)),
        _key(b"a", KIND.ARRAY, struct.pack("<IQ", 9, 1) * 100_000),
        struct.pack("<QQ", 1, 0) + struct.pack("<Q1sI", 1, b"w", 2**32 - 1) + MANY * 9,
        _key(b"split.count", KIND.STRING, struct.pack("<Q1s", 1, b"x")),
    ],
    ids=("keys", "key", "string", "array", "strings", "nested", "dimensions", "type"),
)
def test_lengths_that_a_gguf_file_does_not_have_end_in_a_second(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "x.gguf"
    file.write_bytes(b"GGUF" + struct.pack("<I", 3) + content)
    start = time.monotonic()
    with pytest.raises(SpecError, match=r"x\.gguf: cut short or damaged at [\d,]+ bytes \(.*\); download it again$"):
        read_gguf_header(file)
    assert time.monotonic() - start < 2


LOST = "1 keys or weights would be lost ({}); give the model's Hugging Face directory instead"


def test_a_pipe_in_place_of_a_gguf_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.gguf")
    with pytest.raises(SpecError, match="not a file; allowed: "):
        read_gguf_header(tmp_path / "a.gguf")


@pytest.mark.parametrize(
    ("keys", "changed", "message"),
    [
        ({"split.count": 3}, {}, "is one of 3 parts of a model (split.count); join the parts"),
        ({}, {"blk.0.ffn_up.weight": None}, "1 missing (model.layers.0.mlp.up_proj.weight); download it again"),
        ({}, {"blk.0.ffn_up.weight": np.ones((65, 32), np.float32)},
         "1 of another shape (model.layers.0.mlp.up_proj.weight [65, 32], not [64, 32])"),
        ({}, {"blk.0.ffn_up.bias": np.ones(64, np.float32)}, LOST.format("blk.0.ffn_up.bias")),
        ({}, {"rope_freqs.weight": np.full(8, 8, np.float32)}, LOST.format("rope_freqs.weight")),
        ({"qwen2.rope.scaling.type": "yarn"}, {}, LOST.format("qwen2.rope.scaling.type=yarn")),
        ({"qwen2.rope.scaling.factor": 4.0}, {}, LOST.format("qwen2.rope.scaling.factor=4.0")),
        ({"qwen2.attention.sliding_window": 64}, {}, LOST.format("qwen2.attention.sliding_window=64")),
        ({"qwen2.final_logit_softcapping": 30.0}, {}, LOST.format("qwen2.final_logit_softcapping=30.0")),
        ({"qwen2.attention.scale": 0.5}, {}, LOST.format("qwen2.attention.scale=0.5")),
        ({"qwen2.attention.causal": False}, {}, LOST.format("qwen2.attention.causal=False")),
        ({"qwen2.rope.dimension_count": 4}, {}, LOST.format("qwen2.rope.dimension_count=4")),
    ],
    ids=lambda value: next(iter(value), "") if isinstance(value, dict) else None,
)  # fmt: skip
def test_what_a_conversion_of_gguf_would_lose_is_refused_by_name(
    keys: dict[str, object], changed: dict[str, np.ndarray | None], message: str, brought: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    write_gguf(tmp_path / "x.gguf", model_from_directory(brought, "eager"), brought, keys, changed)
    assert message in refused(["model", str(tmp_path / "x.gguf"), f"data={tmp_path}"], capsys)


def test_keys_of_gguf_that_say_what_the_conversion_does_anyway_are_accepted(brought: Path, tmp_path: Path) -> None:
    keys = {"split.count": 0, "qwen2.rope.dimension_count": 16, "qwen2.rope.scaling.type": "none"}
    keys |= {"qwen2.attention.key_length": 16, "qwen2.attention.causal": True, "qwen2.attention.scale": 1.0}
    keys |= {"qwen2.rope.scaling.finetuned": False, "qwen2.vocab_size": 301, "quantize.imatrix.chunks_count": 9}
    model = model_from_directory(brought, "eager")
    write_gguf(tmp_path / "x.gguf", model, brought, keys, {"rope_freqs.weight": np.ones(8, np.float32)})
    convert_gguf(tmp_path / "x.gguf", tmp_path / "model")
    converted = model_from_directory(tmp_path / "model", "eager").state_dict()
    assert converted.keys() == model.state_dict().keys()
    assert all(torch.equal(converted[name], weight) for name, weight in model.state_dict().items())


@pytest.mark.parametrize(
    ("architecture", "keys"),
    [
        ("nemotron", {"attention.layer_norm_epsilon": 1e-5, "rope.dimension_count": 8}),
        ("bloom", {"attention.head_count_kv": 2, "feed_forward_length": 64, "context_length": 2048}),
        ("gemma2", {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "attention.value_length": 16}),
    ],
)
def test_keys_whose_names_transformers_does_not_read_are_compared_with_its_model(architecture, keys, tmp_path) -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 60, "head_dim": 16}
    model = build_model({"model_type": architecture, "num_key_value_heads": 2, **sizes}, "eager", seed=0)
    for name, factor, lost in (("same", 1, []), ("other", 3, [next(iter(keys))])):
        writer = gguf.GGUFWriter(tmp_path / name, architecture)
        for key, value in keys.items():
            changed = value * factor if key in lost else value
            writer.add_key_value(f"{architecture}.{key}", changed, KINDS[type(value)])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        found = lost_in_conversion(tmp_path / name, model)
        assert [key.partition("=")[0] for key in found] == [f"{architecture}.{key}" for key in lost]


def test_weights_that_do_not_fit_are_refused_by_model_and_plan(brought, texts, tmp_path, capsys) -> None:
    folder = shutil.copytree(brought, tmp_path / "headless")
    weights = load_file(folder / "model.safetensors")
    del weights["lm_head.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    own = ["model=local", f"model.path={folder}", "ladder=[]"]
    words = small_words(texts, tmp_path, *own, without=("model=", "ladder="))
    for command in (["model", str(folder)], ["plan", *words]):
        error = refused(command, capsys)
        assert f"{folder}: weights do not fit the architecture: 1 missing (lm_head.weight); save or downl" in error


def test_a_tokenizer_of_another_model_is_refused_by_the_plan_too(brought, texts, tmp_path, capsys) -> None:
    own = ["model=local", f"model.path={brought}", "ladder=[]"]
    words = small_words(texts, tmp_path, *own, without=OWN)
    foreign = f"corpora.tokenizer.path={train_tokenizer(PLAIN_ENGLISH, 310, tmp_path / 'bpe')}"
    prepare_corpora(read_question([*words, foreign]), lambda _: None)
    assert "the tokenizer has 310 token ids, the embedding 301 rows" in refused(["plan", *words, foreign], capsys, 2)


def test_a_ladder_may_be_of_base_models(brought: Path, texts: Path, tmp_path: Path, capsys) -> None:
    smaller = shutil.copytree(brought, tmp_path / "smaller")
    shape = json.loads((smaller / "config.json").read_text()) | {"intermediate_size": 48}
    build_model(shape, "eager", seed=0).save_pretrained(smaller)
    own = ["model=local", f"model.path={brought}", f"ladder=[{smaller}]"]
    words = small_words(texts, tmp_path, *own, without=OWN)
    context = context_of(read_question(words))
    prepare_corpora(context.question, lambda _: None)
    runs = [one for one in planned_runs(context) if one.model == "smaller"]
    assert [run.spec.phase for run in runs] == ["continual"] * 3
    assert {run.start for run in runs} == {str(smaller)}
    assert {run.spec.model["intermediate_size"] for run in runs} == {48}
    for name, line in {
        "hf": "ladder: 'hf' needs a path; give the directory or hub name, 'ladder=[ORG/NAME]'",
        "there": "or a hub name, ORG/NAME",
        "./there": "ladder: ./there: no such folder; allowed: a Hugging Face directory, or a hub name",
        f"{smaller},{shutil.copytree(smaller, tmp_path / 'other' / 'smaller')}": "ladder: 2 models are called 'smalle",
    }.items():
        assert line in refused(["plan", *words, f"ladder=[{name}]"], capsys)


def test_a_model_that_is_not_there_yet_says_how_to_get_it(texts: Path, tmp_path: Path, capsys) -> None:
    words = small_words(texts, tmp_path, "model=smollm2-135m", "ladder=[]", without=("model=", "ladder="))
    assert "run cptlaw model smollm2-135m first" in refused(["plan", *words], capsys)
    assert preset("smollm2-135m", "there").path == "there/models/smollm2-135m"
