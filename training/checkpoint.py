"""Weights that are kept, as Hugging Face directories, and states to go on from; each whole or not there."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from training.devices.single import Devices
from training.durable import flush_folder, write_whole
from training.loading import absent
from training.spec import SpecError

_STATE = "state.safetensors"


class StateWriter:
    """Writes the states to go on from while training goes on, one at a time.

    All are dropped but the newest `keep` and those of the steps in `kept`.

    An error of a write is raised by the next call, or when the context ends.
    """

    def __init__(self, folder: Path, keep: int, kept: Collection[int] = ()) -> None:
        self._folder, self._keep, self._kept = folder, keep, kept
        self._thread = ThreadPoolExecutor(1)
        self._writing: Future[None] | None = None

    def __enter__(self) -> StateWriter:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.wait()
        finally:
            self._thread.shutdown()

    def write(self, step: int, tensors: dict[str, torch.Tensor]) -> None:
        """Begin to write the state after a step; from `full_state`, empty in processes that do not write."""
        self.wait()
        if tensors:
            self._writing = self._thread.submit(_save_state, self._folder, step, tensors, self._keep, self._kept)

    def wait(self) -> None:
        """Return when what was begun is on the disk."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()


def full_state(
    devices: Devices, first: bool, beside: Mapping[str, torch.Tensor] | None = None
) -> dict[str, torch.Tensor]:
    """Copies in memory of all weights and moments, whole and fp32, by parameter name, and of what else is told.

    The same for every kind of devices, so that a run may go on under another. Called by all processes; only the first
    gets the tensors, one parameter at a time, so that the devices never hold the whole.
    """
    tensors = {f"beside.{name}": value.clone() for name, value in (beside or {}).items()} if first else {}
    for name, parameter in devices.parameters.items():
        whole = {f"weight.{name}": devices.weight(parameter)}
        whole |= {f"optimizer.{name}.{key}": value for key, value in devices.moments(parameter).items()}
        if first:
            tensors |= {key: value.detach().to("cpu", copy=True).contiguous() for key, value in whole.items()}
    return tensors


def full_weights(devices: Devices, first: bool) -> dict[str, torch.Tensor]:
    """The weights of `full_state` without their prefix."""
    tensors = {}
    for name, parameter in devices.parameters.items():
        whole = devices.weight(parameter)
        if first:
            tensors[name] = whole.detach().cpu().contiguous()
    return tensors


def newest_state(folder: Path) -> Path | None:
    """The newest state of a run that is whole; one that was cut short is passed over for the one before."""
    return next((path for path in saved_states(folder) if is_whole(path)), None)


def whole_state(path: Path) -> Path:
    """A state that another run branches off.

    Raises:
        SpecError: it is not there, or not whole.
    """
    if not is_whole(path):
        raise SpecError(f"{path}: no complete state here; run its parent again")
    return path


def step_of(state: Path) -> int:
    """The step after which a state was saved."""
    return int(state.name.removeprefix("step-"))


def load_state_weights(state: Path, model: PreTrainedModel) -> None:
    """Load the weights of a state into a model that is not yet on its devices."""
    with safe_open(state / _STATE, "pt") as tensors:
        _load_weights(model, lambda name: tensors.get_tensor(f"weight.{name}"))


def load_state_moments(state: Path, devices: Devices) -> None:
    """Load the moments of a state into the optimizer of a model on its devices."""
    with safe_open(state / _STATE, "pt") as tensors:
        known = set(tensors.keys())
        for name, parameter in devices.parameters.items():
            keys = {key: f"optimizer.{name}.{key}" for key in ("step", "exp_avg", "exp_avg_sq")}
            # A state is not there for a parameter that has had no gradient yet.
            if keys["step"] in known:
                devices.set_moments(parameter, {key: tensors.get_tensor(place) for key, place in keys.items()})


def load_state_beside(state: Path) -> dict[str, torch.Tensor]:
    """What a state keeps beside weights and moments, by name."""
    with safe_open(state / _STATE, "pt") as tensors:
        names = [key for key in tensors.keys() if key.startswith("beside.")]  # noqa: SIM118
        return {name.removeprefix("beside."): tensors.get_tensor(name) for name in names}


def saved_states(folder: Path) -> list[Path]:
    """The states in a run's folder, newest first, whole or not."""
    return sorted((folder / "resume").glob("step-*"), key=step_of, reverse=True)


def save_weights(
    folder: Path, step: int, model: PreTrainedModel, tokenizer: Path, weights: dict[str, torch.Tensor] | None = None
) -> None:
    """Keep the weights after a step as a Hugging Face directory with the tokenizer.

    Args:
        folder: the run's.
        step: in the name.
        model: for its configuration, and its weights unless they are given.
        tokenizer: folder of its files.
        weights: of a model that does not hold them itself, from `full_weights`.
    """
    target = folder / "checkpoints" / f"step-{step}"
    if is_whole(target):
        return
    part = _part(folder / "checkpoints", step)
    # transformers has accelerate unwrap what it saves, which would load deepspeed to find that it is not its.
    with _disk_errors(part), absent("deepspeed"):
        model.save_pretrained(part, state_dict=weights)
    for file in tokenizer.iterdir():
        shutil.copy(file, part / file.name)
    _publish(part, target, ["config.json", "model.safetensors"])


def load_weights(path: Path, model: PreTrainedModel) -> None:
    """Load the weights of a Hugging Face directory into a model of the same architecture.

    Raises:
        SpecError: the directory is not complete, or its weights have other shapes.
    """
    if not is_whole(path):
        done = path.parents[1] / "DONE"
        raise SpecError(f"{path}: no complete checkpoint here; remove {done} and give the same command again")
    _load_weights(model, load_file(path / "model.safetensors").get)


def copy_weights(source: PreTrainedModel, model: PreTrainedModel) -> None:
    """Give a model the weights of another of the same architecture."""
    _load_weights(model, dict(source.named_parameters()).get)


def is_whole(path: Path) -> bool:
    """Whether a checkpoint folder is complete: DONE is there and its files have the content that DONE says."""
    try:
        expected = json.loads((path / "DONE").read_text())
        return all(_digest(path / name) == digest for name, digest in expected.items())
    except (OSError, ValueError):
        return False


def _save_state(folder: Path, step: int, tensors: dict[str, torch.Tensor], keep: int, kept: Collection[int]) -> None:
    part = _part(folder / "resume", step)
    with _disk_errors(part):
        save_file(tensors, part / _STATE, metadata={"step": str(step)})
    _publish(part, folder / "resume" / f"step-{step}", [_STATE])
    for old in [state for state in saved_states(folder) if step_of(state) not in kept][keep:]:
        shutil.rmtree(old)


def _load_weights(model: PreTrainedModel, tensor: Callable[[str], torch.Tensor | None]) -> None:
    with torch.no_grad():
        # A head tied to the embedding is the same tensor under two names; named_parameters has it once.
        for name, parameter in model.named_parameters():
            value = tensor(name)
            if value is None or value.shape != parameter.shape:
                found = "missing" if value is None else tuple(value.shape)
                raise SpecError(f"checkpoint: {name} is {found}, the model has {tuple(parameter.shape)}")
            parameter.copy_(value)


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
