"""Processes for tests that train: forked from one that has torch, accelerate and deepspeed loaded already."""

from __future__ import annotations

import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable
from multiprocessing.process import BaseProcess

# Read once, when deepspeed is loaded.
os.environ.setdefault("DS_ACCELERATOR", "cpu")
# Children fork from a process that has everything loaded, since twenty of them would else spend minutes importing.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["training.loop", "training.run", "training.devices.accelerated", "deepspeed"])


def together(job: Callable[..., None], *arguments: object, count: int = 2) -> list[BaseProcess]:
    """Start `count` processes that find each other, each calling `job(rank, *arguments)`."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    processes = [FORKS.Process(target=_rank, args=(job, rank, count, port, arguments)) for rank in range(count)]
    for process in processes:
        process.start()
    return processes


def _rank(job: Callable[..., None], rank: int, count: int, port: int, arguments: tuple) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count), "CUDA_VISIBLE_DEVICES": ""}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    import torch

    torch.set_num_threads(1)
    try:
        job(rank, *arguments)
    except BaseException:
        traceback.print_exc()
        # Without the interpreter's end, which could wait for a process that is gone.
        os._exit(1)
