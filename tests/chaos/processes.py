"""Commands of cptlaw in processes that fork from one that has loaded everything, so that a kill costs no start."""

import contextlib
import importlib
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from tests.processes import FORKS, run_command

CLI, WORKER = "pipeline.cli.main", "pipeline.launch.worker"
SIGNALS = (signal.SIGKILL,) * 6 + (signal.SIGTERM, signal.SIGINT)
"""As often as each is drawn."""
SHARD_BYTES = (4000, 4000)
"""Smallest and largest aim for a shard: eight of each corpus."""
ORPHAN_SECONDS = 30
"""Longest time that a process may live on without the one that started it."""


class Command:
    """A running command of cptlaw, leader of a group of processes with the workers that it starts."""

    def __init__(self, words: Sequence[str], folder: Path, file_size: int | None = None) -> None:
        # Beside the folder, whose disk may be full.
        self._output = folder.with_name(f"{folder.name}.txt")
        self._output.unlink(missing_ok=True)
        self._process = FORKS.Process(target=_run, args=(list(words), folder, self._output, file_size))
        self._process.start()
        self.pid = self._process.pid or 0
        while not self._output.exists() and self._process.is_alive():
            time.sleep(0.001)

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.is_alive()

    @property
    def output(self) -> str:
        """What it printed, errors included."""
        return self._output.read_text(errors="replace") if self._output.exists() else ""

    def wait(self, seconds: float | None = None) -> int | None:
        """Its exit code; None if it runs on after some seconds."""
        self._process.join(seconds)
        return self._process.exitcode

    def kill(self, number: int, whom: str, draw: random.Random) -> tuple[str, int]:
        """Send a signal to the process, its group or one of its children; returns which, and how many children ran.

        Without children the process gets what is meant for a child.
        """
        children: list[psutil.Process] = []
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            children = psutil.Process(self.pid).children(recursive=True)
            whom = "process" if whom == "child" and not children else whom
            if whom == "child":
                os.kill(draw.choice(children).pid, number)
            elif whom == "group":
                os.killpg(self.pid, number)
            else:
                os.kill(self.pid, number)
        return whom, len(children)

    def end_group(self) -> None:
        """Wait until no process of the group is left; those of a killed driver see within a second that it is gone."""
        deadline = time.monotonic() + ORPHAN_SECONDS
        while (left := _group(self.pid)) and time.monotonic() < deadline:
            time.sleep(0.05)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert not left, f"processes {left} did not end"


def _group(leader: int) -> list[int]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if process.pid != leader and os.getpgid(process.pid) == leader and process.status() != "zombie":
                found.append(process.pid)
    return found


def _run(words: list[str], folder: Path, log: Path, file_size: int | None) -> None:
    os.chdir(folder)
    os.setsid()
    if file_size is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))
    # As the commands do first.
    from training.stop import leave_on_signals

    leave_on_signals("stopped before anything was written")
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for number in (1, 2):
        os.dup2(output, number)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    if {"prepare", "advise"} & {*words}:
        _configure_prepare()
    run_command(words)


def _configure_prepare() -> None:
    """Have prepare tokenise the small texts in processes, and take the machine's speed as known.

    Texts of this size are one shard, which needs no process; to measure the speed takes long, and it varies.
    """
    from pipeline.plan import machine
    from training.corpora import files

    files.SHARD_BYTES = SHARD_BYTES
    machine._process_speed = lambda *_: 1e3


if __name__ == "__main__":
    if {"prepare", "advise"} & {*sys.argv}:
        _configure_prepare()
    module, *sys.argv[1:] = sys.argv[1:]
    importlib.import_module(module).main()
