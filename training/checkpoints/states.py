"""States to resume from: weights and moments of a run, which go on on any kind and number of devices."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from training import domain_weights
from training.checkpoints.folder import digest, is_whole, new_part, publish
from training.checkpoints.pieces import Place, StateFile, open_tensors
from training.checkpoints.weights import set_weights
from training.devices.group import ALONE, Group
from training.devices.single import Devices
from training.durable import leading_lines, numbered
from training.evaluation_steps import evaluation_steps
from training.spec import RunSpec, SpecError


def held_state(devices: Devices, group: Group, extra: Mapping[str, torch.Tensor] | None = None) -> StateFile:
    """Copies in memory of the weights and moments that this process holds, fp32; the first has buffers and `extra` too.

    Sharded kinds write a file for each process of a replica, with flat pieces. The other kinds write one file, of the
    first process; the others get an empty one. Nothing is sent between processes.
    """
    if devices.is_copy or not (devices.sharded or group.first):
        return StateFile()
    tensors: dict[str, torch.Tensor] = {}
    if group.first:
        tensors |= {f"extra.{name}": value.clone() for name, value in (extra or {}).items()}
        tensors |= {f"weight.{name}": value.to("cpu", copy=True) for name, value in devices.buffers.items()}
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
    """The path of a state; raises SpecError where it is missing or not complete."""
    if not is_whole(path):
        raise SpecError(f"{path}: no complete state here; run its parent again")
    return path


def step_of(state: Path) -> int:
    """The number of steps after which a state was saved."""
    return int(state.name.removeprefix("step-"))


def load_state_weights(state: Path, model: PreTrainedModel, devices: Devices | None = None) -> None:
    """Load the weights of a state into a model; `devices` as of `weights.set_weights`."""
    with open_tensors(state) as tensors:
        set_weights(model, lambda name: tensors.read_whole(f"weight.{name}"), devices)


def load_state_moments(state: Path, devices: Devices) -> None:
    """Load the optimizer moments of a state into a model on its devices; each process reads those of its pieces."""
    with open_tensors(state) as tensors:
        for name, parameter in devices.parameters.items():
            piece, prefix = devices.piece(parameter), f"optimizer.{name}"
            # A parameter without a gradient so far has no moments.
            if (step := tensors.read_whole(f"{prefix}.step")) is None:
                continue
            held = {key: (piece.start, piece.weight.numel()) for key in ("exp_avg", "exp_avg_sq")}
            moments = {key: tensors.read_range(f"{prefix}.{key}", *place) for key, place in held.items()}
            devices.set_moments(parameter, {"step": step, **moments})


def load_state_extra(state: Path | None) -> dict[str, torch.Tensor]:
    """The extra tensors of a state, by name; empty without one."""
    if state is None:
        return {}
    with open_tensors(state) as tensors:
        found = {name: tensors.read_whole(name) for name in tensors.shapes if name.startswith("extra.")}
        return {name.removeprefix("extra."): tensor for name, tensor in found.items() if tensor is not None}


def saved_states(folder: Path) -> list[Path]:
    """All states in a run's folder, newest first, complete or not."""
    return [*numbered(folder / "resume", "step-*").values()][::-1]


def resumable_state(spec: RunSpec, folder: Path) -> Path | None:
    """The newest complete state of a run whose earlier lines are all in its files; None: there is none.

    A state knows nothing of the points before it. If a disk error or a person shortened points.jsonl, the steps of the
    missing lines are trained again, and give the same bytes.
    """
    evaluated = evaluation_steps(spec.evaluation, spec.steps)
    points = [{"step": step, "corpus": corpus} for step in evaluated for corpus in spec.corpora]
    # The evaluation at the step of a state is repeated.
    last = _first_missing(folder / "points.jsonl", points, spec.steps)
    if spec.reweighting is not None:
        weights = [{"step": step} for step in domain_weights.logged_steps(spec.steps)]
        # The line of a step is on disk before its state.
        last = min(last, _first_missing(folder / domain_weights.PATH, weights, spec.steps + 1) - 1)
    return next((state for state in saved_states(folder) if step_of(state) <= last and is_whole(state)), None)


def _first_missing(path: Path, lines: Sequence[Mapping[str, Any]], none: int) -> int:
    """Step of the first expected line that a file lacks; `none` where it has all."""
    known = leading_lines(path, lines)
    return lines[known]["step"] if known < len(lines) else none


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


class StateWriter:
    """Writes resume states in the background, one at a time; keeps the newest `keep` and those of the steps in `kept`.

    An error of a write, of any process, is raised by the first process' next call, or when the context ends.

    Args:
        folder: of the run.
        keep, kept: see above.
        group: those that write together, each its file, with no other call of theirs at the same time; ALONE in a
            process that writes alone.
    """

    def __init__(self, folder: Path, keep: int, kept: Collection[int] = (), group: Group = ALONE) -> None:
        self._folder, self._keep, self._kept, self._group = folder, keep, kept, group
        self._thread = ThreadPoolExecutor(1)
        self._writing: Future[None] | None = None

    def __enter__(self) -> StateWriter:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.wait()
        finally:
            self._thread.shutdown()

    def write(self, step: int, file: StateFile) -> None:
        """Start to write the state after a step: what `held_state` returned."""
        self.wait()
        if file.name or self._group.count > 1:
            self._writing = self._thread.submit(self._write, step, file)

    def wait(self) -> None:
        """Wait until the last state is on disk, with the files of all processes in the first one."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def _write(self, step: int, file: StateFile) -> None:
        group, folder = self._group, self._folder / "resume"
        part = group.broadcast(new_part, folder, step)
        try:
            saved = group.collect(lambda: {file.name: digest(file.save(part, step), flush=True)} if file.name else {})
            if group.first:
                publish(part, folder / f"step-{step}", {name: each for one in saved for name, each in one.items()})
        except BaseException:
            if group.first:
                shutil.rmtree(part, ignore_errors=True)
            raise
        if group.first:
            states = [state for state in saved_states(self._folder) if step_of(state) not in self._kept]
            for old in states[self._keep :]:
                shutil.rmtree(old)
