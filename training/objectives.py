"""Training objectives: the cross-entropy of causal and of masked language models, by sequence."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional
from transformers import PreTrainedModel

from training.model import CAUSAL
from training.parameters import CHUNK
from training.sampling import GOLDEN, mixed
from training.spec import Objective

Losses = Callable[[torch.Tensor], torch.Tensor]
"""Loss function of a model: (n, T + 1) token ids, or (n, 2, T) inputs and targets of a masked objective -> (n,) summed
cross-entropy of each sequence, nats; or (n, T) by token."""

IGNORED = -100
"""Target of a position without prediction, as torch's cross-entropy expects it."""


def mask_tokens(
    tokens: np.ndarray, numbers: np.ndarray, objective: Objective, vocabulary: int, seed: int
) -> np.ndarray:
    """Inputs with hidden tokens and their targets (BERT, Devlin et al. 2019, section 3.1).

    The same number of tokens is predicted in each sequence: 80% are replaced by the mask token, 10% by a random token,
    10% stay. The masks depend on seed and sequence number only, not on batch or devices.

    Args:
        tokens, numbers: (n, T) token ids, and (n,) number of each sequence in the run's order.
        objective, seed: of the run.
        vocabulary: upper bound of the random tokens.

    Returns:
        (n, 2, T): inputs, and targets that are IGNORED where nothing is predicted.

    >>> pair = mask_tokens(np.arange(20).reshape(1, 20), np.array([0]), Objective("masked", 0.15, 99), 50, seed=0)
    >>> int((pair[0, 1] != IGNORED).sum())
    3
    """
    count, length = tokens.shape
    # The shift loses all bits of a seed but 24; of a seed that has no others the mixed rest is 0.
    rest = mixed(np.array([seed >> 24], np.uint64))
    position = np.uint64(seed) << np.uint64(40) ^ rest ^ numbers.astype(np.uint64)
    draws = mixed(mixed(position + GOLDEN)[:, None] + np.arange(length, dtype=np.uint64)[None] + GOLDEN)
    predicted = objective.predictions(length)
    chosen = np.argpartition(draws, predicted - 1, axis=1)[:, :predicted]
    rows = np.arange(count)[:, None]
    targets = np.full_like(tokens, IGNORED)
    targets[rows, chosen] = tokens[rows, chosen]
    second = mixed(draws[rows, chosen] + GOLDEN)
    random = (mixed(second + GOLDEN) % np.uint64(vocabulary)).astype(tokens.dtype)
    uniform = second / 2.0**64
    inputs = tokens.copy()
    inputs[rows, chosen] = np.where(
        uniform < 0.8, objective.mask_token, np.where(uniform < 0.9, random, tokens[rows, chosen])
    )
    return np.stack([inputs, targets], axis=1)


Head = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, str, bool], torch.Tensor]
"""(n, T, width) hidden states, (vocabulary, width) of the head, (n, T) token ids, precision, by_token -> losses."""


def sequence_losses(
    model: PreTrainedModel,
    tokens: torch.Tensor,
    precision: str,
    end_of_text: int | None = None,
    *,
    head: Head | None = None,
    by_token: bool = False,
) -> torch.Tensor:
    """Cross-entropy of each sequence, summed over its predictions, in nats.

    Args:
        model: a causal language model of transformers.
        tokens: (n, T + 1) token ids; row[1:] is predicted from row[:-1].
        precision: fp32, or bf16 for autocast; the cross-entropy is fp32 either way.
        end_of_text: token id after each document, where attention and positions restart; None: nowhere.
        head: what computes the losses; needs `model.has_linear_head`. None: the model's logits.
        by_token: return the loss of each prediction; here and in the functions below.

    Returns:
        Tensor (n,) of fp32, or (n, T) by token.
    """
    targets = tokens[:, 1:]
    with _autocast(tokens, precision):
        inputs = _inputs(model, tokens, end_of_text)
        output = (model if head is None else model.base_model)(**inputs)
    if head is None:
        return _cross_entropy(output.logits, targets, by_token)
    matrix = model.get_output_embeddings()
    assert matrix is not None
    return head(output.last_hidden_state, matrix.weight, targets, precision, by_token)


def masked_losses(
    model: torch.nn.Module, pairs: torch.Tensor, precision: str, *, by_token: bool = False
) -> torch.Tensor:
    """As `sequence_losses`, of a masked language model and of (n, 2, T) inputs and targets from `mask_tokens`.

    Summed over the hidden tokens; by token 0 where nothing is predicted.
    """
    with _autocast(pairs, precision):
        logits = model(input_ids=pairs[:, 0]).logits
    return _cross_entropy(logits, pairs[:, 1], by_token)


def losses_by_rows(
    hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, precision: str, by_token: bool
) -> torch.Tensor:
    """A `Head` that computes the target's logit from its row of the head.

    The gradient then does not scatter into the (n T, vocabulary) logits, which compiled code fuses badly.
    """
    with _autocast(hidden, precision):
        logits = functional.linear(hidden, weight)
    of_target = (hidden.float() * functional.embedding(targets, weight)).sum(-1)
    return _summed(logits.float().logsumexp(-1) - of_target, by_token)


