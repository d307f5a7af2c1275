"""Language models by configuration or from a Hugging Face directory, in fp32, and their loss by sequence."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, PreTrainedModel
from transformers.utils.logging import disable_progress_bar

from training.spec import SpecError

# A bar for each checkpoint would bury a worker's log.
disable_progress_bar()


_CLASSES = {"causal": AutoModelForCausalLM, "masked": AutoModelForMaskedLM}


def build_model(model: Mapping[str, Any], attention: str, seed: int, *, objective: str = "causal") -> PreTrainedModel:
    """A new model with weights drawn from a seed.

    Args:
        model: the architecture's transformers configuration fields, with model_type.
        attention: sdpa or eager, as transformers names them.
        seed: of the weights; the same on every machine and for either attention.
        objective: causal or masked, which decides the head.

    Raises:
        SpecError: transformers does not know the model_type, refuses a field, or has no such head for it.
    """
    fields = dict(model)
    try:
        config = AutoConfig.for_model(fields.pop("model_type", ""), **fields)
    except (ValueError, TypeError) as error:
        raise SpecError(f"model: {str(error).splitlines()[0]}") from None
    for name, value in config.to_dict().items():
        if "drop" in name and isinstance(value, float):
            # A run is decided by its spec, and a loss is that of the model: GPT-2's and BERT's own default is a tenth.
            setattr(config, name, 0.0)
    torch.manual_seed(seed)
    try:
        # transformers 5 makes bf16 weights of a configuration that names bf16, unless told otherwise.
        return _CLASSES[objective].from_config(config, attn_implementation=attention, dtype=torch.float32)
    except ValueError as error:
        raise SpecError(f"model: no {objective} head for {config.model_type}: {str(error).splitlines()[0]}") from None


def model_from_directory(path: str | Path, attention: str, *, objective: str = "causal") -> PreTrainedModel:
    """A model with the weights of a local Hugging Face directory, as fp32.

    Raises:
        SpecError: no config.json there, or no weights that fit it.
    """
    read_model_directory(path)
    try:
        return _CLASSES[objective].from_pretrained(
            path,
            attn_implementation=attention,
            dtype=torch.float32,
            local_files_only=True,
            use_safetensors=True,
        )
    except (OSError, ValueError) as error:
        raise SpecError(f"{path}: {str(error).splitlines()[0]}") from None


def read_model_directory(path: str | Path) -> tuple[dict[str, Any], str]:
    """A Hugging Face directory's configuration and the fingerprint of its configuration and weights.

    Raises:
        SpecError: no config.json there, or no *.safetensors.
    """
    path = Path(path)
    if not (path / "config.json").is_file():
        raise SpecError(f"{path}: no config.json; a model directory holds config.json and model.safetensors")
    weights = sorted(path.glob("*.safetensors"))
    if not weights:
        raise SpecError(f"{path}: no *.safetensors; save the model with model.save_pretrained(...)")
    digest = hashlib.blake2b(digest_size=16)
    for file in [path / "config.json", *weights]:
        with open(file, "rb") as stream:
            while block := stream.read(1 << 22):
                digest.update(block)
    return json.loads((path / "config.json").read_text()), digest.hexdigest()


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
        end_of_text: token id behind each document, where attention and positions shall stop; None: nowhere.
        by_token: whether the predictions are not summed; here and in the functions below.

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
    """Cross-entropy of each sequence, in nats, the logit of each next token taken from its row of the head.

    The gradient then never scatters into the (n T, vocabulary) logits, which compiled code fuses badly.

    Args:
        hidden: (n, T, width) last hidden states.
        weight: (vocabulary, width) of the head.
        targets: (n, T) token ids.
        precision: as `sequence_losses`.

    Returns:
        Tensor (n,) of fp32.
    """
    with torch.autocast(hidden.device.type, torch.bfloat16, enabled=precision == "bf16"):
        logits = functional.linear(hidden, weight)
    of_next = (hidden.float() * functional.embedding(targets, weight)).sum(-1)
    return _summed(logits.float().logsumexp(-1) - of_next, by_token)


def sequence_losses_by_rows(
    model: PreTrainedModel,
    tokens: torch.Tensor,
    precision: str,
    end_of_text: int | None = None,
    *,
    by_token: bool = False,
    of_hidden: Callable[..., torch.Tensor] = losses_by_rows,
) -> torch.Tensor:
    """As `sequence_losses`, from the last hidden states by `losses_by_rows`, which may be compiled.

    For models that `has_linear_head` says yes of.
    """
    head = model.get_output_embeddings()
    assert head is not None
    with torch.autocast(tokens.device.type, torch.bfloat16, enabled=precision == "bf16"):
        hidden = model.base_model(**_inputs(tokens, end_of_text)).last_hidden_state
    return of_hidden(hidden, head.weight, tokens[:, 1:], precision, by_token)


def sequence_losses_chunked(
    model: PreTrainedModel,
    tokens: torch.Tensor,
    precision: str,
    end_of_text: int | None = None,
    *,
    by_token: bool = False,
) -> torch.Tensor:
    """As `sequence_losses`, but the logits are made and dropped in chunks, forward and backward.

    For large vocabularies: 4 x 2,048 predictions over 151,936 token ids are 5 GB of logits. For models that
    `has_linear_head` says yes of.
    """
    head = model.get_output_embeddings()
    assert head is not None
    with torch.autocast(tokens.device.type, torch.bfloat16, enabled=precision == "bf16"):
        hidden = model.base_model(**_inputs(tokens, end_of_text)).last_hidden_state
        # Autocast does not reach into it.
        weight = head.weight.to(hidden.dtype)
    options = torch.nn.LinearCrossEntropyOptions()
    losses = functional.linear_cross_entropy(
        hidden.flatten(0, 1), weight, tokens[:, 1:].flatten(), reduction="none", options=options
    )
    return _summed(losses.float().view(len(tokens), -1), by_token)


def masked_losses(
    model: torch.nn.Module, pairs: torch.Tensor, precision: str, *, by_token: bool = False
) -> torch.Tensor:
    """Cross-entropy of each sequence, summed over its hidden tokens, in nats.

    Args:
        model: a masked language model of transformers.
        pairs: (n, 2, T) inputs and targets, from `masking.masked`.
        precision: as `sequence_losses`.

    Returns:
        Tensor (n,) of fp32.
    """
    with torch.autocast(pairs.device.type, torch.bfloat16, enabled=precision == "bf16"):
        logits = model(input_ids=pairs[:, 0]).logits
    losses = functional.cross_entropy(logits.flatten(0, 1).float(), pairs[:, 1].flatten(), reduction="none")
    return _summed(losses.view(len(pairs), -1), by_token)


def document_positions(tokens: torch.Tensor, end_of_text: int) -> torch.Tensor:
    """Position of each token in its document, or in what the sequence holds of it.

    Args:
        tokens: (n, T) token ids.
        end_of_text: the last token of a document.

    Returns:
        (n, T), from 0.

    >>> document_positions(torch.tensor([[7, 7, 0, 7, 0, 0, 7]]), end_of_text=0).tolist()
    [[0, 1, 2, 0, 1, 0, 0]]
    """
    place = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    behind = functional.pad(tokens[:, :-1] == end_of_text, (1, 0))
    return place - torch.where(behind, place, 0).cummax(1).values


def _summed(losses: torch.Tensor, by_token: bool) -> torch.Tensor:
    return losses if by_token else losses.sum(1)


def _inputs(tokens: torch.Tensor, end_of_text: int | None) -> dict[str, Any]:
    inputs = {"input_ids": tokens[:, :-1], "use_cache": False}
    if end_of_text is None:
        return inputs
    # transformers keeps attention inside documents where it sees positions start again.
    return inputs | {"position_ids": document_positions(tokens[:, :-1], end_of_text)}


def has_linear_head(model: PreTrainedModel) -> bool:
    """Whether the logits are the last hidden states times the head's rows and nothing more: no bias, scale or cap."""
    head = model.get_output_embeddings()
    if head is None:
        return False
    tokens = torch.arange(8, device=model.device)[None] % model.config.vocab_size
    with torch.no_grad():
        logits = model(input_ids=tokens, use_cache=False).logits
        hidden = model.base_model(input_ids=tokens, use_cache=False).last_hidden_state
        return torch.allclose(logits, functional.linear(hidden, head.weight), atol=1e-6)
