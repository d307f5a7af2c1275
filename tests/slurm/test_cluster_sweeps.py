"""Sweeps on a cluster: slurm/wandb-agent.sbatch and Hydra's submitit launcher give the runs of the plan."""

import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from pipeline.study.folder import Study
from tests.pipeline.small import CPTLAW, wait_until
from tests.slurm.conftest import SLURM, Cluster
from training.attempt import attempts
from training.durable import read_lines_whole

pytestmark = pytest.mark.slurm
SCRIPT = SLURM / "wandb-agent.sbatch"
AGENT = """\
#!{python}
# As `wandb agent` without a server: takes the next job, and forwards signals.
import os, signal, subprocess, sys
from pathlib import Path

here = Path({here!r})
assert sys.argv[1:] == ["agent", "--count", "1", "--forward-signals", "who/cptlaw/sweep"], sys.argv
with open(here / "agents", "a") as log:
    print(os.environ.get("SLURM_ARRAY_TASK_ID", ""), os.environ.get("SLURM_RESTART_COUNT", "0"), file=log)
ratio = ["0.2", "0.5"][int(os.environ.get("SLURM_ARRAY_TASK_ID", "1")) - 1]
words = (here / "words").read_text().splitlines()
program = [sys.executable, {program!r}, *words, "mixture.domain_ratio=" + ratio]
job = subprocess.Popen(program, process_group=0)
signal.signal(signal.SIGTERM, lambda number, frame: job.send_signal(number))
sys.exit(job.wait() and 0)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder whose .venv/bin has an agent."""
    tools = tmp_path / ".venv" / "bin"
    tools.mkdir(parents=True)
    program = str(SLURM.parent / "pipeline" / "cli" / "sweep.py")
    agent = tools / "wandb"
    agent.write_text(AGENT.format(python=sys.executable, here=str(tmp_path), program=program))
    agent.chmod(0o755)
    return tmp_path


@pytest.mark.slow
def test_an_array_of_agents_fills_one_study_and_near_its_time_limit_saves_and_is_requeued(
    cluster: Cluster, words: list[str], studies: Path, place: Path
) -> None:
    overrides = [word for word in words if not word.startswith(("mixture.domain_ratio=", "pretrain.steps="))]
    overrides += ["name=agents", "pretrain.steps=800", "pretrain.evaluation.every=10", "allow_repeats=true"]
    (place / "words").write_text("\n".join(overrides))
    job = cluster.submit("--array=1-2", "--export=ALL", SCRIPT, "who/cptlaw/sweep", folder=place)
    study, agents = Study(studies / "agents"), place / "agents"
    wait_until(lambda: agents.exists() and len(agents.read_text().splitlines()) == 2, 90)
    wait_until(
        lambda: any(
            point["step"] > 0
            for points in study.runs.glob("pretrain*/points.jsonl")
            for point in read_lines_whole(points)
        ),
        90,
    )
    # One trains the run that both need; the other waits for it, and takes it over while it lives.
    subprocess.run(["scancel", "--batch", "--signal=USR1", job], check=True, env=os.environ)
    tasks = [f"{job}_{task}" for task in (1, 2)]
    for task in tasks:
        assert cluster.wait(task, "PENDING", "COMPLETED", seconds=90)["JobState"] == "PENDING"
    assert [cluster.wait(task, "COMPLETED", seconds=240)["Restarts"] for task in tasks] == ["1", "1"]
    assert sorted(agents.read_text().splitlines()) == ["1 0", "1 1", "2 0", "2 1"]
    (trunk,) = study.runs.glob("pretrain*")
    *stopped, last = attempts(trunk)
    assert {record["exit_code"] for record in stopped} == {75}
    assert last["from_step"] > 0
    steps = [point["step"] for point in read_lines_whole(trunk / "points.jsonl")]
    assert steps == sorted(steps)
    assert steps[-1] == 800
    plan = study.read_plan()
    assert {Fraction(run.spec.mixture["domain"]) for run in plan} == {0, Fraction(1, 5), Fraction(1, 2)}
    assert all(study.state(run) == "done" for run in plan)
    assert [len(attempts(study.runs / run.name)) for run in plan] == [1 + len(stopped), 1, 1]


@pytest.mark.slow
def test_a_sweep_through_submitit(cluster, words, planned, losses) -> None:
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
