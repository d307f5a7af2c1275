"""Runs for tests: in this process, in processes that are killed, and in several processes at once."""

import dataclasses
import faulthandler
import os
import shutil
import signal
import socket
import time
import traceback
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests.processes import FORKS
from training.corpora.manifest import Manifest
from training.devices.group import ALONE, Group
from training.domain_weights import PATH, read_path
from training.durable import read_lines_whole
from training.run import Exit, RunFolders, run_once
from training.spec import Execution, Objective, RunSpec


def train_run(
    spec: RunSpec,
    folder: Path,
    manifest: Manifest | Path,
    *,
    start: Path | None = None,
    reference: Path | None = None,
    group: Group = ALONE,
    **execution,
) -> Exit | None:
    manifest = manifest if isinstance(manifest, Manifest) else Manifest.open(manifest)
    folders = RunFolders(folder, manifest, folder / "memory", start=start, reference=reference)
    settings = Execution(**{"engine": "eager", "resume_every": 3, **execution})
    return run_once(spec, folders, settings, log=lambda _: None, group=group)


def trained(spec: RunSpec, manifest: Manifest, folder: Path, **options) -> Path:
    """The folder of a run that is trained to its end."""
    assert train_run(spec, folder, manifest, **options) == Exit.DONE
    return folder


def begin_from(start: Path, step: int, folder: Path) -> None:
    """Let a run begin from another's state, of whose points it keeps those before."""
    shutil.copytree(start / "resume" / f"step-{step}", folder / "resume" / f"step-{step}")
    shutil.copy(start / "points.jsonl", folder)


def points_of(folder: Path) -> list[dict]:
    return read_lines_whole(folder / "points.jsonl")


def losses_of(folder: Path) -> list[float]:
    return [point["loss"] for point in points_of(folder)]


def masked(spec: RunSpec, manifest: Manifest, **changes) -> RunSpec:
    """The run with a small BERT, whose mask token follows the vocabulary."""
    shape = {"model_type": "bert", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    shape |= {"intermediate_size": 32, "max_position_embeddings": 64, "vocab_size": manifest.vocabulary + 1}
    objective = Objective("masked", mask_share=0.25, mask_token=manifest.vocabulary)
    return dataclasses.replace(spec, model=shape, objective=objective, **changes)


def diverging(spec: RunSpec) -> RunSpec:
    """The run with a learning rate and a weight decay that make its loss infinite."""
    schedule = (dataclasses.replace(spec.schedule[0], end=1000.0, share=None, steps=None),)
    optimizer = dataclasses.replace(spec.optimizer, clip=0.0, weight_decay=1000.0)
    return dataclasses.replace(spec, schedule=schedule, optimizer=optimizer)


def in_process(job: Callable[..., object], *arguments: object) -> int | None:
    """Exit code of a process that calls a job."""
    process = FORKS.Process(target=job, args=arguments)
    process.start()
    process.join()
    return process.exitcode


def together(job: Callable[..., None], *arguments: object, count: int = 2) -> list[BaseProcess]:
    """Start a group of processes, each calling `job(rank, *arguments)`."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    processes = [FORKS.Process(target=_rank, args=(job, rank, count, port, arguments)) for rank in range(count)]
    for process in processes:
        process.start()
    return processes


def all_done(processes: list[BaseProcess]) -> bool:
    for process in processes:
        process.join()
    return all(process.exitcode == 0 for process in processes)


def _rank(job: Callable[..., None], rank: int, count: int, port: int, arguments: tuple) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count), "CUDA_VISIBLE_DEVICES": ""}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    import torch

    faulthandler.register(signal.SIGUSR1)
    torch.set_num_threads(1)
    try:
        job(rank, *arguments)
    except BaseException:
        traceback.print_exc()
        # A normal exit could wait for a process that is gone.
        os._exit(1)


def attempt(
    spec: RunSpec,
    folder: Path,
    manifest: Manifest,
    reference: Path | None = None,
    die_at: tuple[str, int] | None = None,
    *,
    after: float | None = None,
) -> int | None:
    """Exit code of a process that trains, killed at a place of `_die_inside` or after some seconds."""
    process = FORKS.Process(target=_train, args=(spec, folder, manifest.folder, reference, die_at))
    process.start()
    if after is not None:
        time.sleep(after)
        process.kill()
    process.join()
    return process.exitcode


def _train(spec: RunSpec, folder: Path, manifest: Path, reference: Path | None, die_at: tuple[str, int] | None) -> None:
    import torch

    torch.set_num_threads(1)
    if die_at:
        _die_inside(*die_at)
    train_run(spec, folder, manifest, reference=reference)


def _die_inside(place: str, call: int) -> None:
    """Kill this process at its n-th call of a function, before or after the call."""
    import training.checkpoints.folder
    import training.checkpoints.pieces
    import training.checkpoints.weights
    import training.group_dro
    import training.loop

    module, name, after = {
        "evaluation": (training.loop, "evaluate", False),
        "points": (training.loop, "append_flushed", False),
        "weights": (training.checkpoints.weights, "save_weights", False),
        "state": (training.checkpoints.pieces, "save_file", False),
        "state written": (training.checkpoints.pieces, "save_file", True),
        "state rename": (training.checkpoints.folder.os, "rename", False),
        "marker": (training.checkpoints.folder, "write_whole", False),
        "before a line": (training.group_dro, "append_flushed", False),
        "after a line": (training.group_dro, "append_flushed", True),
        "cut": (training.group_dro, "cut_lines", True),
    }[place]
    inner, calls = getattr(module, name), []

    def dying(*arguments, **options):
        calls.append(place)
        if len(calls) == call and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = inner(*arguments, **options)
        if len(calls) == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(module, name, dying)


def assert_same(folder: Path, expected: Path) -> None:
    for name in ("points.jsonl", PATH):
        assert (folder / name).read_bytes() == (expected / name).read_bytes()


def assert_close(folder: Path, expected: Path, tolerance: float = 1e-6) -> None:
    for line, other in zip(read_path(folder), read_path(expected), strict=True):
        for part in ("weights", "mean", "excess"):
            assert line[part] == pytest.approx(other[part], abs=tolerance)
    assert losses_of(folder) == pytest.approx(losses_of(expected), abs=tolerance)
