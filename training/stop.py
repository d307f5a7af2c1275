"""Stop requests: by a signal, or by a stop file that a batch script writes where signals do not arrive."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
_received: list[int] = []


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
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def was_interrupted() -> bool:
    """Whether a signal raised KeyboardInterrupt, which a library may have turned into another error."""
    return bool(_received)


class StopRequestedError(Exception):
    """A stop was requested; the run saves its state and can be run again."""


class StopRequest:
    """A flag that signals set while the context is open.

    Only the main thread of a process receives signals; other threads check the stop file only.
    """

    def __init__(self, stop_file: Path | None = None) -> None:
        self._stop_file = stop_file
        # No Event: a signal that arrives while the handler of another sets it would wait for its lock forever.
        self._received = False
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
        """Whether a stop was requested."""
        return self._received or (self._stop_file is not None and self._stop_file.exists())

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._received = True
