"""A whole study on a real Slurm: submitted by one command, requeued, cancelled."""

import subprocess
from pathlib import Path

import pytest

from pipeline.cli.main import run
from pipeline.goals.active.history import read_rounds
from pipeline.launch.slurm.jobs import read_jobs
from pipeline.study.artifacts import Confirmation
from pipeline.study.folder import Study
from tests.pipeline.small import CPTLAW, wait_until
from tests.slurm.conftest import Cluster
from training.attempt import attempts

pytestmark = pytest.mark.slow


def _ended(cluster: Cluster, study: Study) -> bool:
    """Whether the last job of a study has ended, or one behind its runs has failed."""
    jobs = [job for job in read_jobs(study) if not job.tasks]
    states = [cluster.job(job.number or "").get("JobState") for job in jobs if job.number]
    confirmed = (study.folder / "confirmation.json").exists()
    return (confirmed and states[-1] == "COMPLETED") or "FAILED" in states or "CANCELLED" in states


def _logs(study: Study) -> str:
    return "".join(path.read_text() for path in sorted((study.folder / "logs").iterdir()))


def test_from_one_command_in_rounds_to_a_confirmed_answer(cluster, prepared, tmp_path, capsys) -> None:
    # A folder name that a shell would interpret.
    studies = tmp_path / "it's $(touch evil) 100%j"
    design = ["design=active", "design.batch=2", "design.lengths=[1]", "design.ratios=[0.2,0.5,0.9]", "ladder=[]"]
    limits = ["design.tolerance=0.001", "design.budget=1e12", "bootstrap=2", "confirm.neighbour=0"]
    # So that the answer is no end of the ratios, where one round would do.
    limits += ["goal.tolerance=0.02"]
    words = [*prepared, *design, *limits, f'studies="{studies}"']
    study = Study(studies / "small")
    # The user's process ends before the runs; on a busy machine the first may be done by then.
    subprocess.run([*CPTLAW, "train", *words], check=True)
    assert [job.kind for job in read_jobs(study)] == ["train", "train", "continue"]
    assert "open" in {study.state(planned) for planned in study.read_plan()}

    wait_until(lambda: _ended(cluster, study), 600, lambda: _logs(study))
    # A round after the other, and no confirmation before the last.
    kinds = [job.kind for job in read_jobs(study)]
    assert kinds == ["train", "train", "continue", "train", "continue", "train", "continue"], _logs(study)
    assert [len(one.chosen) for one in read_rounds(study)] == [2, 1, 0]
    assert len(Confirmation.read(study).confirmations) == 2
    assert "confirmation" in (study.folder / "report.html").read_text()
    for planned in study.read_plan():
        (attempt,) = attempts(study.runs / planned.name)
        assert attempt["exit_code"] == 0
    assert run(["train", *words]) == 0
    assert "done and confirmed" in capsys.readouterr().out
    assert len(read_jobs(study)) == len(kinds)
    assert not [path for path in (*tmp_path.rglob("evil"), *Path.cwd().glob("evil"))]


# Eight jobs, each of which loads the libraries: over a minute, so CI does not run it.
@pytest.mark.rehearsal
def test_a_papers_experiment_is_rehearsed_through_the_cluster(cluster: Cluster, tmp_path: Path, capsys) -> None:
    words = ["experiment=dynamics-paper-open", "rehearsal=true", "launcher=slurm", f"studies={tmp_path}"]
    words.append(f"data={tmp_path / 'data'}")
    assert run(["prepare", *words]) == 0
    assert run(["train", *words]) == 0
    study = Study(tmp_path / "dynamics-paper-open-rehearsal")
    wait_until(lambda: _ended(cluster, study), 600, lambda: _logs(study))
    assert {study.state(planned) for planned in study.read_plan()} == {"done"}
    assert "Rehearsal, no result: " in (study.folder / "report.html").read_text()
    assert run(["tables", str(study.folder)]) == 0
    assert "dynamics-figure-18" in capsys.readouterr().out


def test_a_requeued_job_on_two_nodes_continues_and_a_cancelled_one_does_not(cluster, prepared, tmp_path) -> None:
    spread = ["parallel=ddp", "parallel.processes=2", "launcher.slurm.nodes=2", "launcher.slurm.gpus=0"]
    words = [*prepared, *spread, f"studies={tmp_path}", "pretrain.steps=20000", "allow_repeats=true", "ladder=[]"]
    assert run(["train", *words]) == 0
    study = Study(tmp_path / "small")
    folder = study.runs / study.read_plan()[0].name
    job = read_jobs(study)[0].number or ""
    wait_until((folder / "metrics.jsonl").exists, 90)
    # As Slurm does near the time limit.
    subprocess.run(["scancel", "--batch", "--signal=USR1", f"{job}_0"], check=True)
    wait_until(lambda: len(attempts(folder)) == 2 and "from_step" in attempts(folder)[1], 180, lambda: cluster.job(job))
    first, second = attempts(folder)
    assert (first["exit_code"], first["reason"], first["processes"]) == (75, "asked to stop; saved", 2)
    assert second["from_step"] > 0
    now = cluster.job(job)
    assert (now["Restarts"], now["NumNodes"]) == ("1", "2")
    # A cancelled run saves too, and is not requeued.
    assert run(["cancel", str(study.folder)]) == 0
    wait_until(lambda: "end" in attempts(folder)[1], 60)
    assert attempts(folder)[1]["exit_code"] == 75
    assert cluster.wait(job)["JobState"] == "CANCELLED"
    assert cluster.job(read_jobs(study)[-1].number or "")["JobState"] == "CANCELLED"
    assert (cluster.job(job)["Restarts"], len(attempts(folder))) == ("1", 2)


def test_several_runs_of_a_task_train_side_by_side(cluster: Cluster, prepared: list[str], tmp_path: Path) -> None:
    several = [
        "launcher.runs_per_device=2",
        "launcher.slurm.gpus=1",
        "launcher.slurm.cpus=1",
        "launcher.slurm.mem=null",
        # Longer than a worker takes to start on a busy machine.
        *("pretrain.steps=300", "target.steps=600", "allow_repeats=true"),
    ]
    words = [*prepared, *several, f"studies={tmp_path}", "mixture.domain_ratio=[0.2,0.5,0.9]"]
    assert run(["train", *words]) == 0
    study = Study(tmp_path / "small")
    arrays = [job for job in read_jobs(study) if job.tasks]
    for job in arrays:
        cluster.wait(job.number or "", "COMPLETED", seconds=120)
        assert cluster.job(job.number or "")["NumTasks"] == "2"
    assert [sorted(job.tasks.values()) for job in arrays] == [[0, 0], [0, 0, 1]]
    records = {planned.spec.hash: attempts(study.runs / planned.name) for planned in study.read_plan()}
    assert all(len(of_run) == 1 and of_run[0]["exit_code"] == 0 for of_run in records.values())
    pairs = [(records[one][0], records[other][0]) for one, other in (list(job.tasks)[:2] for job in arrays)]
    assert all(first["host"] == second["host"] for first, second in pairs)
    # On a busy machine a worker may start once the other has trained its run too, but hardly in both tasks.
    assert any(first["pid"] != second["pid"] for first, second in pairs)
