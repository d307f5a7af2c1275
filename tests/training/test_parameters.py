"""Counting without building agrees with counting what was built, for the presets too."""

import dataclasses

import pytest
import torch

from conf import CONF
from pipeline.plan.model_shape import configuration_of
from pipeline.question.presets import preset
from tests.conftest import SHAPE
from training.model import build_model
from training.parameters import model_size

WITH_WEIGHTS = ("local", "hf", "smollm2-135m", "gemma3-270m")
PRESETS = sorted(path.stem for path in (CONF / "model").glob("*.yaml") if path.stem not in WITH_WEIGHTS)
PAPERS = {
    # Name -> non-embedding parameters that its paper or model card prints, in millions, and how exactly.
    "qwen1.5-0.5b": (308, 0.01),
    "qwen2.5-0.5b": (360, 0.01),
    "qwen2.5-1.5b": (1310, 0.01),
    "qwen2.5-3b": (2770, 0.01),
    "qwen3-0.6b": (440, 0.01),
    "qwen3-1.7b": (1400, 0.01),
    "qwen3-4b": (3600, 0.02),
    "llama-106m": (106, 0.005),
    "llama-594m": (594, 0.005),
    "llama-1720m": (1720, 0.005),
}


def counted(shape: dict) -> tuple[int, int]:
    with torch.device("meta"):
        model = build_model(shape, "eager", 0, objective="masked" if shape["model_type"] == "bert" else "causal")
    total = sum(parameter.numel() for parameter in model.parameters())
    names = ("wte", "wpe", "word_embeddings", "position_embeddings", "token_type_embeddings", "embed_tokens", "lm_head")
    names += ("embed_positions",)
    embeddings = sum(p.numel() for name, p in model.named_parameters() if name.split(".")[-2] in names)
    return total, total - embeddings


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_counts_as_it_is_built(name):
    model = preset(name)
    shape = configuration_of(model, model.vocab_size or 2048, 1024, 0)
    size = model_size(shape, 1024)
    assert (size.total, size.non_embedding) == counted(shape)
    if name in PAPERS:
        millions, within = PAPERS[name]
        assert size.non_embedding / 1e6 == pytest.approx(millions, rel=within)


def test_an_architecture_without_a_formula_is_built_to_be_counted():
    shape = {**SHAPE, "model_type": "mistral", "vocab_size": 300, "tie_word_embeddings": True, "head_dim": 8}
    size = model_size(shape, 16)
    same = model_size({**shape, "model_type": "llama"}, 16)
    assert (size.total, size.non_embedding) == counted(shape) == (same.total, same.non_embedding)
    assert size.flops_per_token == pytest.approx(same.flops_per_token, rel=0.02)


ONE_HEAD = {"num_key_value_heads": 1, "head_dim": 8}


@pytest.mark.parametrize(
    "changes",
    [
        *(ONE_HEAD | {"model_type": kind} for kind in ("qwen2", "qwen3", "llama")),
        *(ONE_HEAD | {"model_type": kind, "tie_word_embeddings": False} for kind in ("qwen2", "qwen3", "llama")),
        # What the formulas leave out.
        {"model_type": "llama", "attention_bias": True},
        {"model_type": "llama", "mlp_bias": True},
        {"model_type": "qwen3"},
        {"model_type": "qwen3", "head_dim": 8, "attention_bias": True},
        {"model_type": "opt", "ffn_dim": 32, "word_embed_proj_dim": 16, "pad_token_id": 1},
    ],
    ids=lambda changes: " ".join(f"{name}={value}" for name, value in changes.items()),
)
def test_count(changes):
    shape = SHAPE | {"vocab_size": 300} | changes
    size = model_size(shape, 16)
    assert (size.total, size.non_embedding) == counted(shape)


def test_of_experts_all_count_and_those_of_a_token_work():
    shape = SHAPE | {"model_type": "qwen3_moe", "vocab_size": 300, "head_dim": 8, "moe_intermediate_size": 8}
    few, many = (model_size(shape | {"num_experts": count, "num_experts_per_tok": 2}, 16) for count in (2, 8))
    router = 6 * SHAPE["hidden_size"]
    assert many.non_embedding - few.non_embedding == router + 6 * 3 * SHAPE["hidden_size"] * 8
    assert many.flops_per_token - few.flops_per_token == 6 * router


def test_an_unknown_architecture_is_named():
    with pytest.raises(ValueError, match="mamber"):
        model_size({"model_type": "mamber"}, 16)


def test_fields_change_together():
    longer = dataclasses.replace(preset("gpt2-large"), num_hidden_layers=1)
    assert configuration_of(longer, 60_000 - 9_743, 4096, 0)["n_positions"] == 4096
    other = configuration_of(dataclasses.replace(preset("qwen2-0.3m"), model_type="qwen3"), 300, 1024, 0)
    assert other["head_dim"] == other["hidden_size"] // other["num_attention_heads"]
