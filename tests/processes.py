"""Processes that fork from one that has loaded everything: importing takes seconds, forking milliseconds."""

import ctypes
import functools
import importlib
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing.context import BaseContext
from typing import Any

# Read once, when deepspeed is loaded.
os.environ.setdefault("DS_ACCELERATOR", "cpu")
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        *("tests.conftest", "pytest", "training.loop", "training.run", "training.devices.accelerated", "deepspeed"),
        *("transformers.models.qwen2.modeling_qwen2", "pipeline.launch.work", "pipeline.cli.verbs"),
    ]
)
_NEW_MOUNTS = 0x20000
"""CLONE_NEWNS of Linux."""


class Forked:
    """What subprocess.Popen does for `python -m MODULE ...`, which here runs in a process that was forked."""

    def __init__(self, command: Sequence[str], *, context: BaseContext = FORKS, **options: Any) -> None:
        assert list(command[:2]) == [sys.executable, "-m"], command
        options = {name: getattr(value, "name", value) for name, value in options.items()}
        environment = dict(options.pop("env", None) or os.environ)
        self._process = context.Process(target=_run, args=(list(command[2:]), environment, options))  # pyright: ignore[reportAttributeAccessIssue]
        self._process.start()
        self.pid, self.terminate, self.kill = self._process.pid, self._process.terminate, self._process.kill

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        self._process.join(timeout)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)


def run_forked(
    command: Sequence[str], env: Mapping[str, str] | None = None, **limits: Any
) -> subprocess.CompletedProcess[str]:
    """What subprocess.run returns with captured output, of a process that was forked.

    Args:
        command, env: as of subprocess.run.
        limits: `file_size`, bytes above which the kernel refuses a file, or `read_only`, a folder that is mounted so.
    """
    with tempfile.NamedTemporaryFile("r") as out, tempfile.NamedTemporaryFile("r") as error:
        code = Forked(command, env=env, stdout=out, stderr=error, **limits).wait()
        return subprocess.CompletedProcess(command, code or 0, out.read(), error.read())


def _run(command: list[str], environment: dict[str, str], options: dict[str, Any]) -> None:
    if options.get("start_new_session"):
        os.setsid()
    for number, name in ((1, "stdout"), (2, "stderr")):
        if isinstance(path := options.get(name), str):
            os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), number)
    if file_size := options.get("file_size"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))
    if folder := options.get("read_only"):
        assert ctypes.CDLL(None).unshare(_NEW_MOUNTS) == 0
        for words in ("--make-rprivate /", f"--bind {folder} {folder}", f"-o remount,ro,bind {folder}"):
            subprocess.run(["mount", *words.split()], check=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(environment)
    run_command(command)


def run_command(command: list[str]) -> None:
    """Be the process of `python -m COMMAND`, whose workers and ranks fork from it."""
    import pipeline.launch.local
    import pipeline.launch.ranks

    for launcher in (pipeline.launch.local, pipeline.launch.ranks):
        launcher.Popen = functools.partial(Forked, context=multiprocessing.get_context("fork"))
    module, *sys.argv[1:] = command
    if "--parent" in sys.argv:
        sys.argv[sys.argv.index("--parent") + 1] = str(os.getppid())
    importlib.import_module(module).main()
