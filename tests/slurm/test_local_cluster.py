"""local_cluster.py: it starts, allocates nodes, survives the failure of one, and removes all its files."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.small import wait_until
from tests.slurm import local_cluster
from tests.slurm.conftest import Cluster, require_slurm
from tests.slurm.local_cluster import APT

pytestmark = pytest.mark.slurm


def _call(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, local_cluster.__file__, *words]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=60)


def _srun(*words: str) -> list[str]:
    return sorted(subprocess.run(["srun", *words], capture_output=True, text=True, check=True).stdout.split())


def test_both_nodes_work(cluster: Cluster) -> None:
    assert _srun("--nodes=2", "sh", "-c", "echo $SLURMD_NODENAME") == ["127.0.0.1", "127.0.0.2"]
    assert _srun("--nodes=1", "--gres=gpu:2", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES") == ["0,1"]
    assert cluster.call("up") == f"export SLURM_CONF={cluster.conf}\n"


@pytest.mark.slow
def test_down_ends_jobs_and_daemons(cluster: Cluster, tmp_path: Path) -> None:
    """A second cluster does not touch that of the session, whose fixture checks `down` with accounting."""
    other, pid = Cluster(tmp_path / "other"), tmp_path / "pid"
    other.call("up", "--nodes", "1", "--gpus", "0")
    conf = {"SLURM_CONF": str(other.conf)}
    assert other.submit("--wrap", "echo $$ > pid; exec sleep 60", folder=tmp_path, **conf) == "1"
    wait_until(lambda: pid.exists() and pid.read_text())
    pids = [*other.daemons(), int(pid.read_text())]
    assert len(pids) == 3 + 1
    assert all(map(local_cluster.runs, pids))
    other.down()
    assert not any(map(local_cluster.runs, pids))
    other.down()
    assert _srun("hostname")


def test_refusals(tmp_path: Path) -> None:
    missing = _call("up", "--folder", str(tmp_path / "none"), PATH=str(tmp_path))
    assert (missing.returncode, APT in missing.stderr) == (3, True)
    assert not (tmp_path / "none").exists()
    assert _call("fail").returncode == 2


def test_a_foreign_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("ClusterName=real\n")
    for verb in ("up", "down"):
        refused = _call(verb, "--folder", str(tmp_path))
        assert (refused.returncode, "not made by this script" in refused.stderr) == (2, True)
    assert (tmp_path / "slurm.conf").exists()


@pytest.mark.parametrize(("required", "outcome"), [("1", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_without_slurm_ci_fails_and_others_skip(required: str, outcome: type[BaseException], monkeypatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    monkeypatch.setenv("CI_REQUIRE_SLURM", required)
    with pytest.raises(outcome, match=r"slurmctld, slurmd, sinfo: not installed; apt-get install .* slurmctld"):
        require_slurm()
