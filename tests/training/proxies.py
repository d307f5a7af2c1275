"""Runs whose domain weights move, for several tests: in this process or in one that is killed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
import torch

from tests.training.forks import FORKS
from training.corpora.manifest import Manifest
from training.devices.group import ALONE, Group
from training.domain_weights import PATH, read_path
from training.durable import read_lines_whole
from training.run import Exit, Places, run_once
from training.spec import Execution, RunSpec


def train_proxy(
    spec: RunSpec, folder: Path, manifest: Manifest, reference: Path | None = None, group: Group = ALONE, **options
) -> Exit | None:
    start = reference if spec.initial.kind == "run" else None
    places = Places(folder, manifest, folder / "engines", start=start, reference=reference)
    execution = Execution(**{"engine": "eager", "resume_every": 3, **options})
    return run_once(spec, places, execution, log=lambda _: None, group=group)


def _train(spec: RunSpec, folder: Path, manifest: Path, reference: Path, die_at: tuple[str, int] | None) -> None:
    torch.set_num_threads(1)
    if die_at:
        _die_inside(*die_at)
    train_proxy(spec, folder, Manifest.open(manifest), reference)


def _die_inside(place: str, call: int) -> None:
    """Kill this process at the n-th time that it comes to a place."""
    import training.checkpoint
    import training.group_dro
    import training.loop

    module, name, after = {
        "before a line": (training.group_dro, "append_flushed", False),
        "behind a line": (training.group_dro, "append_flushed", True),
        "points": (training.loop, "append_flushed", False),
        "state": (training.checkpoint, "save_file", True),
        "cut": (training.group_dro, "cut_lines", True),
    }[place]
    inner, counted = getattr(module, name), []

    def dying(*arguments, **options):
        counted.append(place)
        last = len(counted) == call
        if last and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        made = inner(*arguments, **options)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)
        return made

    setattr(module, name, dying)


def attempt(spec: RunSpec, folder: Path, manifest: Manifest, reference: Path, die_at=None, lines=None) -> int | None:
    """Exit code of a process that trains, killed once its path has so many lines."""
    process = FORKS.Process(target=_train, args=(spec, folder, manifest.folder, reference, die_at))
    process.start()
    if lines is not None:
        while process.is_alive() and _lines(folder / PATH) < lines:
            time.sleep(0.001)
        process.kill()
    process.join()
    return process.exitcode


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def assert_same(found: Path, expected: Path) -> None:
    for name in ("points.jsonl", PATH):
        assert (found / name).read_bytes() == (expected / name).read_bytes()


def assert_close(found: Path, expected: Path, tolerance: float = 1e-6) -> None:
    for own, other in zip(read_path(found), read_path(expected), strict=True):
        for part in ("weights", "mean", "excess"):
            assert own[part] == pytest.approx(other[part], abs=tolerance)
    points = [[point["loss"] for point in read_lines_whole(folder / "points.jsonl")] for folder in (found, expected)]
    assert points[0] == pytest.approx(points[1], abs=tolerance)
