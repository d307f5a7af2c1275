"""States to resume from: weights and moments of a run, which go on on any kind and number of devices."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

import torch
from transformers import PreTrainedModel

from training.checkpoints.folder import is_whole
from training.checkpoints.pieces import Place, StateFile, opened_state
from training.checkpoints.weights import set_weights
from training.devices.group import Group
from training.devices.single import Devices
from training.spec import SpecError


def held_state(devices: Devices, group: Group, extra: Mapping[str, torch.Tensor] | None = None) -> StateFile:
    """Copies in memory of the weights and moments that this process holds, fp32, and in the first one of `extra`.

    Sharded kinds write a file per process, with flat pieces. The other kinds write one file, of the first process; the
    others get an empty one. Nothing is sent between processes.
    """
    if not (devices.sharded or group.first):
        return StateFile()
    tensors = {f"extra.{name}": value.clone() for name, value in (extra or {}).items()} if group.first else {}
    places: dict[str, Place] = {}
    for name, parameter in devices.parameters.items():
        piece = devices.piece(parameter)
        if not piece.weight.numel():
            continue
        held = {f"weight.{name}": piece.weight}
        held |= {f"optimizer.{name}.{key}": value for key, value in piece.moments.items()}
        if devices.sharded:
            held = {key: value.reshape(-1) if value.ndim else value for key, value in held.items()}
            places |= {key: (piece.start, piece.shape) for key, value in held.items() if value.ndim}
        tensors |= {key: value.detach().to("cpu", copy=True).contiguous() for key, value in held.items()}
    return StateFile(f"state-{group.rank}.safetensors" if devices.sharded else "state.safetensors", tensors, places)


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
    with opened_state(state) as tensors:
        set_weights(model, lambda name: tensors.read_whole(f"weight.{name}"))


def load_state_moments(state: Path, devices: Devices) -> None:
    """Load the optimizer moments of a state into a model on its devices; each process reads those of its pieces."""
    with opened_state(state) as tensors:
        for name, parameter in devices.parameters.items():
            piece, prefix = devices.piece(parameter), f"optimizer.{name}"
            # A parameter without a gradient so far has no moments.
            if (step := tensors.read_whole(f"{prefix}.step")) is None:
                continue
            held = {key: (piece.start, piece.weight.numel()) for key in ("exp_avg", "exp_avg_sq")}
            moments = {key: tensors.read_range(f"{prefix}.{key}", *place) for key, place in held.items()}
            devices.set_moments(parameter, {"step": step, **moments})


def load_state_extra(state: Path) -> dict[str, torch.Tensor]:
    """The extra tensors of a state, by name."""
    with opened_state(state) as tensors:
        names = [name for name in tensors.names if name.startswith("extra.")]
        found = {name.removeprefix("extra."): tensors.read_whole(name) for name in names}
        return {name: tensor for name, tensor in found.items() if tensor is not None}


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
