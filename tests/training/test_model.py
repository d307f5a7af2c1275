"""The two ways to the same loss, and which models allow the second."""

from functools import partial

import numpy as np
import pytest
import torch

from tests.conftest import SHAPE
from training.model import build_model, has_linear_head
from training.objectives import (
    IGNORED,
    losses_by_rows,
    losses_in_chunks,
    mask_tokens,
    masked_losses,
    sequence_losses,
    sequence_losses_of_head,
)
from training.spec import Objective

TINY = SHAPE | {"vocab_size": 64}
GPT2 = {"model_type": "gpt2", "vocab_size": 64, "n_embd": 16, "n_layer": 1, "n_head": 2}
by_rows, chunked = (partial(sequence_losses_of_head, head=head) for head in (losses_by_rows, losses_in_chunks))


@pytest.mark.parametrize("shape", [TINY, GPT2], ids=["tied", "gpt2"])
@pytest.mark.parametrize("other", [by_rows, chunked])
def test_the_loss_by_rows_or_chunks_and_its_gradient_are_those_of_the_logits(shape, other):
    model = build_model(shape, "eager", seed=0)
    assert has_linear_head(model)
    tokens = torch.randint(0, 64, (3, 9), generator=torch.Generator().manual_seed(0))
    gradients = []
    for losses in (sequence_losses, other):
        model.zero_grad()
        by_sequence = losses(model, tokens, "fp32")
        by_sequence.sum().backward()
        gradients.append([by_sequence.detach(), *(parameter.grad.clone() for parameter in model.parameters())])
    for logits, rows in zip(*gradients, strict=True):
        torch.testing.assert_close(logits, rows, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("losses", [sequence_losses, by_rows, chunked])
def test_losses_by_token_are_those_that_are_summed(losses):
    model = build_model(TINY, "eager", seed=0)
    tokens = torch.randint(0, 64, (3, 9), generator=torch.Generator().manual_seed(0))
    by_token = losses(model, tokens, "fp32", by_token=True)
    assert by_token.shape == (3, 8)
    assert torch.equal(by_token.sum(1), losses(model, tokens, "fp32"))
    # Of its own token each: another last token changes the last loss alone.
    tokens[:, -1] = (tokens[:, -1] + 1) % 64
    other = losses(model, tokens, "fp32", by_token=True)
    assert (by_token != other).sum(0).tolist() == [0] * 7 + [3]


@pytest.mark.parametrize(
    "scaled",
    [
        {"model_type": "cohere", "logit_scale": 0.5},
        {"model_type": "gemma2", "final_logit_softcapping": 0.05, "head_dim": 8},
    ],
)
def test_a_model_that_scales_or_caps_its_logits_has_no_linear_head(scaled):
    assert not has_linear_head(build_model({**TINY, **scaled}, "eager", seed=0))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("losses", [sequence_losses, by_rows, chunked])
def test_attention_within_documents_is_that_of_the_documents_alone(attention, losses):
    model = build_model(TINY, attention, seed=0)
    first, second = torch.tensor([[5, 9, 3, 0]]), torch.tensor([[8, 2, 7, 4, 6, 1]])
    together = torch.cat([first, second], dim=1)
    # The end of the first document predicts the start of the second, which neither holds alone.
    alone = losses(model, first, "fp32") + losses(model, second, "fp32")
    across = losses(model, torch.tensor([[5, 9, 3, 0, 8]]), "fp32") - losses(model, first, "fp32")
    apart = losses(model, together, "fp32", end_of_text=0)
    torch.testing.assert_close(apart, alone + across, rtol=1e-5, atol=1e-5)
    assert abs(losses(model, together, "fp32") - apart) > 1e-4


def test_masks_hide_the_same_number_of_tokens_and_know_no_batch():
    objective = Objective("masked", mask_share=0.15, mask_token=64)
    tokens = np.random.default_rng(0).integers(0, 64, (400, 40))
    pairs = mask_tokens(tokens, np.arange(400), objective, vocabulary=64, seed=3)
    predicted = pairs[:, 1] != IGNORED
    assert (predicted.sum(1) == objective.predictions(40)).all()
    assert (pairs[:, 1][predicted] == tokens[predicted]).all()
    assert (pairs[:, 0][~predicted] == tokens[~predicted]).all()
    hidden = pairs[:, 0][predicted]
    assert np.mean(hidden == 64) == pytest.approx(0.8, abs=0.03)
    assert np.mean(hidden == tokens[predicted]) == pytest.approx(0.1 + 0.1 / 64, abs=0.02)
    # Every position is chosen about as often.
    assert predicted.mean(0).min() > 0.08
    np.testing.assert_array_equal(mask_tokens(tokens[7:9], np.array([7, 8]), objective, 64, seed=3), pairs[7:9])
    assert (mask_tokens(tokens, np.arange(400), objective, 64, seed=4) != pairs).any()


def test_the_masked_loss_is_that_of_the_hidden_tokens():
    shape = TINY | {"model_type": "bert", "vocab_size": 65}
    model = build_model(shape, "eager", seed=0, objective="masked")
    tokens = np.random.default_rng(0).integers(0, 64, (3, 12))
    pairs = torch.from_numpy(mask_tokens(tokens, np.arange(3), Objective("masked", 0.25, 64), 64, seed=0))
    losses = masked_losses(model, pairs, "fp32")
    expected = model(input_ids=pairs[:, 0], labels=pairs[:, 1].contiguous()).loss
    torch.testing.assert_close(losses.sum() / 9, expected)
    by_token = masked_losses(model, pairs, "fp32", by_token=True)
    assert torch.equal(by_token.sum(1), losses)
    assert ((by_token == 0) == (pairs[:, 1] == IGNORED)).all()


def test_no_model_drops_at_random():
    model = build_model(GPT2, "eager", seed=0)
    assert all(module.p == 0 for module in model.modules() if isinstance(module, torch.nn.Dropout))
