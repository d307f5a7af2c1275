"""Training objectives: the cross-entropy of causal and of masked language models, by sequence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from transformers import PreTrainedModel

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
    place = np.uint64(seed) << np.uint64(40) ^ numbers.astype(np.uint64)
    draws = _mixed(_mixed(place)[:, None] + np.arange(length, dtype=np.uint64)[None])
    predicted = objective.predictions(length)
    chosen = np.argpartition(draws, predicted - 1, axis=1)[:, :predicted]
    rows = np.arange(count)[:, None]
    targets = np.full_like(tokens, IGNORED)
    targets[rows, chosen] = tokens[rows, chosen]
    second = _mixed(draws[rows, chosen])
    random = (_mixed(second) % np.uint64(vocabulary)).astype(tokens.dtype)
    uniform = second / 2.0**64
    inputs = tokens.copy()
    inputs[rows, chosen] = np.where(
        uniform < 0.8, objective.mask_token, np.where(uniform < 0.9, random, tokens[rows, chosen])
    )
    return np.stack([inputs, targets], axis=1)


def sequence_losses(
    model: torch.nn.Module,
    tokens: torch.Tensor,
    precision: str,
    end_of_text: int | None = None,
    *,
    by_token: bool = False,
) -> torch.Tensor:
    """Cross-entropy of each sequence, summed over its predictions, in nats.

    Args:
        model: a causal language model of transformers.
        tokens: (n, T + 1) token ids; row[1:] is predicted from row[:-1].
        precision: fp32, or bf16 for autocast; the cross-entropy is fp32 either way.
        end_of_text: token id after each document, where attention and positions restart; None: nowhere.
        by_token: return the loss of each prediction; here and in the functions below.

    Returns:
        Tensor (n,) of fp32, or (n, T) by token.
    """
    with torch.autocast(tokens.device.type, torch.bfloat16, enabled=precision == "bf16"):
        logits = model(**_inputs(tokens, end_of_text)).logits
    losses = functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten(), reduction="none")
    return _summed(losses.view(len(tokens), -1), by_token)


def losses_by_rows(
    hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, precision: str, by_token: bool = False
) -> torch.Tensor:
    """Cross-entropy of each sequence, in nats, with the target's logit computed from its row of the head.

    The gradient then does not scatter into the (n T, vocabulary) logits, which compiled code fuses badly.

    Args:
        hidden, weight: (n, T, width) last hidden states, (vocabulary, width) of the head.
        targets: (n, T) token ids.
        precision, by_token: as `sequence_losses`.
    """
    with torch.autocast(hidden.device.type, torch.bfloat16, enabled=precision == "bf16"):
        logits = functional.linear(hidden, weight)
    of_target = (hidden.float() * functional.embedding(targets, weight)).sum(-1)
    return _summed(logits.float().logsumexp(-1) - of_target, by_token)


def sequence_losses_by_rows(
    model: PreTrainedModel,
    tokens: torch.Tensor,
    precision: str,
    end_of_text: int | None = None,
    *,
    by_token: bool = False,
    of_hidden: Callable[..., torch.Tensor] = losses_by_rows,
) -> torch.Tensor:
    """As `sequence_losses`, by `losses_by_rows` or a compiled version of it; needs `model.has_linear_head`."""
    hidden, weight = _hidden_and_head(model, tokens, precision, end_of_text)
    return of_hidden(hidden, weight, tokens[:, 1:], precision, by_token)


def sequence_losses_chunked(
    model: PreTrainedModel,
    tokens: torch.Tensor,
    precision: str,
    end_of_text: int | None = None,
    *,
    by_token: bool = False,
) -> torch.Tensor:
    """As `sequence_losses`, with the logits computed and dropped in chunks; needs `model.has_linear_head`.

    For large vocabularies: the logits of 4 x 2,048 predictions over 151,936 token ids are 5 GB.
    """
    hidden, weight = _hidden_and_head(model, tokens, precision, end_of_text)
    losses = functional.linear_cross_entropy(
        hidden.flatten(0, 1),
        # Autocast does not reach into this function.
        weight.to(hidden.dtype),
        tokens[:, 1:].flatten(),
        reduction="none",
        options=torch.nn.LinearCrossEntropyOptions(),
    )
    return _summed(losses.float().view(len(tokens), -1), by_token)


def masked_losses(
    model: torch.nn.Module, pairs: torch.Tensor, precision: str, *, by_token: bool = False
) -> torch.Tensor:
    """As `sequence_losses`, of a masked language model and of (n, 2, T) inputs and targets from `mask_tokens`.

    Summed over the hidden tokens; by token 0 where nothing is predicted.
    """
    with torch.autocast(pairs.device.type, torch.bfloat16, enabled=precision == "bf16"):
        logits = model(input_ids=pairs[:, 0]).logits
    losses = functional.cross_entropy(logits.flatten(0, 1).float(), pairs[:, 1].flatten(), reduction="none")
    return _summed(losses.view(len(pairs), -1), by_token)


def document_positions(tokens: torch.Tensor, end_of_text: int) -> torch.Tensor:
    """Position of each token in the part of its document that the sequence holds, (n, T) from 0.

    >>> document_positions(torch.tensor([[7, 7, 0, 7, 0, 0, 7]]), end_of_text=0).tolist()
    [[0, 1, 2, 0, 1, 0, 0]]
    """
    place = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    after_end = functional.pad(tokens[:, :-1] == end_of_text, (1, 0))
    return place - torch.where(after_end, place, 0).cummax(1).values


def _hidden_and_head(
    model: PreTrainedModel, tokens: torch.Tensor, precision: str, end_of_text: int | None
) -> tuple[torch.Tensor, torch.Tensor]:
    head = model.get_output_embeddings()
    assert head is not None
    with torch.autocast(tokens.device.type, torch.bfloat16, enabled=precision == "bf16"):
        return model.base_model(**_inputs(tokens, end_of_text)).last_hidden_state, head.weight


def _inputs(tokens: torch.Tensor, end_of_text: int | None) -> dict[str, Any]:
    inputs = {"input_ids": tokens[:, :-1], "use_cache": False}
    if end_of_text is None:
        return inputs
    # transformers keeps attention inside documents where positions start again.
    return inputs | {"position_ids": document_positions(tokens[:, :-1], end_of_text)}


def _summed(losses: torch.Tensor, by_token: bool) -> torch.Tensor:
    return losses if by_token else losses.sum(1)


def _mixed(values: np.ndarray) -> np.ndarray:
    # SplitMix64's finalizer (Steele et al. 2014): the same on every machine, without generator state.
    with np.errstate(over="ignore"):
        values = values + np.uint64(0x9E3779B97F4A7C15)
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
