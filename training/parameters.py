"""Parameters and training FLOPs of a model, computed from its configuration, and the peaks of devices."""

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CHUNK = 2048
"""Predictions whose logits are computed at once where all would take too much memory."""
DENSE_PEAKS = {
    **{"B300": 2250, "GB300": 2500, "B200": 2250, "GB200": 2500, "H200": 989, "GH200": 989, "H100": 989, "H800": 989},
    **{"H100 PCIe": 756, "H100 NVL": 835, "H20": 148, "A100": 312, "A800": 312, "A40": 150, "A30": 165, "A10": 125},
    **{"A10G": 70, "L40S": 362, "L40": 181, "L4": 121, "RTX A6000": 155, "RTX A5000": 111, "RTX 6000 Ada": 364},
    **{"RTX 5090": 210, "RTX 4090": 165, "RTX 4080": 97, "RTX 3090": 71},
    **{"MI355X": 2517, "MI325X": 1307, "MI300X": 1307, "MI300A": 981, "MI250X": 383},
}
"""Words of a device's name -> dense bf16 peak, 10^12 FLOP a second, from the data sheet."""
_LESS_THAN_NAMED = ("MIG", "Laptop", "Max-Q")


def peak_flops(device: str) -> float | None:
    """Dense bf16 peak of a device by its name, FLOP a second; None for an unknown one, and for a slice of one.

    >>> peak_flops("NVIDIA H200"), peak_flops("NVIDIA RTX A4000"), peak_flops("NVIDIA A100-SXM4-80GB")
    (989000000000000.0, None, 312000000000000.0)
    """
    if any(word in device for word in _LESS_THAN_NAMED):
        return None
    found = [
        name for name in DENSE_PEAKS if re.search(rf"(?<![A-Za-z0-9]){name}(?![A-Za-z0-9])", device, re.IGNORECASE)
    ]
    # The longest matching name: H100 PCIe is slower than H100.
    return DENSE_PEAKS[max(found, key=len)] * 1e12 if found else None


@dataclass(frozen=True)
class ModelSize:
    """Size of a model."""

    total: int
    """All parameters; a head tied to the embedding counts once."""
    non_embedding: int
    """Parameters outside the embeddings (tokens, learned positions, token types) and, when it is not tied, the output
    head: the N of the laws."""
    flops_per_token: float
    """Floating-point operations to train on one token, forward and backward, attention and output head included."""


def model_size(model: Mapping[str, Any], sequence_length: int) -> ModelSize:
    """Size of a model, from its transformers configuration fields.

    Training FLOPs per token are 6 per matrix weight, output head included, plus 6 x layers x hidden x sequence length
    for causal attention, and twice that for BERT's bidirectional attention.

    model_type "given" has non_embedding alone, for runs that were made elsewhere; its FLOPs are 6 per parameter.

    Architectures other than qwen2, qwen3, llama, gpt2 and bert are built on torch's meta device and counted, as are
    these with biases that are not theirs by default. Of a mixture of experts all count, for FLOPs those of one token.

    Raises:
        ValueError: a model_type that transformers does not know.

    >>> model_size(dict(model_type="qwen2", vocab_size=2048, hidden_size=64, num_hidden_layers=3,
    ...     num_attention_heads=2, num_key_value_heads=2, intermediate_size=176, tie_word_embeddings=True), 128).total
    282624
    """
    return _FORMULAS.get(model.get("model_type", ""), _built)(model, sequence_length)


_NAMED = {"qwen2": {"num_key_value_heads"}, "qwen3": {"num_key_value_heads", "head_dim"}}
"""model_type -> fields whose default in transformers is a number, whatever the others are."""


