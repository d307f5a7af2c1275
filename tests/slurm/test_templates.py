"""The batch scripts of slurm/: Slurm accepts them, and each of them trains."""

import re
import subprocess
from pathlib import Path

import pytest

from pipeline.study.artifacts import Machine
from pipeline.study.folder import Study
from tests.pipeline.small import wait_until
from tests.slurm.conftest import SLURM, Cluster
from training.attempt import attempts

pytestmark = pytest.mark.slurm
NAMES = ("one-run", "plan-array", "study")
DIRECTIVES = """\
--nodes=1
--ntasks-per-node=1
--cpus-per-task=1
--time=08:00:00
--signal=B:USR1@300
--requeue
--open-mode=append
"""


def _lines(name: str) -> list[str]:
    return (SLURM / f"{name}.sbatch").read_text().splitlines()


def test_slurm_accepts_each(cluster: Cluster, tmp_path: Path) -> None:
    for script in SLURM.glob("*.sbatch"):
        words = ["sbatch", "--test-only", "--gpus-per-node=2", "--nodes=2", str(script), "studies/law"]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, "to start at" in done.stderr) == (0, True), done.stderr


def test_shared_lines_are_equal() -> None:
    """Each script is complete by itself; the lines that they share must stay equal."""
    commands = {}
    for name in NAMES:
        options = [line.removeprefix("#SBATCH ") for line in _lines(name) if line.startswith("#SBATCH")]
        assert options[0] == f"--job-name=cptlaw-{name.split('-')[-1] if name != 'plan-array' else 'plan'}"
        assert "".join(f"{option}\n" for option in options[2:]) == DIRECTIVES
        commands[name] = [line.strip() for line in _lines(name) if line and not line.startswith("#")]
    place = [line for line in commands["one-run"] if re.match("(export|MASTER)", line)]
    retry = "if ((code == 75 || code == 70 || code > 128)) && [[ ! -e $study/STOP ]] &&"
    again = commands["one-run"][commands["one-run"].index(retry) :]
    assert len(place) == 4
    assert len(again) == 9
    for lines in commands.values():
        assert [line for line in lines if line in place] == place
        assert [line for line in lines if line in again and line != "}"][: len(again)] == again


@pytest.mark.slow
def test_an_array_over_the_plan(cluster, planned, losses, tmp_path) -> None:
    """By the commands in the header of the script."""
    study = planned("array")
    head = [line.removeprefix("#   ") for line in _lines("plan-array") if line.startswith("#   ")]
    assert head[0] == "cptlaw prepare OVERRIDES; cptlaw plan OVERRIDES"
    text = "\n".join(head[1:]).replace("studies/NAME", str(study.folder)).replace("slurm/", f"{SLURM}/")
    text = text.replace("sbatch --array", "sbatch --parsable --array") + '\necho "$first"'
    rest, first = cluster.shell(text, tmp_path)
    assert cluster.job(f"{rest}_2")["Dependency"].startswith("afterok:")
    for job in (f"{first}_1", f"{rest}_2", f"{rest}_3"):
        assert cluster.wait(job)["JobState"] == "COMPLETED"
    for run in study.read_plan():
        assert study.state(run) == "done"
        assert len(attempts(study.runs / run.name)) == 1
        losses(study, run.name)


@pytest.mark.slow
def test_the_whole_study(cluster: Cluster, words: list[str], studies: Path, tmp_path: Path) -> None:
    """Two workers on two nodes, signalled during training; then the recommendation."""
    folder = studies / "answered"
    more = ["law=transfer-anchored", "law.transfer-anchored.from_step=2", "bootstrap=2", "goal.tolerance=0.5"]
    more.append("confirm.neighbour=0")
    folder.mkdir()
    # Of a machine whose speed is known no speed is measured, which takes 20 s.
    Machine("fp32", {"qwen2-0.05m": None}, {"fp32": 1}, "a CPU").write(Study(folder))
    question = [word for word in words if not word.startswith("studies=")]
    job = cluster.submit("--nodes=2", SLURM / "study.sbatch", folder, *question, *more, folder=tmp_path)
    runs = folder / "runs"
    wait_until(lambda: any(path.stat().st_size for path in runs.glob("*/points.jsonl")), 400)
    subprocess.run(["scancel", "--batch", "--signal=USR1", job], check=True)
    state = cluster.wait(job, seconds=400)
    log = "".join(path.read_text() for path in tmp_path.glob("cptlaw-study-*.log"))
    assert (state["JobState"], state["Restarts"]) == ("COMPLETED", "1"), log
    assert (folder / "report.html").exists()
    study = Study(folder)
    assert {study.state(run) for run in study.read_plan()} == {"done"}
