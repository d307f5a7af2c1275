"""The processes that train a run together: who they are, and how they come to one mind."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    import torch

KINDS = ("single", "ddp", "fsdp2", "zero1", "zero2", "zero3")
SHARDED = ("fsdp2", "zero1", "zero2", "zero3")
"""Kinds that a compiled engine does not know."""

T = TypeVar("T")


@dataclass(frozen=True)
class Parallel:
    """How a run is spread over devices; none of it changes what the run means."""

    kind: str = "single"
    """single, ddp, fsdp2, zero1, zero2 or zero3."""
    processes: int = 1
    """Processes that train the run together, one a GPU."""
    activation_checkpointing: bool = False
    """Whether activations are computed again in the backward pass instead of kept."""
    timeout: float = 600.0
    """Seconds without a word from another process after which all give up."""
    deepspeed: dict[str, Any] = field(default_factory=dict)
    """Of zero1 to zero3: DeepSpeed's configuration; "auto" where it follows from the run."""


@dataclass(frozen=True)
class Group:
    """This process among those that train with it. Every method is called by all of them, in the same order."""

    rank: int = 0
    """Number of this process; 0 alone writes."""
    count: int = 1
    """How many there are."""
    local_rank: int = 0
    """Number of this process on its machine: the number of its GPU."""

    @property
    def first(self) -> bool:
        """Whether this process claims runs and writes files."""
        return self.rank == 0

    @property
    def device(self) -> torch.device:
        """The GPU of this process, or the processor where there is none."""
        import torch

        return torch.device("cuda", self.local_rank) if torch.cuda.is_available() else torch.device("cpu")

    def share(self, make: Callable[[], T]) -> T:
        """What process 0 makes, or the error that it meets, raised in all; the others do not call `make`.

        What goes out must be picklable. All that the run writes is written in here, so that a full disk ends all of
        its processes with the same word.
        """
        if self.count == 1:
            return make()
        import torch

        made, error = None, None
        try:
            made = make() if self.first else None
        except Exception as caught:
            error = caught
        box = [(made, error)]
        torch.distributed.broadcast_object_list(box, src=0, device=torch.device("cpu"))
        made, error = box[0]
        if error is not None:
            raise error
        return made  # pyright: ignore[reportReturnType]

    def largest(self, value: int) -> int:
        """The largest of the processes' numbers."""
        if self.count == 1:
            return value
        import torch

        number = torch.tensor(value)
        torch.distributed.all_reduce(number, torch.distributed.ReduceOp.MAX)
        return int(number)

    def total(self, value: float) -> float:
        """The sum of the processes' numbers."""
        if self.count == 1:
            return value
        import torch

        number = torch.tensor(value, dtype=torch.float64)
        torch.distributed.all_reduce(number)
        return float(number)

    def in_order(self, values: np.ndarray) -> np.ndarray:
        """The processes' arrays, all of one shape, one after another: (count x n, ...)."""
        if self.count == 1:
            return values
        import torch

        own = torch.from_numpy(np.ascontiguousarray(values))
        parts = [torch.empty_like(own) for _ in range(self.count)]
        torch.distributed.all_gather(parts, own)
        return torch.cat(parts).numpy()


ALONE = Group()


def join(parallel: Parallel) -> Group:
    """Meet the other processes of a run.

    Where they meet and who this one is stands in the environment, as torchrun leaves it: RANK, WORLD_SIZE, LOCAL_RANK,
    MASTER_ADDR and MASTER_PORT.

    Raises:
        ValueError: the environment does not say all of it, or speaks of another number of processes.
    """
    if parallel.kind == "single":
        return ALONE
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    if missing := [name for name in names if not os.environ.get(name)]:
        raise ValueError(f"{', '.join(missing)}: not in the environment; start with cptlaw train or torchrun")
    rank, count, local_rank = (int(os.environ[name]) for name in names[:3])
    if count != parallel.processes:
        raise ValueError(f"parallel.processes: {parallel.processes}, but {count} were started")
    import torch

    # accelerate would else set threads by itself, and warn.
    os.environ.setdefault("OMP_NUM_THREADS", str(torch.get_num_threads()))
    timeout = datetime.timedelta(seconds=parallel.timeout)
    # Of the groups that accelerate and deepspeed make for themselves too: by torch's own word they wait half an hour
    # for one that died before it met them.
    torch.distributed.distributed_c10d.default_pg_timeout = timeout
    torch.distributed.distributed_c10d.default_pg_nccl_timeout = timeout  # pyright: ignore[reportPrivateImportUsage]
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank)
        # Flags and losses are agreed on the processor, so that they wait for no kernel.
        torch.distributed.init_process_group("cpu:gloo,cuda:nccl", timeout=timeout)
    else:
        os.environ["DS_ACCELERATOR"] = "cpu"
        torch.distributed.init_process_group("gloo", timeout=timeout)
    group = Group(rank, count, local_rank)
    # One that met a user's mistake and left at once would be a broken connection to those that are still on their way.
    group.largest(0)
    return group


def spread_problem(parallel: Parallel, engine: str, global_batch: int, micro_batch: int) -> str | None:
    """What is wrong with spreading a run in this way, in one line."""
    kind, processes = parallel.kind, parallel.processes
    if kind not in KINDS:
        return f"parallel.kind: {kind!r}; allowed: {', '.join(KINDS)}"
    if processes < 1 or (kind == "single" and processes > 1):
        allowed = "1" if kind == "single" else "1 or more"
        return f"parallel.processes: {processes} with parallel.kind={kind}; allowed: {allowed}"
    if global_batch % processes:
        return f"parallel.processes: {processes} does not divide global_batch {global_batch}; allowed: a divisor of it"
    own = global_batch // processes
    if micro_batch and own % micro_batch:
        divisors = ", ".join(str(number) for number in range(1, own + 1) if own % number == 0)
        of = f"global_batch {global_batch}" + (f" of {processes} processes" if processes > 1 else "")
        return f"launcher.micro_batch: {micro_batch} does not divide {of}; allowed: {divisors}"
    if kind in SHARDED and engine.endswith("-compiled"):
        return f"engine: {engine!r} with parallel.kind={kind}; allowed: auto, sdpa, eager, sdpa-chunked"
    return None


def leave(group: Group) -> None:
    """Part from the other processes."""
    if group.count > 1:
        import torch

        torch.distributed.destroy_process_group()
