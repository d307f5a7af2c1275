"""Time limits, requeues and failed nodes during a run: it continues in the same folder with the same losses."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.goals.registry import load_question
from pipeline.launch import work
from pipeline.launch.ranks import rank_environment
from pipeline.launch.work import fail_after_retries
from pipeline.study.folder import PlannedRun, Study
from tests.pipeline.small import CPTLAW, wait_until
from tests.processes import Forked
from tests.slurm.conftest import SLURM, Cluster
from training.attempt import attempts
from training.durable import write_whole
from training.run import Exit
from training.spec import SpecError

slurm = [pytest.mark.slurm, pytest.mark.slow]
REASON = "{} attempts failed, the last one: the process ended without a message\n"
TWO_NODES = ("parallel=ddp", "parallel.processes=2")
Planned = Callable[..., Study]
Losses = Callable[..., None]


def _first(study: Study) -> tuple[PlannedRun, Path]:
    run = study.read_plan()[0]
    return run, study.runs / run.name


def _submit(cluster: Cluster, study: Study, name: str, folder: Path, *words: str) -> str:
    return cluster.submit(*words, SLURM / "one-run.sbatch", study.folder, name, folder=folder)


def _wait_for_points(folder: Path, attempt: int, lines: int) -> None:
    """Return once the attempt of that number exists, with so many points."""
    points, record = folder / "points.jsonl", folder / "attempts" / f"{attempt:03d}.json"
    wait_until(lambda: record.exists() and points.exists() and points.read_bytes().count(b"\n") >= lines)


def _wait_for_signal(pid: int, number: int) -> None:
    """Return once a stopped process has a pending signal."""

    def pending() -> int:
        status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        return int(status["ShdPnd"], 16) >> (number - 1) & 1

    wait_until(pending)


def test_deaths_count_from_the_last_progress(planned: Planned) -> None:
    study = planned("moving")
    _, folder = _first(study)
    question = load_question(study.folder / "study.yaml", again=False)
    question.launcher.retries = 1

    def die(number: int, **facts: int) -> bool:
        record = {"attempt": number, "host": "gone", "boot": "", "pid": 1, **facts}
        write_whole(folder / "attempts" / f"{number:03d}.json", json.dumps(record))
        return fail_after_retries(folder, question)

    (folder / "attempts").mkdir(parents=True)
    assert not die(1, from_step=0)
    assert not die(2, from_step=20)
    # A saved state is no death.
    assert not die(3, from_step=40, exit_code=75, end="2026-11-26T10:00:00+00:00")
    assert not die(4)
    assert die(5, from_step=40)
    assert (folder / "FAILED").read_text() == REASON.format(2)


def test_a_run_outside_the_plan_is_refused(planned: Planned, capfd: pytest.CaptureFixture[str]) -> None:
    study = planned("unplanned")
    question = load_question(study.folder / "study.yaml", again=False)
    assert work.run_worker(study, question, "pretrain-1") == Exit.INPUT_MISSING
    assert capfd.readouterr().err == f"run: 'pretrain-1' is not in {study.plan_file}; see cptlaw status {study.word}\n"


def test_ranks_of_srun_tasks() -> None:
    step = {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "3", "SLURM_LOCALID": "1"}
    assert rank_environment("ddp", 4, step) == {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}
    assert rank_environment("zero2", 4, step | {"CUDA_VISIBLE_DEVICES": "0,1"})["LOCAL_RANK"] == "1"
    assert rank_environment("zero2", 4, step | {"CUDA_VISIBLE_DEVICES": "5"})["LOCAL_RANK"] == "0"
    with pytest.raises(SpecError, match=r"parallel.processes: 2, but srun started 4; allowed: --ntasks=2"):
        rank_environment("ddp", 2, step)
    # No additions where RANK is set, in a step of one task, and with a run per task, where GPUs are distributed.
    assert rank_environment("ddp", 2, step | {"RANK": "0"}) == {}
    assert rank_environment("ddp", 2, step | {"SLURM_STEP_NUM_TASKS": "1"}) == {}
    assert rank_environment("single", 1, step) == {}
    assert rank_environment("single", 1, step | {"CUDA_VISIBLE_DEVICES": "4,6"}) == {"CUDA_VISIBLE_DEVICES": "6"}


def test_every_stop_signal_saves_as_ctrl_c_does(planned: Planned, words: list[str]) -> None:
    study = planned("signalled")
    run, folder = _first(study)
    command = [*CPTLAW, "train", *words, "name=signalled", "launcher.workers=1"]
    process = Forked(command)
    _wait_for_points(folder, 1, 2)
    process.send_signal(signal.SIGUSR1)
    assert process.wait(timeout=60) == Exit.RUN_ME_AGAIN
    assert [record["exit_code"] for record in attempts(folder)] == [75]
    assert study.state(run) == "open"


class TestOnTheCluster:
    pytestmark = slurm

    def test_two_nodes_out_of_time_then_one_dies(self, cluster: Cluster, planned, losses, tmp_path) -> None:
        study = planned("two-nodes", *TWO_NODES)
        run, folder = _first(study)
        job = _submit(cluster, study, run.name, tmp_path, "--nodes=2", "--time=10", "--signal=B:USR1@55")
        _wait_for_points(folder, 1, 20)
        # Slurm checks time limits twice a minute; the run must not end before its signal.
        pid = attempts(folder)[0]["pid"]
        os.kill(pid, signal.SIGSTOP)
        subprocess.run(["scontrol", "update", f"JobId={job}", "TimeLimit=1"], check=True)
        _wait_for_signal(pid, signal.SIGUSR1)
        subprocess.run(["scontrol", "update", f"JobId={job}", "TimeLimit=10"], check=True)
        os.kill(pid, signal.SIGCONT)

        _wait_for_points(folder, 2, 60)
        # This node runs the batch script and the process that writes.
        cluster.call("fail", "127.0.0.1")
        cluster.call("up")
        assert cluster.wait(job)["JobState"] == "COMPLETED"
        assert cluster.job(job)["Restarts"] == "2"
        first, second, third = attempts(folder)
        assert (first["exit_code"], first["processes"], second.get("exit_code"), third["exit_code"]) == (75, 2, None, 0)
        assert 0 < second["from_step"] < third["from_step"] < run.spec.steps
        losses(study, run.name)

    def test_a_requeued_run_fails_after_too_many_deaths(self, cluster: Cluster, planned, tmp_path) -> None:
        study = planned("dying", "launcher.retries=0")
        run, folder = _first(study)
        job = _submit(cluster, study, run.name, tmp_path)
        _wait_for_points(folder, 1, 4)
        subprocess.run(["scontrol", "requeue", job], check=True)
        _wait_for_points(folder, 2, 4)
        first, second = attempts(folder)
        assert (first["exit_code"], first["reason"]) == (75, "asked to stop; saved")
        os.kill(second["pid"], signal.SIGKILL)
        state = cluster.wait(job)
        assert (state["JobState"], state["ExitCode"], state["Restarts"]) == ("FAILED", "1:0", "2")
        assert (folder / "FAILED").read_text() == REASON.format(1)

    def test_cancelled_and_stopped_runs_save_and_stay_stopped(self, cluster: Cluster, planned, tmp_path) -> None:
        study = planned("cancelled")
        run, folder = _first(study)
        job = _submit(cluster, study, run.name, tmp_path)
        _wait_for_points(folder, 1, 4)
        subprocess.run(["scancel", job], check=True)
        assert cluster.wait(job)["JobState"] == "CANCELLED"
        assert [record["exit_code"] for record in attempts(folder)] == [75]
        assert (cluster.job(job)["Restarts"], study.state(run)) == ("0", "open")

        (study.folder / "STOP").touch()
        stopped = cluster.wait(_submit(cluster, study, run.name, tmp_path))
        assert (stopped["JobState"], stopped["ExitCode"], stopped["Restarts"]) == ("FAILED", "75:0", "0")

    def test_a_mistake_is_not_requeued(self, cluster: Cluster, planned: Planned, tmp_path: Path) -> None:
        """Even if one of two processes is still starting when the other fails."""
        study = planned("mistake", *TWO_NODES)
        job = _submit(cluster, study, "nothing", tmp_path, "--nodes=2")
        state = cluster.wait(job)
        assert (state["JobState"], state["ExitCode"], state["Restarts"]) == ("FAILED", "3:0", "0")
        log = next(tmp_path.glob("cptlaw-run-*.log")).read_text()
        # srun's line on the other process may come first.
        assert f"run: 'nothing' is not in {study.plan_file}; see cptlaw status {study.word}" in log.splitlines()
