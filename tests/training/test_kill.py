"""Kill -9 at any moment and start again: the points end byte for byte as without the kill."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.training.forks import FORKS
from training.corpora.manifest import Manifest
from training.run import Places, run_once, state_of
from training.spec import Execution, RunSpec


def _train(spec: RunSpec, folder: Path, manifest: Path, die_at: tuple[str, int] | None) -> None:
    import torch

    torch.set_num_threads(1)
    if die_at:
        _die_inside(*die_at)
    places = Places(folder=folder, manifest=Manifest.open(manifest), engines=folder / "engines")
    run_once(spec, places, Execution(engine="eager", resume_every=3))


def _die_inside(place: str, call: int) -> None:
    """Kill this process at the n-th time that it comes to a place."""
    import training.checkpoint
    import training.loop

    counted = 0

    def dying(inner):
        def wrapped(*arguments, **options):
            nonlocal counted
            counted += 1
            if counted == call:
                os.kill(os.getpid(), signal.SIGKILL)
            return inner(*arguments, **options)

        return wrapped

    module, name = {
        "evaluation": (training.loop, "evaluate"),
        "points": (training.loop, "append_flushed"),
        "state": (training.checkpoint, "save_file"),
        "state rename": (training.checkpoint.os, "rename"),
        "checkpoint marker": (training.checkpoint, "write_whole"),
        "weights": (training.loop, "save_weights"),
    }[place]
    setattr(module, name, dying(getattr(module, name)))


def _attempt(spec: RunSpec, folder: Path, manifest: Manifest, die_at=None, after: float | None = None) -> int | None:
    process = FORKS.Process(target=_train, args=(spec, folder, manifest.folder, die_at))
    process.start()
    if after is not None:
        time.sleep(after)
        process.kill()
    process.join()
    return process.exitcode


@pytest.fixture(scope="module")
def undisturbed(spec: RunSpec, manifest: Manifest, tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, float]:
    folder = tmp_path_factory.mktemp("undisturbed")
    assert _attempt(spec, folder / "first", manifest) == 0
    start = time.perf_counter()
    assert _attempt(spec, folder / "run", manifest) == 0
    points = (folder / "run" / "points.jsonl").read_bytes()
    assert points == (folder / "first" / "points.jsonl").read_bytes()
    return points, time.perf_counter() - start


INSIDE = [("evaluation", 3), ("evaluation", 6), ("points", 2), ("state", 2), ("state rename", 3)]
INSIDE += [("checkpoint marker", 2), ("weights", 1), ("state", 1)]


@pytest.mark.parametrize("die_at", INSIDE, ids=lambda die_at: f"{die_at[0]} {die_at[1]}")
def test_killed_inside(die_at, spec: RunSpec, manifest: Manifest, undisturbed, tmp_path: Path) -> None:
    assert _attempt(spec, tmp_path, manifest, die_at) == -signal.SIGKILL
    assert state_of(tmp_path) == "open"
    assert _attempt(spec, tmp_path, manifest) == 0
    assert (tmp_path / "points.jsonl").read_bytes() == undisturbed[0]


@pytest.mark.slow
def test_killed_at_twenty_random_moments(spec: RunSpec, manifest: Manifest, undisturbed, tmp_path: Path) -> None:
    points, seconds = undisturbed
    draw = random.Random(0)
    killed = 0
    for run in range(40):
        folder = tmp_path / str(run)
        killed += _attempt(spec, folder, manifest, after=draw.uniform(0.0, seconds)) == -signal.SIGKILL
        assert _attempt(spec, folder, manifest) == 0
        assert (folder / "points.jsonl").read_bytes() == points
        if killed == 20:
            return
    assert killed >= 20


def test_a_state_cut_short_falls_back_to_the_one_before(
    spec: RunSpec, manifest: Manifest, undisturbed, tmp_path: Path
) -> None:
    _attempt(spec, tmp_path, manifest, ("weights", 1))
    states = sorted((tmp_path / "resume").glob("step-*"), key=lambda path: int(path.name[5:]))
    assert [path.name for path in states] == ["step-15", "step-18"]
    newest = states[-1] / "state.safetensors"
    newest.write_bytes(newest.read_bytes()[:-100])
    assert _attempt(spec, tmp_path, manifest) == 0
    assert (tmp_path / "points.jsonl").read_bytes() == undisturbed[0]


def test_points_cut_in_the_middle_of_a_line_are_written_again(
    spec: RunSpec, manifest: Manifest, undisturbed, tmp_path: Path
) -> None:
    _attempt(spec, tmp_path, manifest, ("weights", 1))
    with open(tmp_path / "points.jsonl", "rb+") as stream:
        stream.truncate(stream.seek(0, os.SEEK_END) - 40)
    assert _attempt(spec, tmp_path, manifest) == 0
    assert (tmp_path / "points.jsonl").read_bytes() == undisturbed[0]
