"""Counting without building agrees with counting what was built."""

from __future__ import annotations

import pytest

from tests.conftest import SHAPE
from training.model import build_model
from training.parameters import model_size


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "llama"])
@pytest.mark.parametrize("tied", [True, False])
def test_count(kind: str, tied: bool) -> None:
    shape = {
        **SHAPE,
        "model_type": kind,
        "vocab_size": 300,
        "tie_word_embeddings": tied,
        "num_key_value_heads": 1,
    }
    shape["head_dim"] = 8
    model = build_model(shape, "eager", 0)
    total = sum(parameter.numel() for parameter in model.parameters())
    embedding = model.get_input_embeddings().weight.numel()
    size = model_size(shape, 16)
    assert size.total == total
    assert size.non_embedding == total - embedding * (1 if tied else 2)


def test_an_unknown_architecture_is_named() -> None:
    with pytest.raises(ValueError, match="mamba"):
        model_size({"model_type": "mamba"}, 16)
