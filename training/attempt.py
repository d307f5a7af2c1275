"""Attempts: the lease of one process on a run, its start and its end.

A process takes the lease by creating the next `attempts/NNN.json`, which only one process can do; it then touches a
heartbeat file. An attempt without an end is dead if its process is gone from this host or, on another host, its
heartbeat is old; the next number may then be taken. A holder that was only suspended sees the higher number and stops.
"""

import contextlib
import datetime
import functools
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
import threading
import time
from importlib import metadata
from math import inf
from pathlib import Path
from typing import Annotated, Any, Required

import psutil
from annotated_types import Interval, Predicate
from typing_extensions import TypedDict

from training.durable import FileError, numbered, read_record, write_new, write_whole
from training.stop import LOOK_SECONDS

_PACKAGES = ("torch", "transformers", "tokenizers", "datasets", "accelerate", "deepspeed", "numpy", "cptlaw")


def _is_date(text: str) -> bool:
    try:
        return datetime.datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


Date = Annotated[str, Predicate(_is_date)]
Count = Annotated[int, Interval(ge=0, lt=2**31)]


class AttemptRecord(TypedDict, total=False):
    """What attempts/NNN.json says; of a file that is damaged only the attempt's number is known."""

    attempt: Required[Count]
    host: str
    boot: str
    pid: Count
    process_start: float
    start: Date
    end: Date
    exit_code: int
    reason: str
    python: str
    packages: dict[str, str]
    git: str
    engine: str
    precision: str
    device: str
    parallel: str
    processes: Count
    threads: Count
    micro_batch: Count
    from_step: Count


def forgive_attempts(folder: Path) -> None:
    """Let none of a run's attempts so far count as one that failed."""
    write_whole(folder / "RETRIED", f"{max([0, *(record['attempt'] for record in attempts(folder))])}\n")


class LeaseLostError(RuntimeError):
    """Another process took the run over; this one must stop without further writes."""


class Attempt:
    """The right to write into a run's folder; from `claim`."""

    def __init__(self, folder: Path, number: int, record: AttemptRecord, heartbeat_seconds: float) -> None:
        self.folder = folder
        self.number = number
        self.record = record
        self._looked = -inf
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, args=(heartbeat_seconds,), daemon=True)
        self._thread.start()

    def check(self, *, at_once: bool = True) -> None:
        """Raise LeaseLostError if the run was taken over meanwhile; without `at_once` looked at once a second."""
        now = time.monotonic()
        if not at_once and now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        if _path(self.folder, self.number + 1).exists():
            raise LeaseLostError(f"{self.folder.name}: attempt {self.number} was taken over by another process")

    def note(self, **facts: Any) -> None:
        """Add facts, such as engine and devices, to the attempt's file."""
        self.record.update(facts)  # pyright: ignore[reportCallIssue, reportArgumentType]
        write_whole(_path(self.folder, self.number), json.dumps(self.record, indent=2) + "\n")

    def end(self, exit_code: int, reason: str = "") -> None:
        """Write how the attempt ended and release the run."""
        self._ended.set()
        self._thread.join()
        self.note(end=_now(), exit_code=exit_code, **({"reason": reason} if reason else {}))
        _heartbeat(self.folder, self.number).unlink(missing_ok=True)

    def _beat(self, seconds: float) -> None:
        while not self._ended.wait(seconds):
            # A file system that fails once may answer at the next beat.
            with contextlib.suppress(OSError):
                os.utime(_heartbeat(self.folder, self.number))


def claim(folder: Path, *, stale_after: float = 60.0, heartbeat_seconds: float = 5.0) -> Attempt | None:
    """Claim a run; None while another process works on it.

    Args:
        folder: the run's folder; created if missing.
        stale_after: seconds without a heartbeat after which a holder on another host counts as dead.
        heartbeat_seconds: seconds between this holder's heartbeats.
    """
    (folder / "attempts").mkdir(parents=True, exist_ok=True)
    last = next(reversed(attempts(folder)), None)
    number = last["attempt"] + 1 if last else 1
    if last and is_live(folder, last, stale_after):
        return None
    record: AttemptRecord = {
        "attempt": number,
        "host": socket.gethostname(),
        "boot": _boot(),
        "pid": os.getpid(),
        "process_start": _process_start(os.getpid()),
        "start": _now(),
        "python": platform.python_version(),
        "packages": _versions(),
        "git": _revision(),
    }
    _heartbeat(folder, number).touch()
    if not write_new(_path(folder, number), json.dumps(record, indent=2) + "\n"):
        return None
    return Attempt(folder, number, record, heartbeat_seconds)


def attempts(folder: Path) -> list[AttemptRecord]:
    """Records of all attempts on a run, oldest first; of a file that is damaged only the attempt's number."""
    records = []
    for number, path in numbered(folder / "attempts", "*.json").items():
        record = AttemptRecord(attempt=number)
        # A run can go on without knowing how it began; its number is in the name of the file.
        with contextlib.suppress(OSError, FileError):
            record = read_record(path, AttemptRecord)
        records.append({**record, "attempt": number})
    return records


def is_live(folder: Path, record: AttemptRecord, stale_after: float = 60.0) -> bool:
    """Whether the process of an attempt still works on the run, as seen from this host."""
    if "end" in record:
        return False
    if record.get("host") == socket.gethostname() and record.get("boot") == _boot():
        try:
            return abs(_process_start(record.get("pid", -1)) - record.get("process_start", 0.0)) < 2.0
        except (psutil.NoSuchProcess, ValueError):
            return False
    try:
        beat = _heartbeat(folder, record["attempt"]).stat().st_mtime
    except OSError:
        return False
    # Both times are of the file system's clock, because the clocks of two hosts may differ.
    try:
        with tempfile.NamedTemporaryFile(dir=folder / "attempts", prefix=".", suffix=".now") as probe:
            now = os.fstat(probe.fileno()).st_mtime
    except OSError:  # Who only looks at a study need not be allowed to write.
        now = time.time()
    # A beat from the future is of a clock that was set back since: a live holder corrects it with its next one.
    return abs(now - beat) < stale_after


# What is loaded stays the same for all runs of a process; to read it takes a tenth of a second.
@functools.cache
def _versions() -> dict[str, str]:
    versions = {}
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions


@functools.cache
def _revision() -> str:
    try:
        command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def _boot() -> str:
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.exists() else f"{sys.platform}-{psutil.boot_time():.0f}"


def _process_start(pid: int) -> float:
    """When a process started, seconds after the boot: a clock that is set changes the time of both."""
    return psutil.Process(pid).create_time() - psutil.boot_time()


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _path(folder: Path, number: int) -> Path:
    return folder / "attempts" / f"{number:03d}.json"


def _heartbeat(folder: Path, number: int) -> Path:
    return folder / "attempts" / f"{number:03d}.heartbeat"
