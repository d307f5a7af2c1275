"""A Slurm with accounting: what sacct knows of a study, preemption by a partition, limits of a quality of service."""

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline.cli.main import run
from pipeline.launch.slurm.client import Scheduler
from pipeline.launch.slurm.jobs import read_jobs
from pipeline.study.folder import Study
from tests.pipeline.small import refused, wait_until, worker
from tests.processes import run_forked
from tests.slurm.conftest import Cluster
from training.attempt import attempts

pytestmark = [pytest.mark.slurm, pytest.mark.slow]


def _sacct(job: str, fields: str, *options: str) -> list[str]:
    """Records of a job or an array, without its steps."""
    words = ["--noheader", "--parsable2", "--allocations", f"--jobs={job}", f"--format={fields}", *options]
    return subprocess.run(["sacct", *words], capture_output=True, text=True, check=True).stdout.splitlines()


def _sacctmgr(*words: str) -> None:
    done = subprocess.run(["sacctmgr", "--immediate", *words], capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


@pytest.fixture
def quality(accounting: Cluster) -> Iterator[str]:
    """A quality of service that the user may have, with one running job and three submitted ones a user."""
    user = subprocess.run(["id", "--user", "--name"], capture_output=True, text=True, check=True).stdout.strip()
    _sacctmgr("add", "qos", "narrow", "set", "MaxJobsPerUser=1", "MaxSubmitJobsPerUser=3")
    _sacctmgr("modify", "user", user, "set", "qos+=narrow")
    yield "narrow"
    _sacctmgr("modify", "user", user, "set", "qos-=narrow")
    _sacctmgr("delete", "qos", "narrow")


@pytest.fixture
def status(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[[Study], str]:
    """What `cptlaw status` prints of a study."""
    monkeypatch.setenv("COLUMNS", "250")

    def read(study: Study) -> str:
        capsys.readouterr()
        assert run(["status", str(study.folder)]) == 0
        return capsys.readouterr().out

    return read


def test_a_preempted_run_continues_with_the_same_points(accounting, words, studies, planned, tmp_path) -> None:
    whole = planned("whole")
    assert run_forked(worker(whole)).returncode == 0
    assert run(["train", *words, "name=preempted", "launcher=slurm", "launcher.slurm.partition=main"]) == 0
    study = Study(studies / "preempted")
    plan = study.read_plan()
    first, second, recommend = read_jobs(study)
    folder = study.runs / plan[0].name
    points = folder / "points.jsonl"
    wait_until(lambda: points.exists() and points.read_bytes().count(b"\n") >= 8)
    urgent = accounting.submit("--partition=urgent", "--nodes=2", "--exclusive", "--wrap=sleep 2", folder=tmp_path)
    assert accounting.wait(urgent)["JobState"] == "COMPLETED"
    for task in (f"{first.number}_0", f"{second.number}_0", f"{second.number}_1"):
        assert accounting.wait(task, "COMPLETED", "FAILED", "CANCELLED", seconds=180)["JobState"] == "COMPLETED"
    # What is behind the runs is tested without preemption.
    assert run(["cancel", str(study.folder)]) == 0

    before, after = attempts(folder)
    assert (before["exit_code"], before["reason"]) == (75, "asked to stop; saved")
    assert 0 < after["from_step"] < plan[0].spec.steps
    for planned_run in plan:
        of = f"{planned_run.name}/points.jsonl"
        assert (study.runs / of).read_bytes() == (whole.runs / of).read_bytes()

    number, last = first.number or "", recommend.number or ""
    wait_until(lambda: _sacct(last, "State") == [f"CANCELLED by {os.getuid()}"], 30, lambda: _sacct(last, "State"))
    lines = [f"{number}_0|{state}|main|main|cptlaw:{first.token}" for state in ("PREEMPTED", "COMPLETED")]
    assert _sacct(number, "JobID,State,Partition,Account,Comment", "--duplicates") == lines
    states = Scheduler().ended([job.number or "" for job in (first, second, recommend)])
    assert states.pop((last, 0)).reason == f"by user {os.getuid()}"
    assert {key: state.state for key, state in states.items()} == dict.fromkeys(
        ((number, 0), (second.number, 0), (second.number, 1)), "COMPLETED"
    )


def test_status_knows_how_a_job_ended_that_left_the_queue(accounting, prepared, tmp_path, status, monkeypatch) -> None:
    assert run(["train", *prepared, f"studies={tmp_path}", "launcher.slurm.python=false"]) == 0
    study = Study(tmp_path / "small")
    numbers = [job.number or "" for job in read_jobs(study)]
    train, behind, recommend = numbers
    final = ["CANCELLED"] * 4 + ["FAILED"] * 2
    wait_until(lambda: sorted(of.state for of in Scheduler().ended(numbers).values()) == final, 60)
    # Slurm forgets jobs after MinJobAge, which it checks once a minute.
    monkeypatch.setattr(Scheduler, "queue", lambda self: {})
    out = status(study)
    for index in (0, 1):
        ended = f"job {train}_{index} ended: FAILED; logs/slurm-{train}_{index}.out"
        assert f"{ended}; cptlaw train submits it again" in out
    for index in (0, 1, 2):
        assert f"job {behind}_{index} ended: CANCELLED" in out
    assert f"job {recommend} ended: CANCELLED" in out
    assert "is gone" not in out


def test_a_limit_of_the_quality_of_service_makes_runs_wait(
    accounting: Cluster, quality: str, prepared: list[str], tmp_path: Path, capsys, status: Callable[[Study], str]
) -> None:
    sleeping = [*prepared, f"studies={tmp_path}", f"launcher.slurm.qos={quality}", "launcher.slurm.setup=[sleep 600]"]
    # Two runs, and three behind one of them: more than three jobs are refused.
    line = refused(["train", *sleeping], capsys, 3)
    assert re.search(r"sbatch: error: Batch job submission failed: Job violates accounting/QOS policy \(.*\)", line)
    study = Study(tmp_path / "small")
    (number,) = [job.number for job in read_jobs(study) if job.number]
    assert f"submitted before that: {number}; the same command submits what is missing" in line
    accounting.wait(f"{number}_0", "RUNNING")
    out = status(study)
    waits = f"job {number}_1 waits: QOSMaxJobsPerUserLimit (a limit of your account or its quality of service)"
    wait_until(lambda: waits in status(study), 30, lambda: out)
    assert "sbatch refused it or did not answer" in status(study)
    wait_until(lambda: _sacct(f"{number}_0", "QOS,State") == [f"{quality}|RUNNING"], 30)
    # The rest of the study, without the limit.
    assert run(["train", *prepared, f"studies={tmp_path}", "launcher.slurm.setup=[sleep 600]"]) == 0
    assert len({job.number for job in read_jobs(study)} - {None}) == 3


@pytest.mark.parametrize(
    ("given", "reason", "listed"),
    [
        ("launcher.slurm.qos=none-such", "Invalid qos specification", "sacctmgr show associations "),
        ("launcher.slurm.account=none-such", "Invalid account or account/partition combination", "sacctmgr show assoc"),
        ("launcher.slurm.partition=none-such", "Invalid partition name specified", "sinfo "),
        ("launcher.slurm.mem=90000G", "Requested node configuration is not available", "sinfo --format='%P %m' "),
        ("launcher.slurm.extra=['--qos=none-such']", "Invalid qos specification", "sacctmgr show associations "),
    ],
)
def test_a_refused_name_is_one_line_with_its_key(given, reason, listed, accounting, prepared, tmp_path, capsys) -> None:
    line = refused(["train", *prepared, f"studies={tmp_path}", given], capsys, 3)
    assert f"Batch job submission failed: {reason}" in line
    assert f": {given}; {listed}" in line
    assert line.endswith("lists what is allowed; the same command submits what is missing")
    assert not [job.number for job in read_jobs(Study(tmp_path / "small")) if job.number]
