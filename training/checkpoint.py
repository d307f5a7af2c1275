"""Weights that are kept, as Hugging Face directories, and states to go on from; each whole or not there."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from training.durable import flush_folder, write_whole
from training.spec import SpecError

_STATE = "state.safetensors"


def save_state(folder: Path, step: int, model: PreTrainedModel, optimizer: torch.optim.Optimizer, keep: int) -> None:
    """Save weights and optimizer after a step, then drop all states but the newest `keep`."""
    tensors = {f"weight.{name}": tensor for name, tensor in _weights(model).items()}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state[parameter].items():
            tensors[f"optimizer.{name}.{key}"] = value.detach().contiguous()
    part = _part(folder / "resume", step)
    with _disk_errors(part):
        save_file(tensors, part / _STATE, metadata={"step": str(step)})
    _publish(part, folder / "resume" / f"step-{step}", [_STATE])
    for old in saved_states(folder)[keep:]:
        shutil.rmtree(folder / "resume" / f"step-{old}")


def load_state(folder: Path, model: PreTrainedModel, optimizer: torch.optim.Optimizer) -> int | None:
    """Load the newest state that is whole; one that was cut short is passed over for the one before.

    Returns:
        Its step, or None when there is no state.
    """
    for step in saved_states(folder):
        path = folder / "resume" / f"step-{step}"
        if not is_whole(path):
            continue
        tensors = load_file(path / _STATE)
        _load_weights(model, {key[7:]: value for key, value in tensors.items() if key.startswith("weight.")})
        for name, parameter in model.named_parameters():
            prefix = f"optimizer.{name}."
            # A state is not there for a parameter that has had no gradient yet.
            if state := {key[len(prefix) :]: value for key, value in tensors.items() if key.startswith(prefix)}:
                optimizer.state[parameter] = state
        return step
    return None


def saved_states(folder: Path) -> list[int]:
    """Steps of the states in a run's folder, newest first, whole or not."""
    return sorted((int(path.name[5:]) for path in (folder / "resume").glob("step-*")), reverse=True)


def save_weights(folder: Path, step: int, model: PreTrainedModel, tokenizer: Path) -> None:
    """Keep the weights after a step as a Hugging Face directory with the tokenizer."""
    target = folder / "checkpoints" / f"step-{step}"
    if is_whole(target):
        return
    part = _part(folder / "checkpoints", step)
    with _disk_errors(part):
        model.save_pretrained(part)
    for file in tokenizer.iterdir():
        shutil.copy(file, part / file.name)
    _publish(part, target, ["config.json", "model.safetensors"])


def load_weights(path: Path, model: PreTrainedModel) -> None:
    """Load the weights of a Hugging Face directory into a model of the same architecture.

    Raises:
        SpecError: the directory is not complete, or its weights have other shapes.
    """
    if not is_whole(path):
        raise SpecError(f"{path}: no complete checkpoint here; run its parent again")
    _load_weights(model, load_file(path / "model.safetensors"))


def copy_weights(source: PreTrainedModel, model: PreTrainedModel) -> None:
    """Give a model the weights of another of the same architecture."""
    _load_weights(model, _weights(source))


def is_whole(path: Path) -> bool:
    """Whether a checkpoint folder is complete: DONE is there and its files have the content that DONE says."""
    try:
        expected = json.loads((path / "DONE").read_text())
        return all(_digest(path / name) == digest for name, digest in expected.items())
    except (OSError, ValueError):
        return False


def _weights(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    # A head tied to the embedding is the same tensor under two names; named_parameters has it once.
    return {name: parameter.detach().contiguous() for name, parameter in model.named_parameters()}


def _load_weights(model: PreTrainedModel, tensors: dict[str, torch.Tensor]) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name not in tensors or tensors[name].shape != parameter.shape:
                found = tuple(tensors[name].shape) if name in tensors else "missing"
                raise SpecError(f"checkpoint: {name} is {found}, the model has {tuple(parameter.shape)}")
            parameter.copy_(tensors[name])


def _part(folder: Path, step: int) -> Path:
    part = folder / f".step-{step}.{secrets.token_hex(4)}.part"
    part.mkdir(parents=True)
    return part


def _publish(part: Path, target: Path, checked: list[str]) -> None:
    for file in part.iterdir():
        with open(file, "rb") as stream:
            os.fsync(stream.fileno())
    write_whole(part / "DONE", json.dumps({name: _digest(part / name) for name in checked}) + "\n")
    if target.exists():
        shutil.rmtree(target)
    os.rename(part, target)
    flush_folder(target.parent)


@contextlib.contextmanager
def _disk_errors(part: Path) -> Iterator[None]:
    try:
        yield
    except SafetensorError as error:
        shutil.rmtree(part, ignore_errors=True)
        # It hides what the kernel said, such as a full disk, in its text.
        if code := re.search(r"os error (\d+)", str(error)):
            raise OSError(int(code.group(1)), os.strerror(int(code.group(1))), str(part)) from error
        raise


def _digest(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
