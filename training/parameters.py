"""Parameters and FLOPs of a model, counted from its configuration without building it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Size:
    """How large a model is."""

    total: int
    """All parameters; a head tied to the embedding counts once."""
    non_embedding: int
    """Parameters outside the token embedding and, when it is not tied, the output head: the N of the laws."""
    flops_per_token: float
    """Floating-point operations to train on one token, forward and backward, attention and output head included."""


def model_size(model: Mapping[str, Any], sequence_length: int) -> Size:
    """Count a model from its transformers configuration fields.

    Training FLOPs are 6 a matrix weight and token, the output head included, plus attention's 6 x layers x
    hidden x sequence length (causal, so half of the full square).

    Raises:
        ValueError: a model_type whose shape is not known here.

    >>> model_size(dict(model_type="qwen2", vocab_size=2048, hidden_size=64, num_hidden_layers=3,
    ...     num_attention_heads=2, num_key_value_heads=2, intermediate_size=176, tie_word_embeddings=True), 128).total
    282624
    """
    if model.get("model_type") not in _BIASED_QKV:
        raise ValueError(f"model_type: {model.get('model_type')!r}; allowed: {', '.join(_BIASED_QKV)}")
    hidden, layers = model["hidden_size"], model["num_hidden_layers"]
    head = model.get("head_dim") or hidden // model["num_attention_heads"]
    queries = model["num_attention_heads"] * head
    keys = model.get("num_key_value_heads", model["num_attention_heads"]) * head
    matrices = hidden * (queries + 2 * keys) + queries * hidden + 3 * hidden * model["intermediate_size"]
    vectors = 2 * hidden + (queries + 2 * keys if _BIASED_QKV[model["model_type"]] else 0)
    if model["model_type"] == "qwen3":
        vectors += 2 * head
    non_embedding = layers * (matrices + vectors) + hidden
    embedding = model["vocab_size"] * hidden
    total = non_embedding + embedding * (1 if model.get("tie_word_embeddings") else 2)
    flops = 6.0 * (layers * matrices + embedding) + 6.0 * layers * queries * sequence_length
    return Size(total, non_embedding, flops)


_BIASED_QKV = {"qwen2": True, "qwen3": False, "llama": False}
