"""Language models with fp32 weights, from a configuration or a Hugging Face directory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, PreTrainedModel
from transformers.utils.logging import disable_progress_bar

from training.spec import Architecture, SpecError

# A progress bar per checkpoint would flood a worker's log.
disable_progress_bar()

_CLASSES = {"causal": AutoModelForCausalLM, "masked": AutoModelForMaskedLM}


def build_model(model: Mapping[str, Any], attention: str, seed: int, *, objective: str = "causal") -> PreTrainedModel:
    """A new model with random weights.

    Args:
        model: the architecture's transformers configuration fields, with model_type.
        attention, objective: sdpa or eager; causal or masked, which decides the head.
        seed: of the weights, which are the same on every machine and for either attention.

    Raises:
        SpecError: transformers has no such model_type, field, or head for it.
    """
    fields = dict(model)
    try:
        config = AutoConfig.for_model(fields.pop("model_type", ""), **fields)
    except (ValueError, TypeError) as error:
        raise SpecError(f"model: {str(error).splitlines()[0]}") from None
    for name, value in config.to_dict().items():
        if "drop" in name and isinstance(value, float):
            # Dropout would make the loss random; GPT-2 and BERT have 0.1 by default.
            setattr(config, name, 0.0)
    torch.manual_seed(seed)
    try:
        # Without dtype, transformers 5 creates bf16 weights where the configuration names bf16.
        return _CLASSES[objective].from_config(config, attn_implementation=attention, dtype=torch.float32)
    except ValueError as error:
        raise SpecError(f"model: no {objective} head for {config.model_type}: {str(error).splitlines()[0]}") from None


def model_from_directory(path: str | Path, attention: str, *, objective: str = "causal") -> PreTrainedModel:
    """A model with the weights of a local Hugging Face directory, in fp32.

    Raises:
        SpecError: no config.json, or no weights that fit it.
    """
    read_model_directory(path)
    try:
        return _CLASSES[objective].from_pretrained(
            path, attn_implementation=attention, dtype=torch.float32, local_files_only=True, use_safetensors=True
        )
    except (OSError, ValueError) as error:
        raise SpecError(f"{path}: {str(error).splitlines()[0]}") from None


def read_model_directory(path: str | Path) -> tuple[Architecture, str]:
    """Configuration of a Hugging Face directory, and the fingerprint of its configuration and weights.

    Raises:
        SpecError: no config.json, or no *.safetensors.
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
            hashlib.file_digest(stream, lambda: digest)
    return json.loads((path / "config.json").read_text()), digest.hexdigest()


def non_finite_weight(model: PreTrainedModel) -> str:
    """What is wrong with the first weight that holds NaN or infinity; empty: nothing."""
    for name, weight in model.named_parameters():
        if wrong := int((~torch.isfinite(weight)).sum()):
            return f"{name}: {wrong:,} of {weight.numel():,} values are NaN or infinite; give an undamaged model"
    return ""


def has_linear_head(model: PreTrainedModel) -> bool:
    """Whether the logits are the last hidden states times the head's weight, without bias, scale or cap."""
    head = model.get_output_embeddings()
    if head is None:
        return False
    tokens = torch.arange(8, device=model.device)[None] % model.config.vocab_size
    with torch.no_grad():
        logits = model(input_ids=tokens, use_cache=False).logits
        hidden = model.base_model(input_ids=tokens, use_cache=False).last_hidden_state
        return torch.allclose(logits, functional.linear(hidden, head.weight), atol=1e-6)
