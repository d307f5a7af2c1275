"""Stop requests, by a signal or by a stop file where signals do not arrive; and processes that stop with this one."""

from __future__ import annotations

import _thread
import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from math import inf
from pathlib import Path
from types import FrameType, ModuleType

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
PATIENCE = 4.0
"""Seconds in which a process answers a signal by itself, before `end_in_time` ends it."""
LOOK_SECONDS = 1.0
"""Seconds between two looks at a file that may ask for a stop: many runs share a disk."""
_received: list[int] = []


@dataclass
class _Answer:
    """How this process answers a signal."""

    given: bool = False
    """Whether the program has seen it, and saves or waits for those that do."""
    patient: bool = False
    """Whether it will be seen, however long that takes."""
    at_once: bool = False
    """Whether it raises in the main thread."""
    last_act: Callable[[], object] = lambda: None
    """Done before the process is ended."""


_answer = _Answer()


def end_in_time() -> None:
    """From now on a signal that is not answered in time ends this process, with exit code 75.

    Python runs handlers between two instructions of its main thread: one call may compile, read or multiply for
    minutes. All files are whole after a kill, so they are after this.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))

    def watch() -> None:
        while os.read(reading, 1)[0] not in SIGNALS:
            pass
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline or _answer.patient:
            if _answer.given:
                return
            time.sleep(0.1)
        _answer.last_act()
        shown = "\x1b[?25h" if sys.stderr.isatty() else ""  # a progress bar has hidden the cursor
        os.write(2, f"{shown}stopped in the middle of it; run the same command again to continue\n".encode())
        os._exit(75)

    # Not a Thread: `fitting.parallel` forks where it sees none, and this one holds no lock.
    _thread.start_new_thread(watch, ())


def answer_signal() -> None:
    """Say that a signal was seen: what is left is to save, or to wait for processes that do."""
    _answer.given = True


@contextlib.contextmanager
def answering(
    *, at_once: bool = False, patient: bool = False, last_act: Callable[[], object] | None = None
) -> Iterator[None]:
    """How a signal is answered within the block.

    Args:
        at_once: it raises StopRequestedError in the main thread.
        patient: it is not ended in time, as its answer is agreed on with other processes.
        last_act: done before the process is ended in time.
    """
    before = (_answer.at_once, _answer.patient, _answer.last_act)
    _answer.patient, _answer.last_act = patient or before[1], last_act or before[2]
    _answer.at_once = at_once
    try:
        yield
    finally:
        _answer.at_once, _answer.patient, _answer.last_act = before


def leave_on_signals(line: str) -> None:
    """From now on a signal ends this process with a line on stderr and exit code 75.

    For the time in which a process loads and has written nothing: an exception in the middle of an import may come out
    as any other.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        os.write(sys.stderr.fileno(), f"{line}; run the same command again\n".encode())
        os._exit(75)

    for number in SIGNALS:
        signal.signal(number, leave)


def interrupt_on_signals() -> None:
    """From now on a signal raises KeyboardInterrupt in the main thread."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        _received.append(number)
        raise KeyboardInterrupt

    for number in SIGNALS:
        signal.signal(number, interrupt)


def ignore_signals() -> None:
    """From now on signals do nothing: the work is done, and its exit code is known."""
    answer_signal()
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def was_interrupted() -> bool:
    """Whether a signal raised KeyboardInterrupt, which a library may have turned into another error."""
    return bool(_received)


class StopRequestedError(BaseException):
    """A stop was requested; the run saves its state and can be run again. No Exception: libraries wrap those."""


class StopRequest:
    """A flag that signals set while the context is open.

    Only the main thread of a process receives signals; other threads check the stop file only.
    """

    def __init__(self, stop_file: Path | None = None) -> None:
        self._stop_file = stop_file
        # No Event: a signal that arrives while the handler of another sets it would wait for its lock forever.
        self._received = False
        self._looked, self._found = -inf, False
        self._previous: dict[signal.Signals, object] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._previous[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # pyright: ignore[reportArgumentType]

    @property
    def requested(self) -> bool:
        """Whether a stop was requested; the file is looked for once a second."""
        if self._received:
            answer_signal()
        now = time.monotonic()
        if self._stop_file is not None and now - self._looked >= LOOK_SECONDS:
            self._looked, self._found = now, self._stop_file.exists()
        return self._received or self._found

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._received = True
        if _answer.at_once:
            _answer.at_once = False
            raise StopRequestedError


@contextlib.contextmanager
def spawned_processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """So many processes, which are killed at the end: their work must bear a kill at any moment.

    They are spawned, since a fork of a process with threads may wait for ever. Submit under `started_quietly`.
    """
    others = {*multiprocessing.active_children()}
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _begin_spawned)
    try:
        yield pool
    finally:
        for process in {*multiprocessing.active_children()} - others:
            process.kill()
        pool.shutdown()


@contextlib.contextmanager
def started_quietly() -> Iterator[None]:
    """Start processes that get no signal before `_begin_spawned`, and do not import the caller's script."""
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


def _begin_spawned() -> None:
    # Ctrl-C reaches the whole process group, and the parent decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
