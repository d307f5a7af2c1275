"""The files of a state: each is written by one process, and holds tensors or pieces of tensors.

A piece is a range of a flattened tensor. FSDP2 gives each process some rows of a parameter, ZeRO a range of a parameter
or of all of them in a row: both are such ranges, so any number of processes can read what any other has written.
"""

import contextlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from training.checkpoints.folder import disk_errors
from training.durable import read_json
from training.spec import SpecError

Place = tuple[int, tuple[int, ...]]
"""Where a piece starts in the flattened tensor, and the shape of the whole tensor."""


@dataclass(frozen=True)
class StateFile:
    """What one process writes of a state; an empty one is not written."""

    name: str = ""
    """Name of the file."""
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    """Tensors and flat pieces, on the CPU."""
    places: dict[str, Place] = field(default_factory=dict)
    """Name of each tensor that is a piece -> where it belongs."""

    def save(self, folder: Path, step: int) -> Path:
        """Write the file into a folder; returns its path. Raises OSError for a full disk too."""
        path = folder / self.name
        places = {"places": json.dumps(self.places)} if self.places else {}
        with disk_errors(path):
            save_file(self.tensors, path, metadata={"step": str(step), **places})
        return path


class StateReader:
    """Tensors of a state or of kept weights, or ranges of them, whichever files they lie in; read when asked for."""

    def __init__(self, path: Path, files: list[Any]) -> None:
        self._path = path
        self._parts: dict[str, list[tuple[int, Any]]] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        for file in files:
            places = json.loads((file.metadata() or {}).get("places", "{}"))
            for name in file.keys():  # noqa: SIM118
                part = file.get_slice(name)
                start, shape = places.get(name, (0, part.get_shape()))
                self._parts.setdefault(name, []).append((start, part))
                self.shapes[name] = tuple(shape)

    def read_whole(self, name: str) -> torch.Tensor | None:
        """A tensor in its shape, by `read_range`; None: there is none of that name."""
        shape = self.shapes.get(name)
        return None if shape is None else self.read_range(name, 0, math.prod(shape)).view(shape)

    def read_range(self, name: str, start: int, length: int) -> torch.Tensor:
        """A range of a flattened tensor; nothing else of it is read, but the rest of its first and last rows.

        Raises:
            SpecError: a part of it is missing.
        """
        found, done = [], start
        for begin, part in sorted(self._parts.get(name, []), key=lambda item: item[0]):
            end = min(start + length, begin + math.prod(part.get_shape()))
            if begin <= done < end:
                first, last = done - begin, end - begin
                if not (shape := part.get_shape()):
                    found.append(part[...].reshape(1))
                else:
                    row = math.prod(shape[1:])
                    skipped = first // row * row
                    found.append(part[first // row : -(-last // row)].reshape(-1)[first - skipped : last - skipped])
                done = end
        if done < start + length:
            count = math.prod(self.shapes.get(name, (0,)))
            raise SpecError(f"{self._path}: {name} lacks its value {done} of {count}; run its parent again")
        # A copy: what was read may be a view of the file.
        return torch.cat(found) if found else torch.empty(0)


@contextlib.contextmanager
def open_tensors(path: Path) -> Iterator[StateReader]:
    """The tensors of a state, or of kept weights, in the files that its DONE lists."""
    with contextlib.ExitStack() as files:
        names = sorted(name for name in read_json(path / "DONE") if name.endswith(".safetensors"))
        yield StateReader(path, [files.enter_context(safe_open(path / name, "pt")) for name in names])
