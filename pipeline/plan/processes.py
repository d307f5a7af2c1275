"""The devices and the memory that processes of runs share on this machine."""

import contextlib
import fcntl
import functools
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from pipeline.question.schema import Question


def workers(question: Question) -> int:
    """Number of runs that train in parallel: as configured, else as many as there are GPUs or cores for."""
    launcher, processes = question.launcher, question.parallel.processes
    if gpus():
        possible = len(gpus()) // processes * (launcher.runs_per_device or 1)
    else:
        possible = launcher.runs_per_device or len(os.sched_getaffinity(0)) // (launcher.threads * processes)
    return launcher.workers or max(1, possible)


def runs_on_device(question: Question) -> int:
    """Number of runs that train at once on a GPU, or on a machine without GPUs."""
    launcher = question.launcher
    if launcher.elsewhere or (launcher.device and not gpus()):
        return launcher.runs_per_device or 1
    return max(1, -(-workers(question) // max(len(gpus()) // question.parallel.processes, 1)))


@dataclass(frozen=True)
class Gpu:
    """A GPU, or a slice of one (MIG)."""

    identifier: str
    """What CUDA_VISIBLE_DEVICES calls it."""
    number: str = ""
    """Of the GPU that it is, or that it is a slice of."""
    uuid: str = ""
    name: str = ""
    memory: float | None = None
    """Bytes; None: not known."""


def gpus() -> list[str]:
    """Identifiers of the GPUs in CUDA_VISIBLE_DEVICES, or of all of this machine; does not load torch."""
    return [gpu.identifier for gpu in visible_gpus()]


@functools.cache
def visible_gpus() -> list[Gpu]:
    """The GPUs of `gpus`: numbers and UUIDs as CUDA reads them, up to the first that is none."""
    known = list(_listed(_answer("-L"), _answer("--query-gpu=memory.total", "--format=csv,noheader,nounits")))
    if (words := os.environ.get("CUDA_VISIBLE_DEVICES")) is None:
        return known
    visible: list[Gpu] = []
    for word in map(str.strip, words.split(",")):
        named = [gpu for gpu in known if word and (gpu.number == word or gpu.uuid.startswith(word))]
        if word in ("", "-1") or (known and not named):
            break
        visible.append(replace(named[0], identifier=word) if named else Gpu(word))
    return visible


@contextlib.contextmanager
def free_gpus(processes: int, wanted: int) -> Iterator[list[list[str]]]:
    """The GPUs of so many runs, one list a run, that no other study takes while this is open; all where none is free.

    They are taken by locks on files in the folder for temporary files, which end with this process.
    """
    visible = gpus()
    groups = [visible[first : first + processes] for first in range(0, len(visible) - processes + 1, processes)]
    with contextlib.ExitStack() as locks:
        free: list[list[str]] = []
        for group in groups:
            with contextlib.ExitStack() as own:
                if len(free) < wanted and all(own.enter_context(_locked(name)) for name in group):
                    locks.push(own.pop_all())
                    free.append(group)
        yield free or groups


@contextlib.contextmanager
def _locked(gpu: str) -> Iterator[bool]:
    """Lock a GPU's file; False: another process has."""
    uuid = next((one.uuid for one in visible_gpus() if one.identifier == gpu), "") or gpu
    path = Path(tempfile.gettempdir(), f"cptlaw-gpu-{uuid.replace('/', '-')}.lock")
    try:
        # Of another user it can be opened, but not created.
        file = os.open(path, os.O_RDONLY if path.exists() else os.O_RDONLY | os.O_CREAT, 0o644)
    except OSError:
        yield True
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(file)


def gpu_name(question: Question) -> str:
    """Name of the GPUs that runs of a question train on, as far as it is known; empty: none is."""
    visible = [] if question.launcher.elsewhere else visible_gpus()
    return question.launcher.device or (visible[0].name if visible else "")


def _answer(*options: str) -> str:
    try:
        return subprocess.run(["nvidia-smi", *options], capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def _listed(listing: str, mebibytes: str) -> Iterator[Gpu]:
    """The devices in what `nvidia-smi -L` prints: slices in place of the GPU that they are of.

    >>> text = "GPU 0: NVIDIA A100 (UUID: GPU-5c)\\n  MIG 3g.20gb Device 0: (UUID: MIG-c6)\\n"
    >>> text += "GPU 1: A GPU 9 (UUID: GPU-7)"
    >>> [(gpu.identifier, gpu.name) for gpu in _listed(text, "40960\\n40960\\n")]
    [('MIG-c6', 'NVIDIA A100 MIG 3g.20gb'), ('1', 'A GPU 9')]
    """
    of_number = dict(enumerate(mebibytes.split()))
    for part in re.split(r"^(?=GPU \d+:)", listing, flags=re.MULTILINE):
        if not (whole := re.match(r"GPU (\d+): (.*) \(UUID: (\S+)\)", part)):
            continue
        number, name, uuid = whole.groups()
        slices = re.findall(r"^ +MIG (\S+) .*\(UUID: (\S+)\)", part, re.MULTILINE)
        for profile, of_slice in slices:
            size = re.search(r"\.(\d+)gb", profile)
            yield Gpu(of_slice, number, of_slice, f"{name} MIG {profile}", 1e9 * int(size[1]) if size else None)
        if not slices:
            size = of_number.get(int(number), "")
            yield Gpu(number, number, uuid, name, 2.0**20 * int(size) if size.isdecimal() else None)


MEMORY = "CPTLAW_PROCESS_MEMORY"
"""Variable that tells a worker how many bytes each of its processes may take, since it sees its own GPUs alone."""


def process_memory(question: Question, *, here: bool = True) -> float | None:
    """Bytes that a process of a run may take of its device, which it may share with others; None: not known.

    `here`: the process trains on this machine, whose memory counts where launcher.device_memory is null.
    """
    launcher, parallel = question.launcher, question.parallel
    if limit := os.environ.get(MEMORY):
        return float(limit)
    sharing, visible = runs_on_device(question), visible_gpus() if here else []
    given = launcher.device_memory and 1e9 * launcher.device_memory
    if visible or launcher.device or (launcher.elsewhere and launcher.slurm.has_gpus):
        sizes = [gpu.memory for gpu in visible]
        each = given or (None if None in sizes or not sizes else min(filter(None, sizes)))
    else:
        each = given or (_main_memory() if here else None)
        sharing *= parallel.processes // (launcher.slurm.nodes if launcher.elsewhere else 1)
    return each and each / max(sharing, 1)


@functools.cache
def _main_memory() -> float:
    """Bytes of main memory that this process and its children may take, by machine and control group."""
    limits = [float(psutil.virtual_memory().total)]
    root, group = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
    place = root / (group.read_text().strip().rpartition(":")[2].lstrip("/") if group.exists() else "")
    files = [*(folder / "memory.max" for folder in (place, *place.parents)), root / "memory/memory.limit_in_bytes"]
    for file in files:
        with contextlib.suppress(OSError, ValueError):
            limits.append(float(file.read_text()))
    return min(limits)
