"""Stop requests: by a signal, or by a stop file that a batch script writes where signals do not arrive."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)


class StopRequestedError(Exception):
    """A stop was requested; the run saves its state and can be run again."""


class StopRequest:
    """A flag that signals set while the context is open.

    Only the main thread of a process receives signals; other threads check the stop file only.
    """

    def __init__(self, stop_file: Path | None = None) -> None:
        self._stop_file = stop_file
        self._received = threading.Event()
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
        return self._received.is_set() or (self._stop_file is not None and self._stop_file.exists())

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._received.set()
