"""Checkpoints of weights as Hugging Face directories, and resume states; each complete or absent."""

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
    """Writes resume states in the background, one at a time; keeps the newest `keep` and those of the steps in `kept`.

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
        """Start to write the state after a step: tensors of `full_state`, empty in processes that do not write."""
        self.wait()
        if tensors:
            self._writing = self._thread.submit(_save_state, self._folder, step, tensors, self._keep, self._kept)

    def wait(self) -> None:
        """Wait until the last state is on disk."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()


def full_state(
    devices: Devices, first: bool, extra: Mapping[str, torch.Tensor] | None = None
) -> dict[str, torch.Tensor]:
    """Copies in memory of all weights and moments, full and fp32, and of `extra` tensors.

    The format is the same for every kind of devices, so that a run can continue on another kind. All processes call
    this; only the first gets the tensors, gathered one parameter at a time.
    """
    tensors = {f"extra.{name}": value.clone() for name, value in (extra or {}).items()} if first else {}
    for name, parameter in devices.parameters.items():
        full = {f"weight.{name}": devices.weight(parameter)}
        full |= {f"optimizer.{name}.{key}": value for key, value in devices.moments(parameter).items()}
        if first:
            tensors |= {key: value.detach().to("cpu", copy=True).contiguous() for key, value in full.items()}
    return tensors


def full_weights(devices: Devices, first: bool) -> dict[str, torch.Tensor]:
    """The weights of `full_state` without their prefix."""
    gathered = ((name, devices.weight(parameter)) for name, parameter in devices.parameters.items())
    return {name: weight.detach().cpu().contiguous() for name, weight in gathered if first}


def whole_state(path: Path) -> Path:
    """The path of a state, checked to be complete.

    Raises:
        SpecError: it is missing or not complete.
    """
    if not is_whole(path):
        raise SpecError(f"{path}: no complete state here; run its parent again")
    return path


def step_of(state: Path) -> int:
    """The number of steps after which a state was saved."""
    return int(state.name.removeprefix("step-"))


def load_state_weights(state: Path, model: PreTrainedModel) -> None:
    """Load the weights of a state into a model before it is placed on its devices."""
    with safe_open(state / _STATE, "pt") as tensors:
        _load_weights(model, lambda name: tensors.get_tensor(f"weight.{name}"))


def load_state_moments(state: Path, devices: Devices) -> None:
    """Load the optimizer moments of a state into a model on its devices."""
    with safe_open(state / _STATE, "pt") as tensors:
        known = set(tensors.keys())
        for name, parameter in devices.parameters.items():
            keys = {key: f"optimizer.{name}.{key}" for key in ("step", "exp_avg", "exp_avg_sq")}
            # A parameter without a gradient so far has no moments.
            if keys["step"] in known:
                devices.set_moments(parameter, {key: tensors.get_tensor(place) for key, place in keys.items()})


def load_state_extra(state: Path) -> dict[str, torch.Tensor]:
    """The extra tensors of a state, by name."""
    with safe_open(state / _STATE, "pt") as tensors:
        names = [key for key in tensors.keys() if key.startswith("extra.")]  # noqa: SIM118
        return {name.removeprefix("extra."): tensors.get_tensor(name) for name in names}


def saved_states(folder: Path) -> list[Path]:
    """All states in a run's folder, newest first, complete or not."""
    return sorted((folder / "resume").glob("step-*"), key=step_of, reverse=True)


def drop_states(folder: Path, kept: Collection[int]) -> None:
    """Delete the states of a run that is done, but those of the steps in `kept`: one is three times the weights.

    Those that a kill left half written, of states and of checkpoints, go too.
    """
    dropped = [state for state in saved_states(folder) if step_of(state) not in kept]
    for path in (*dropped, *folder.glob("*/.step-*.part")):
        shutil.rmtree(path, ignore_errors=True)


def drop_later_states(folder: Path, step: int) -> None:
    """Delete the states after a step: a run that resumes before them would take them for the newest of its own."""
    for state in saved_states(folder):
        if step_of(state) > step:
            shutil.rmtree(state)


def save_weights(
    folder: Path, step: int, model: PreTrainedModel, tokenizer: Path, weights: dict[str, torch.Tensor] | None = None
) -> None:
    """Save the weights after a step in the run's folder, as a Hugging Face directory with the tokenizer.

    `weights` are those of `full_weights`, for a model that does not hold its full weights.
    """
    target = folder / "checkpoints" / f"step-{step}"
    if is_whole(target):
        return
    part = _part(folder / "checkpoints", step)
    # transformers lets accelerate unwrap the model, which would import deepspeed.
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
    """Copy the weights of one model into another of the same architecture."""
    _load_weights(model, dict(source.named_parameters()).get)


def is_whole(path: Path) -> bool:
    """Whether a checkpoint folder is complete: it has DONE, and its files have the hashes in DONE."""
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
        # named_parameters lists a head tied to the embedding once.
        for name, parameter in model.named_parameters():
            value = tensor(name)
            if value is None or value.shape != parameter.shape:
                actual = "missing" if value is None else tuple(value.shape)
                raise SpecError(f"checkpoint: {name} is {actual}, the model has {tuple(parameter.shape)}")
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
        # It holds the system's error, such as a full disk, in its text only.
        if code := re.search(r"os error (\d+)", str(error)):
            raise OSError(int(code.group(1)), os.strerror(int(code.group(1))), str(part)) from error
        raise


def _digest(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
