"""The processes that train a run together, and agreement between their ranks."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from training.spec import Parallel

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup

SHARDED = ("fsdp2", "zero1", "zero2", "zero3")
"""Kinds that compiled engines do not support."""

T = TypeVar("T")


@dataclass(frozen=True)
class Group:
    """This process among those that train a run. All of them call each method, in the same order."""

    rank: int = 0
    """Rank of this process; only rank 0 writes."""
    count: int = 1
    """Number of processes."""
    local_rank: int = 0
    """Rank of this process on its machine: the index of its GPU."""
    members: ProcessGroup | None = None
    """torch's group of the processes; None: its default group."""

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which claims runs and writes files."""
        return self.rank == 0

    @property
    def device(self) -> torch.device:
        """The GPU of this process, or the CPU."""
        import torch

        return torch.device("cuda", self.local_rank) if torch.cuda.is_available() else torch.device("cpu")

    def broadcast(self, make: Callable[..., T], *arguments: Any) -> T:
        """Result of a call on rank 0, or its error raised in all processes; the others do not call.

        The result must be picklable. All files of a run are written through this, so that a full disk ends all of its
        processes with the same error.
        """
        return self.collect(lambda: make(*arguments) if self.first else None)[0]  # pyright: ignore[reportReturnType]

    def collect(self, make: Callable[[], T]) -> list[T]:
        """Results of `make`, picklable, in all processes by rank, or the first error raised in all."""
        if self.count == 1:
            return [make()]
        import torch

        made, error = None, None
        try:
            made = make()
        except Exception as caught:
            error = caught
        boxes: list[Any] = [None] * self.count
        torch.distributed.all_gather_object(boxes, (made, error), group=self.members)
        for _, error in boxes:
            if error is not None:
                raise error
        return [made for made, _ in boxes]

    @contextlib.contextmanager
    def apart(self) -> Iterator[Group]:
        """The same processes by connections of their own, for calls in a thread beside those of the main thread."""
        if self.count == 1:
            yield self
            return
        import torch

        members = torch.distributed.new_group(backend="gloo")
        # A number only for a process that is not in the group.
        assert not isinstance(members, int)
        try:
            yield dataclasses.replace(self, members=members)
        finally:
            torch.distributed.destroy_process_group(members)

    def maximum(self, value: int) -> int:
        """Maximum of a number over the processes."""
        return int(self.gather(np.array([value])).max())

    def gather(self, values: np.ndarray) -> np.ndarray:
        """Concatenation of the processes' arrays, all of one shape, by rank: (count x n, ...)."""
        if self.count == 1:
            return values
        import torch

        local = torch.from_numpy(np.ascontiguousarray(values))
        parts = [torch.empty_like(local) for _ in range(self.count)]
        torch.distributed.all_gather(parts, local, group=self.members)
        return torch.cat(parts).numpy()


ALONE = Group()


def join(parallel: Parallel) -> Group:
    """Join the processes of a run, and return the group.

    The environment holds rank and address, as torchrun sets it: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and
    MASTER_PORT.

    Raises:
        ValueError: a variable is missing, or the number of processes differs from `parallel`.
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

    # Otherwise accelerate sets it, with a warning.
    os.environ.setdefault("OMP_NUM_THREADS", str(torch.get_num_threads()))
    timeout = datetime.timedelta(seconds=parallel.timeout)
    # Also for the groups that accelerate and deepspeed create: torch's default timeout is half an hour.
    torch.distributed.distributed_c10d.default_pg_timeout = timeout
    torch.distributed.distributed_c10d.default_pg_nccl_timeout = timeout  # pyright: ignore[reportPrivateImportUsage]
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank)
        # Flags and losses are reduced on the CPU, so that they do not wait for a kernel.
        torch.distributed.init_process_group("cpu:gloo,cuda:nccl", timeout=timeout)
    else:
        os.environ["DS_ACCELERATOR"] = "cpu"
        torch.distributed.init_process_group("gloo", timeout=timeout)
    group = Group(rank, count, local_rank)
    # A barrier: a process that exits early on a mistake would be a broken connection to those that still start.
    group.maximum(0)
    return group


def parallel_problem(parallel: Parallel, engine: str, global_batch: int, micro_batch: int) -> str | None:
    """The first problem with distributing a run over devices in this way, in one line; None: there is none."""
    kind, processes = parallel.kind, parallel.processes
    if kind == "single" and processes > 1:
        return f"parallel.processes: {processes} with parallel.kind=single; allowed: 1"
    if processes < 1 or parallel.replicas < 1:
        return None  # What the key allows says so.
    if parallel.replicas > 1 and kind != "fsdp2":
        return f"parallel.replicas: {parallel.replicas} with parallel.kind={kind}; allowed: 1, or parallel=fsdp2"
    if processes % parallel.replicas:
        what = f"{parallel.replicas} does not divide parallel.processes {processes}"
        return f"parallel.replicas: {what}; allowed: {_divisors(processes)}"
    if global_batch % processes:
        return f"parallel.processes: {processes} does not divide global_batch {global_batch}; allowed: a divisor of it"
    local_batch = global_batch // processes
    if micro_batch and local_batch % micro_batch:
        of = f"global_batch {global_batch}" + (f" of {processes} processes" if processes > 1 else "")
        return f"launcher.micro_batch: {micro_batch} does not divide {of}; allowed: {_divisors(local_batch)}"
    if kind in SHARDED and engine.endswith("-compiled"):
        return f"engine: {engine!r} with parallel.kind={kind}; allowed: auto, sdpa, eager, sdpa-chunked"
    return None


def _divisors(number: int) -> str:
    return ", ".join(str(divisor) for divisor in range(1, number + 1) if number % divisor == 0)


def leave(group: Group) -> None:
    """Leave the group."""
    if group.count > 1:
        import torch

        torch.distributed.destroy_process_group()
