"""Processes beside this one that end with it, however it ends."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from types import ModuleType


@contextlib.contextmanager
def spawned_processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """So many processes, which are killed at the end: their work must bear a kill at any moment.

    They are spawned, since a fork of a process with threads may wait for ever. Submit under `started_quietly`.
    """
    others = {*multiprocessing.active_children()}
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _begin)
    try:
        yield pool
    finally:
        for process in {*multiprocessing.active_children()} - others:
            process.kill()
        pool.shutdown()


@contextlib.contextmanager
def started_quietly() -> Iterator[None]:
    """Start processes that get no signal before `_begin`, and do not import the caller's script: it needs no guard."""
    main = sys.modules["__main__"]
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        # Importing numpy starts a thread a core.
        with environment("OMP_NUM_THREADS", "1"):
            yield
    finally:
        sys.modules["__main__"] = main
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextlib.contextmanager
def environment(name: str, value: str) -> Iterator[None]:
    """Set a variable of the environment inside the block."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name)
        os.environ |= {} if before is None else {name: before}


def _begin() -> None:
    # Ctrl-C reaches the whole process group, and the parent decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
