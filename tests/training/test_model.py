"""The two ways to the same loss, and which models allow the second."""

import pytest
import torch

from training.model import build_model, has_linear_head, sequence_losses, sequence_losses_by_rows

TINY = {
    "vocab_size": 64,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "intermediate_size": 32,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": 0,
}
GPT2 = {"model_type": "gpt2", "vocab_size": 64, "n_embd": 16, "n_layer": 1, "n_head": 2, "resid_pdrop": 0.0} | {
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
}


@pytest.mark.parametrize("shape", [{"model_type": "qwen2", **TINY}, GPT2], ids=["tied", "gpt2"])
def test_the_loss_by_rows_and_its_gradient_are_those_of_the_logits(shape):
    model = build_model(shape, "eager", seed=0)
    assert has_linear_head(model)
    tokens = torch.randint(0, 64, (3, 9), generator=torch.Generator().manual_seed(0))
    found = []
    for losses in (sequence_losses, sequence_losses_by_rows):
        model.zero_grad()
        by_sequence = losses(model, tokens, "fp32")
        by_sequence.sum().backward()
        found.append([by_sequence.detach(), *(parameter.grad.clone() for parameter in model.parameters())])
    for logits, rows in zip(*found, strict=True):
        torch.testing.assert_close(logits, rows, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scaled", [{"model_type": "cohere", "logit_scale": 0.5}, {"model_type": "gemma2"}])
def test_a_model_that_scales_or_caps_its_logits_is_told_from_one_that_does_not(scaled):
    if scaled["model_type"] == "gemma2":
        scaled = scaled | {"final_logit_softcapping": 0.05, "head_dim": 8}
    assert not has_linear_head(build_model({**TINY, **scaled}, "eager", seed=0))
