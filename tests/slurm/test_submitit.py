"""Hydra's own launcher for Slurm: a sweep whose jobs are submitit's ends in the same folders under the same names."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from pipeline.study.folder import Study
from tests.slurm.conftest import Cluster


@pytest.mark.slow
@pytest.mark.slurm
def test_a_sweep_through_submitit(
    cluster: Cluster, words: list[str], planned: Callable[..., Study], losses: Callable[..., None]
) -> None:
    study = planned("submitit")
    more = ["hydra/launcher=submitit_slurm", "hydra.launcher.timeout_min=5", "hydra.launcher.mem_gb=1"]
    command = [sys.executable, "-m", "pipeline.cli.main", "train", "-m", *words, "name=submitit", *more]
    # Neither may train the other's share: both first wait for, or make, the one pre-training.
    command += ["mixture.domain_ratio=0.2,0.5", "launcher.workers=1"]
    done = subprocess.run(command, env=os.environ | {"SLURM_CONF": str(cluster.conf)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    jobs = list((study.folder / "hydra").rglob("*_submitted.pkl"))
    assert len(jobs) == 2
    runs = [run.name for run in study.read_plan()]
    assert len(runs) == 3
    assert {path.name for path in study.runs.iterdir()} == set(runs)
    losses(study, *runs)
