"""Weights of a model: Hugging Face directories, and copies between models."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from transformers import PreTrainedModel

from training.checkpoints.folder import digest, disk_errors, is_whole, new_part, publish
from training.checkpoints.pieces import open_tensors
from training.devices.single import Devices
from training.loading import absent
from training.model import kept_buffers, model_from_directory
from training.spec import SpecError


def full_weights(devices: Devices, first: bool) -> dict[str, torch.Tensor]:
    """All weights by name, full and fp32, in memory: all processes call this, only the first gets them."""
    gathered = ((name, devices.weight(parameter)) for name, parameter in devices.parameters.items())
    return {name: weight.detach().cpu().contiguous() for name, weight in gathered if first}


def save_weights(
    folder: Path,
    step: int,
    model: PreTrainedModel,
    tokenizer: Mapping[str, bytes],
    weights: dict[str, torch.Tensor] | None = None,
) -> None:
    """Save the weights after a step in the run's folder, as a Hugging Face directory with the tokenizer.

    `tokenizer` is name -> content of its files; `weights` are those of `full_weights`, for a model that does not hold
    its full weights.
    """
    target = folder / "checkpoints" / f"step-{step}"
    if is_whole(target):
        return
    if weights is not None:
        weights = weights | {name: buffer.cpu() for name, buffer in kept_buffers(model).items()}
    part = new_part(folder / "checkpoints", step)
    try:
        # transformers lets accelerate unwrap the model, which would import deepspeed.
        with disk_errors(part), absent("deepspeed"):
            model.save_pretrained(part, state_dict=weights)
        for name, content in tokenizer.items():
            (part / name).write_bytes(content)
        digests = {file.name: digest(file, flush=True) for file in part.iterdir()}
        # Beyond 50 GB they are several files, and the index that names them.
        read = {name: value for name, value in digests.items() if name == "config.json" or ".safetensors" in name}
        publish(part, target, read)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def load_weights(path: Path, model: PreTrainedModel, devices: Devices | None = None) -> None:
    """Load kept weights into a model of the same architecture; `devices` as of `set_weights`.

    Raises:
        SpecError: the directory is not complete, or its weights have other shapes.
    """
    if not is_whole(path):
        done = path.parents[1] / "DONE"
        raise SpecError(f"{path}: no complete checkpoint here; remove {done} and give the same command again")
    with open_tensors(path) as tensors:
        if dict(model.named_parameters()).keys() <= tensors.shapes.keys():
            set_weights(model, tensors.read_whole, devices)
            return
    # transformers saves the experts of a layer one by one, and joins them when it loads.
    take_weights(model_from_directory(path, "eager"), model, devices)


def take_weights(source: PreTrainedModel, model: PreTrainedModel, devices: Devices | None = None) -> None:
    """Move the weights of one model into another of the same architecture; the first one loses them, one by one.

    `devices` as of `set_weights`.
    """
    weights = dict(source.named_parameters()) | kept_buffers(source)
    for module in source.modules():
        module._parameters.clear()
    set_weights(model, lambda name: weights.pop(name, None), devices)


def set_weights(
    model: PreTrainedModel, tensor: Callable[[str], torch.Tensor | None], devices: Devices | None = None
) -> None:
    """Set each weight and kept buffer of a model to the tensor of its name, on `devices` this process' pieces alone.

    Raises:
        SpecError: a tensor is missing or has another shape.
    """
    with torch.no_grad():
        # named_parameters lists a head tied to the embedding once.
        for name, parameter in [*model.named_parameters(), *kept_buffers(model).items()]:
            value = tensor(name)
            if value is None or value.shape != parameter.shape:
                actual = "missing" if value is None else tuple(value.shape)
                raise SpecError(f"checkpoint: {name} is {actual}, the model has {tuple(parameter.shape)}")
            if devices is None or not isinstance(parameter, torch.nn.Parameter):
                parameter.copy_(value)
                continue
            piece = devices.piece(parameter)
            own = value.reshape(-1)[piece.start : piece.start + piece.weight.numel()]
            piece.weight.copy_(own.view_as(piece.weight))