def losses_in_chunks(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    targets: torch.Tensor,
    precision: str,
    by_token: bool,
    of_chunk: tuple[Callable[..., Any], Callable[..., Any]] | None = None,
) -> torch.Tensor:
    """A `Head` that computes the logits of `CHUNK` predictions at a time, and again in the backward pass.

    The logits of 4 x 2,048 predictions over 151,936 token ids are 5 GB, their gradient as many. `of_chunk` is what
    computes the losses of a chunk and its gradients, perhaps compiled; None: `chunk_losses` and `chunk_gradients`.
    """
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    chosen = of_chunk or (chunk_losses, chunk_gradients)
    losses = _InChunks.apply(hidden.flatten(0, 1), weight, targets.flatten(), dtype, *chosen)
    return _summed(losses.view(targets.shape), by_token)


class _InChunks(torch.autograd.Function):
    """Losses (k,) from (k, width) hidden states: one cast of the weight serves all chunks, their gradients sum in fp32.

    Autograd over chunks would cast the weight in each of them, or sum its gradient in the run's precision.
    """

    @staticmethod
    def forward(ctx, hidden, weight, targets, dtype, of_losses, of_gradients):
        cast, chunks = weight.to(dtype), zip(hidden.to(dtype).split(CHUNK), targets.split(CHUNK))
        # The backward pass comes next: keeping the cast takes no memory that it would not take itself.
        ctx.save_for_backward(hidden, cast, targets)
        ctx.dtype, ctx.of_weight, ctx.of_gradients = dtype, weight.dtype, of_gradients
        return torch.cat([of_losses(rows, cast, wanted) for rows, wanted in chunks])

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        hidden, cast, targets = ctx.saved_tensors
        total, of_hidden = torch.zeros_like(cast, dtype=torch.float32), []
        for rows, wanted, of_losses in zip(*(part.split(CHUNK) for part in (hidden.to(ctx.dtype), targets, gradient))):
            of_rows, total = ctx.of_gradients(rows, cast, wanted, of_losses, total)
            of_hidden.append(of_rows)
        return torch.cat(of_hidden).to(hidden.dtype), total.to(ctx.of_weight), None, None, None, None


def chunk_losses(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Losses (k,) of predictions, nats, from (k, width) hidden states; the product has their precision."""
    return functional.cross_entropy(functional.linear(hidden, weight).float(), targets, reduction="none")


def chunk_gradients(
    hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, of_losses: torch.Tensor, total: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """From gradients (k,) of `chunk_losses` those of the hidden states, and `total` with that of the weight added."""
    of_logits = functional.linear(hidden, weight).float().softmax(-1)
    is_target = torch.arange(len(weight), device=weight.device) == targets[:, None]
    # In place: each of these has as many numbers as the logits.
    of_logits.sub_(is_target.float()).mul_(of_losses[:, None])
    of_logits = of_logits.to(hidden.dtype)
    return of_logits @ weight, total + of_logits.t() @ hidden


def document_positions(tokens: torch.Tensor, end_of_text: int) -> torch.Tensor:
    """Position of each token in the part of its document that the sequence holds, (n, T) from 0.

    >>> document_positions(torch.tensor([[7, 7, 0, 7, 0, 0, 7]]), end_of_text=0).tolist()
    [[0, 1, 2, 0, 1, 0, 0]]
    """
    position = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    after_end = functional.pad(tokens[:, :-1] == end_of_text, (1, 0))
    return position - torch.where(after_end, position, 0).cummax(1).values


def _autocast(tensor: torch.Tensor, precision: str) -> torch.autocast:
    return torch.autocast(tensor.device.type, torch.bfloat16, enabled=precision == "bf16")


def _inputs(model: torch.nn.Module, tokens: torch.Tensor, end_of_text: int | None) -> dict[str, torch.Tensor | bool]:
    inputs: dict[str, torch.Tensor | bool] = {"input_ids": tokens[:, :-1], "use_cache": False}
    if end_of_text is None:
        return inputs
    # transformers keeps attention inside documents where positions start again, `CAUSAL` by the starts.
    position = document_positions(tokens[:, :-1], end_of_text)
    inputs["position_ids"] = position
    if getattr(model.config, "_attn_implementation", "") == CAUSAL:
        inputs["document_starts"] = torch.arange(position.shape[1], device=position.device) - position
    return inputs


def _cross_entropy(logits: torch.Tensor, targets: torch.Tensor, by_token: bool) -> torch.Tensor:
    losses = functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="none")
    return _summed(losses.view(len(logits), -1), by_token)


def _summed(losses: torch.Tensor, by_token: bool) -> torch.Tensor:
    return losses if by_token else losses.sum(1)
