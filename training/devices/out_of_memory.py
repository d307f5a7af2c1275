"""What a run does when its device has too little memory: a smaller micro-batch, which runs of its shape keep."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from training.devices.memory import fitted
from training.durable import read_record, write_whole
from training.spec import Execution, RunSpec, SpecError

_OF_CPU = ("can't allocate memory", "not enough memory", "bad_alloc", "Cannot allocate memory")


@dataclass(frozen=True)
class _Kept:
    """What has not run out of memory, as far as is known."""

    micro_batch: int = 0
    activation_checkpointing: bool = False


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocator of a GPU or of the CPU has raised it."""
    known = isinstance(error, (MemoryError, torch.OutOfMemoryError))
    return known or (isinstance(error, RuntimeError) and any(words in str(error) for words in _OF_CPU))


def within_memory(spec: RunSpec, execution: Execution, path: Path) -> Execution:
    """An execution with the micro-batch and the checkpointing that fit, by formula and by what has run out before.

    `path` is the file where that is kept, of this shape and device.
    """
    parallel = execution.parallel
    kept = read_record(path, _Kept) if path.exists() else _Kept()
    if kept.activation_checkpointing:
        parallel = replace(parallel, activation_checkpointing=True)
    fit = fitted(
        spec, parallel, execution.micro_batch, execution.engine, execution.device_memory,
        gpu=torch.cuda.is_available(), most=kept.micro_batch,
    )  # fmt: skip
    parallel = replace(parallel, activation_checkpointing=fit.checkpointing)
    return replace(execution, micro_batch=fit.micro_batch, parallel=parallel)


def keep_smaller(spec: RunSpec, execution: Execution, path: Path, asked: bool | None) -> str:
    """Keep a smaller micro-batch than that of an execution of `within_memory`.

    `asked` is parallel.activation_checkpointing of the question. Returns a line that says what is done.

    Raises:
        SpecError: one sequence does not fit, with activation checkpointing unless it is refused.
    """
    parallel, size = execution.parallel, execution.micro_batch
    local = spec.global_batch // parallel.processes
    what = f"launcher.micro_batch: {size} of {spec.sequence_length:,} tokens ran out of memory"
    if size > 1:
        less = next(less for less in range(size // 2, 0, -1) if local % less == 0)
        kept = _Kept(less, bool(parallel.activation_checkpointing))
    elif asked is None and not parallel.activation_checkpointing:
        kept = _Kept(local, True)
    else:
        ways = ["a smaller sequence_length", "a device with more memory"]
        if parallel.kind in ("single", "ddp"):
            ways.insert(0, "parallel=fsdp2 with more parallel.processes")
        if not parallel.activation_checkpointing:
            ways.insert(0, "parallel.activation_checkpointing=true")
        raise SpecError(f"{what}; give {', '.join(ways[:-1])} or {ways[-1]}")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(asdict(kept)) + "\n")
    again = ", with activation checkpointing" if kept.activation_checkpointing else ""
    return f"{what}; going on with {kept.micro_batch}{again}"
