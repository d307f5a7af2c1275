"""A sweep through Hydra's submitit launcher: the same folders and run names."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

import pytest

from pipeline.study.folder import Study
from tests.pipeline.small import CPTLAW
from tests.slurm.conftest import Cluster


@pytest.mark.slow
@pytest.mark.slurm
def test_a_sweep_through_submitit(
    cluster: Cluster, words: list[str], planned: Callable[..., Study], losses: Callable[..., None]
) -> None:
    study = planned("submitit")
    more = ["hydra/launcher=submitit_slurm", "hydra.launcher.timeout_min=5", "hydra.launcher.mem_gb=1"]
    command = [*CPTLAW, "train", "-m", *words, "name=submitit", *more]
    # Each job trains its ratio; one of them trains the pre-training that both need.
    command += ["mixture.domain_ratio=0.2,0.5", "launcher.workers=1"]
    done = subprocess.run(command, env=os.environ | {"SLURM_CONF": str(cluster.conf)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    jobs = list((study.folder / "hydra").rglob("*_submitted.pkl"))
    assert len(jobs) == 2
    runs = [run.name for run in study.read_plan()]
    assert len(runs) == 3
    assert {path.name for path in study.runs.iterdir()} == set(runs)
    losses(study, *runs)
