"""Kill -9 of one process of two, or of both, at any moment: none hangs, and the points end as without it."""

import dataclasses
import os
import random
import signal
import time
from multiprocessing.connection import wait
from pathlib import Path

import pytest

from tests.training.runs import in_process, points_of, together, train_run
from training.devices.group import Parallel, join, leave
from training.evaluation_steps import EvaluationPolicy
from training.run import state_of
from training.spec import RunSpec

KILLS = 2
TIMEOUT = 10.0
"""Seconds that a process waits for one that never came; of one that it has met it hears at once that it is gone."""
HANGS = 150.0
"""Seconds after which a process that goes on alone hangs: on a busy machine its start alone takes half a minute."""


def _train(rank: int, spec: RunSpec, folder: Path, manifest: Path, kind: str) -> None:
    group = join(Parallel(kind, 2, timeout=TIMEOUT))
    train_run(spec, folder, manifest, group=group, resume_every=5, parallel=Parallel(kind, 2))
    leave(group)


def _attempt(spec: RunSpec, folder: Path, manifest: Path, kind: str, victims: list[int], after: float) -> bool:
    """Train until killed or done; whether the kill came before the end."""
    pair = together(_train, spec, folder, manifest, kind)
    wait([process.sentinel for process in pair], timeout=after if victims else None)
    killed = all(process.is_alive() for process in pair)
    for victim in victims if killed else ():
        pair[victim].kill()
    for process in pair:
        process.join(timeout=HANGS)
    hanging = [process for process in pair if process.is_alive()]
    for process in hanging:
        # Its stack, to the test's stderr.
        os.kill(process.pid, signal.SIGUSR1)
        process.join(timeout=1.0)
        process.kill()
    assert not hanging
    return killed


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ddp", "fsdp2", "zero2"])
def test_killed_at_random_moments(kind, spec, manifest, tmp_path):
    spec = dataclasses.replace(spec, steps=40, evaluation=EvaluationPolicy("dense", every=4))
    in_process(int)
    begin = time.perf_counter()
    assert not _attempt(spec, tmp_path / "whole", manifest.folder, kind, [], 0.0)
    seconds = time.perf_counter() - begin
    undisturbed = points_of(tmp_path / "whole")
    draw = random.Random(0)
    kills = 0
    for run in range(3 * KILLS):
        folder = tmp_path / str(run)
        while state_of(folder) != "done":
            victims = draw.choice([[0], [1], [0, 1]]) if kills < KILLS else []
            kills += _attempt(spec, folder, manifest.folder, kind, victims, draw.uniform(0.0, seconds))
        points = points_of(folder)
        for key, tolerance in (("step", 0), ("tokens", 0), ("learning_rate", 0), ("loss", 1e-6), ("loss_stderr", 1e-6)):
            assert [p[key] for p in points] == pytest.approx([p[key] for p in undisturbed], abs=tolerance)
        assert [p["corpus"] for p in points] == [p["corpus"] for p in undisturbed]
        if kills >= KILLS:
            return
    raise AssertionError(f"only {kills} of {KILLS} kills came before the end")


def _one_dies_before_they_meet_again(rank: int) -> None:
    import torch

    join(Parallel("ddp", 2, timeout=2.0))
    if rank == 1:
        os._exit(0)
    # As deepspeed does when it begins: of one that is not there yet nobody hears that it is gone.
    torch.distributed.new_group([0, 1])


@pytest.mark.slow
def test_one_that_dies_before_a_group_of_its_own_is_not_waited_for_longer_than_was_asked():
    first, _ = pair = together(_one_dies_before_they_meet_again)
    for process in pair:
        process.join(timeout=30.0)
    hangs = first.is_alive()
    first.kill()
    assert not hangs