def _gated(model: Mapping[str, Any], sequence_length: int) -> ModelSize:
    by_default = _NAMED.get(model["model_type"], set()) - model.keys()
    if by_default or model.get("attention_bias") or model.get("mlp_bias"):
        return _built(model, sequence_length)
    hidden, layers = model["hidden_size"], model["num_hidden_layers"]
    head = model.get("head_dim") or hidden // model["num_attention_heads"]
    queries = model["num_attention_heads"] * head
    keys = (model.get("num_key_value_heads") or model["num_attention_heads"]) * head
    matrices = hidden * (queries + 2 * keys) + queries * hidden + 3 * hidden * model["intermediate_size"]
    # Two norms; of qwen2 the biases of queries, keys and values; of qwen3 the norms of queries and keys.
    vectors = 2 * hidden + {"qwen2": queries + 2 * keys, "qwen3": 2 * head}.get(model["model_type"], 0)
    embedding = model["vocab_size"] * hidden
    heads = 1 if model.get("tie_word_embeddings") else 2
    return _size(layers, matrices, vectors, hidden, heads * embedding, embedding, queries, sequence_length)


def _gpt2(model: Mapping[str, Any], sequence_length: int) -> ModelSize:
    hidden, inner = model["n_embd"], model.get("n_inner") or 4 * model["n_embd"]
    matrices, vectors = 4 * hidden**2 + 2 * hidden * inner, 4 * hidden + 4 * hidden + inner + hidden
    tokens, positions = model["vocab_size"] * hidden, model.get("n_positions", 1024) * hidden
    # transformers ties GPT-2's head by default.
    heads = 1 if model.get("tie_word_embeddings", True) else 2
    return _size(
        model["n_layer"], matrices, vectors, 2 * hidden, heads * tokens + positions, tokens, hidden, sequence_length
    )


def _bert(model: Mapping[str, Any], sequence_length: int) -> ModelSize:
    hidden, inner = model["hidden_size"], model["intermediate_size"]
    matrices, vectors = 4 * hidden**2 + 2 * hidden * inner, 4 * hidden + 4 * hidden + inner + hidden
    # A norm before the layers; after them a square matrix with bias, a norm, and the head's bias.
    outside = hidden**2 + 5 * hidden + model["vocab_size"]
    tokens = model["vocab_size"] * hidden
    embeddings = tokens + (model.get("max_position_embeddings", 512) + model.get("type_vocab_size", 2)) * hidden
    layers = model["num_hidden_layers"]
    return _size(layers, matrices, vectors, outside, embeddings, tokens + hidden**2, 2 * hidden, sequence_length)


def _size(
    layers: int, matrices: int, vectors: int, outside: int, embeddings: int, head: int, attended: int, length: int
) -> ModelSize:
    non_embedding = layers * (matrices + vectors) + outside
    flops = 6.0 * (layers * matrices + head) + 6.0 * layers * attended * length
    return ModelSize(non_embedding + embeddings, non_embedding, flops)


def _built(model: Mapping[str, Any], sequence_length: int) -> ModelSize:
    return _counted(json.dumps(dict(model), sort_keys=True), sequence_length)


@functools.lru_cache(maxsize=64)
def _counted(fields: str, sequence_length: int) -> ModelSize:
    """Once for each shape: a plan of rounds asks some 500 times."""
    import torch

    from training.model import SpecError, build_model

    try:
        with torch.device("meta"):
            network = build_model(json.loads(fields), "eager", seed=0)
    except SpecError as error:
        raise ValueError(str(error)) from None
    total = sum(parameter.numel() for parameter in network.parameters())
    tokens = network.get_input_embeddings().get_parameter("weight")
    embeddings = {tokens, *(module.weight for module in network.modules() if isinstance(module, torch.nn.Embedding))}
    if (head := network.get_output_embeddings()) is not None:
        embeddings.add(head.weight)
    config = network.config.get_text_config()
    outside = total - sum(embedding.numel() for embedding in embeddings)
    attention = 6.0 * config.num_hidden_layers * config.hidden_size * sequence_length
    experts = [weight for name, weight in network.named_parameters() if ".experts." in name and weight.ndim == 3]
    chosen = getattr(config, "num_experts_per_tok", None) or getattr(config, "top_k_experts", None) or 1
    idle = sum(weight.numel() // len(weight) * (len(weight) - chosen) for weight in experts)
    return ModelSize(total, outside, 6.0 * (outside - idle + tokens.numel()) + attention)


_FORMULAS = {
    **{"qwen2": _gated, "qwen3": _gated, "llama": _gated, "gpt2": _gpt2, "bert": _bert},
    "given": lambda model, _: ModelSize(model["non_embedding"], model["non_embedding"], 6.0 * model["non_embedding"]),
}
