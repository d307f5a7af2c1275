"""launcher=slurm against a fake Slurm: what is submitted, and recovery when a command fails or hangs."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

import pytest

from pipeline.cli.main import run
from pipeline.done import not_collected
from pipeline.goals.registry import goal_of, question_of_study
from pipeline.goals.weights.artifacts import WeightsConfirmation
from pipeline.launch.slurm.client import Scheduler, SchedulerError
from pipeline.launch.slurm.jobs import read_jobs
from pipeline.plan.write import add_to_plan
from pipeline.study.context import Context
from pipeline.study.folder import PlannedRun, Study
from tests.pipeline.small import CPTLAW, refused, wait_until, worker, write_losses
from tests.processes import Forked, run_forked
from tests.slurm.fake_slurm import FakeSlurm

BRANCH = "continual.branches=[{step: 6, steps: 6, schedule: {pieces: [{shape: linear, end: 0.1}]}}]"


@pytest.fixture
def words(prepared: list[str], tmp_path: Path) -> list[str]:
    return [*prepared, f"studies={tmp_path / 'studies'}"]


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study(tmp_path / "studies" / "small")


def _arrays(slurm: FakeSlurm) -> list[tuple[str, str, str]]:
    return [(job["id"], job["array"], job["after"]) for job in slurm.jobs()]


def _mark(study: Study, marker: str, *runs: PlannedRun) -> None:
    """Let runs have ended, as DONE or FAILED."""
    for planned in runs:
        (study.runs / planned.name).mkdir(parents=True)
        (study.runs / planned.name / marker).write_text("{}\n" if marker == "DONE" else "loss is nan at step 3\n")


def _driver(words: list[str]) -> Forked:
    """`cptlaw train` in another process."""
    return Forked([*CPTLAW, "train", *words])


def test_arrays_wait_for_the_runs_that_they_start_from(words, study, slurm, capsys) -> None:
    assert run(["train", *words, BRANCH, "launcher.slurm.limit=2"]) == 0
    plan = study.read_plan()
    assert [run.name.split("-")[0] for run in plan] == ["pretrain"] * 2 + ["continual"] * 6
    # Two models; three ratios behind the second; a branch behind the ratio of the same index; what continues.
    assert _arrays(slurm) == [
        ("1", "0-1%2", ""),
        ("2", "0-2%2", "afterok:1_1"),
        ("3", "0-2%2", "aftercorr:2"),
        ("4", "", "afterok:1:2:3"),
    ]
    out = capsys.readouterr().out
    assert all(f"\n{number} " in out for number in "1234")
    tasks = {run: (job.number, index) for job in read_jobs(study) for run, index in job.tasks.items()}
    tokens = {job.number: job.token for job in read_jobs(study)}
    for planned in plan:
        number, index = tasks[planned.spec.hash]
        beside = (study.folder / "jobs" / f"{tokens[number]}.tasks").read_text().splitlines()
        assert f"{index} {planned.spec.hash}" in beside
        assert not planned.spec.initial.moments or tasks[planned.parent or ""][1] == index
    for job in slurm.jobs():
        assert ("--kill-on-invalid-dep=yes" in job["words"]) == bool(job["after"])


def test_a_task_trains_several_runs(words, study, slurm) -> None:
    several = ["launcher.slurm.gpus=1", "launcher.runs_per_device=2"]
    assert run(["train", *words, BRANCH, *several, "launcher.slurm.limit=1"]) == 0
    # Both models; three ratios, two a task; each branch in the task of the index of its ratio.
    arrays = [("1", "0%1", ""), ("2", "0-1%1", "afterok:1_0"), ("3", "0-1%1", "aftercorr:2")]
    assert _arrays(slurm) == [*arrays, ("4", "", "afterok:1:2:3")]
    indices = [[*job.tasks.values()] for job in read_jobs(study)]
    assert indices == [[0, 0], [0, 0, 1], [0, 0, 1], []]
    first = next(iter(read_jobs(study)[1].tasks))
    # What is missing later is dealt anew.
    for number in ("1", "2", "3", "4"):
        slurm.change(number, "GONE", "")
    plan = study.read_plan()
    _mark(study, "DONE", *(planned for planned in plan if first not in (planned.spec.hash, planned.parent)))
    assert run(["train", *words, BRANCH, *several]) == 0
    assert _arrays(slurm)[4:] == [("5", "0", ""), ("6", "0", "afterok:5_0"), ("7", "", "afterok:5:6")]


def test_what_is_done_or_queued_is_not_submitted_again(words, study, slurm, capsys) -> None:
    assert run(["train", *words]) == 0
    assert len(slurm.jobs()) == 3
    assert run(["train", *words]) == 0
    assert len(slurm.jobs()) == 3
    assert "nothing to submit" in capsys.readouterr().out
    _mark(study, "DONE", *study.read_plan()[:3])
    # The arrays left the queue; the waiting job behind them depends on too few runs and is replaced.
    slurm.change("1", "GONE", "")
    slurm.change("2", "GONE", "")
    assert run(["train", *words]) == 0
    assert _arrays(slurm)[3:] == [("4", "0-1", ""), ("5", "", "afterok:4")]
    assert slurm.jobs()[2]["state"] == "CANCELLED"
    # A job that can never start counts as gone.
    slurm.change("4", "PENDING", "DependencyNeverSatisfied")
    slurm.change("5", "CANCELLED", "DependencyNeverSatisfied")
    assert run(["train", *words]) == 0
    assert len(slurm.jobs()) == 7
    # A wider grid submits the new runs.
    wider = [word.replace("[0.1,0.5,0.9]", "[0.1,0.3,0.5,0.9]") for word in words]
    assert run(["train", *wider]) == 0
    assert _arrays(slurm)[7:] == [("8", "0", ""), ("9", "", "afterok:6:8")]
    assert run(["cancel", str(study.folder)]) == 0
    assert {job["state"] for job in slurm.jobs() if job["id"] in "6789"} == {"CANCELLED"}


def test_a_job_that_continues_is_behind_all_queued_runs(words, study, slurm) -> None:
    assert run(["train", *words]) == 0
    # As a job that was killed between the arrays and the job behind them, and goes on.
    slurm.change("3", "RUNNING", "None")
    assert run(["train", *words]) == 0
    assert _arrays(slurm)[3:] == [("4", "", "afterok:1:2,afterany:3")]
    assert run(["train", *words]) == 0
    slurm.change("1", "GONE", "")
    slurm.change("2", "GONE", "")
    _mark(study, "DONE", *study.read_plan())
    slurm.change("4", "RUNNING", "None")
    # It goes on by itself: nothing is queued.
    assert run(["train", *words]) == 0
    assert len(slurm.jobs()) == 4


def test_jobs_of_an_older_version_are_one_line(words, study, slurm, capsys) -> None:
    study.folder.mkdir(parents=True)
    (study.folder / "jobs.jsonl").write_text('{"schema": 1, "token": "a", "kind": "recommend"}\n')
    assert "jobs.jsonl: ValueError('schema 1; allowed: 2'); delete the file" in refused(["train", *words], capsys, 3)


def test_a_failed_run_blocks_its_children_only(words, study, slurm, capsys) -> None:
    assert run(["plan", *words]) == 0
    parent = next(run for run in study.read_plan() if run.model == "qwen2-0.05m")
    _mark(study, "FAILED", parent)
    assert run(["train", *words]) == 1
    assert _arrays(slurm) == [("1", "0", "")]
    out = capsys.readouterr().out
    remedy = f"cptlaw train {study.folder} retry_failed=true run={parent.name} tries it again"
    assert f"failed {parent.name}: loss is nan at step 3; {remedy}\n" in out
    assert out.count("retry_failed=true") == 1
    assert out.count("the run that it starts from has failed") == 3
    assert run(["train", *words, "retry_failed=true"]) == 0
    assert [after for _, _, after in _arrays(slurm)] == ["", "", "afterok:2_0", "afterok:1:2:3"]


def test_one_of_the_failed_runs_is_submitted_again(words, study, slurm) -> None:
    assert run(["plan", *words]) == 0
    first, other = (run for run in study.read_plan() if run.role == "pretrain")
    _mark(study, "FAILED", first, other)
    assert run(["train", *words, f"run={first.name}", "retry_failed=true"]) == 1
    assert [len(_arrays(slurm)), [study.state(parent) for parent in (first, other)]] == [1, ["open", "failed"]]


def test_arrays_are_split_at_the_limit_of_the_cluster(words, study, slurm) -> None:
    slurm.set(array=2)
    assert run(["train", *words]) == 0
    assert [array for _, array, _ in _arrays(slurm)] == ["0-1", "0-1", "0", ""]
    assert _arrays(slurm)[-1][2] == "afterok:1:2:3"


def test_after_a_refusal_the_same_command_submits_the_rest(words, study, slurm, capsys) -> None:
    line = "Batch job submission failed: Job violates accounting/QOS policy"
    slurm.set(refuse={"1": line})
    error = refused(["train", *words], capsys, 3)
    assert error == f"sbatch: error: {line}; submitted before that: 1; the same command submits what is missing"
    slurm.set()
    assert run(["train", *words]) == 0
    # Job 1 is not submitted again; the refused jobs are.
    assert _arrays(slurm) == [("1", "0-1", ""), ("2", "0-2", "afterok:1_1"), ("3", "", "afterok:1:2")]
    assert [job.number for job in read_jobs(study) if job.number] == ["1", "2", "3"]


@pytest.mark.slow
def test_a_job_without_recorded_number_is_found(words, study, slurm) -> None:
    slurm.set(lose=True)
    driver = _driver(words)
    wait_until(slurm.jobs)
    driver.kill()
    driver.wait()
    assert [job.number for job in read_jobs(study)] == [None]
    slurm.set()
    assert run(["train", *words]) == 0
    # The first job is found by its token, and the others wait for it.
    assert _arrays(slurm) == [("1", "0-1", ""), ("2", "0-2", "afterok:1_1"), ("3", "", "afterok:1:2")]


@pytest.mark.slow
def test_two_drivers_at_once_submit_once(words, study, slurm) -> None:
    drivers = [_driver(words) for _ in range(2)]
    assert [driver.wait() for driver in drivers] == [0, 0]
    assert len(slurm.jobs()) == 3
    assert len({job["comment"] for job in slurm.jobs()}) == 3


def test_why_a_run_waits(words, study, slurm, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    assert run(["train", *words]) == 0

    def status() -> str:
        capsys.readouterr()
        assert run(["status", str(study.folder)]) == 0
        return capsys.readouterr().out

    assert "job 1_0 waits: Priority (jobs of higher priority go first)" in status()
    assert "job 2_1 waits: Dependency (for the run that it starts from, or the jobs before it)" in status()
    slurm.change("1", "PENDING", "launch failed requeued held")
    assert "its node could not start it; scontrol release 1" in status()
    slurm.change("1", "FAILED", "NonZeroExitCode")
    assert "job 1_1 ended: FAILED (NonZeroExitCode); logs/slurm-1_1.out; cptlaw train submits it again" in status()
    slurm.change("2", "GONE", "")
    assert "job 2_0 is gone" in status()
    assert "continue: job 3 waits: Dependency" in status()
    before = len(slurm.calls())
    status()
    # One call about the queue, and one about accounting, which this cluster does not have.
    assert [program for _, program, _ in slurm.calls()[before:]] == ["squeue", "sacct"]


def test_a_scheduler_that_hangs_times_out(words, study, slurm, capsys) -> None:
    slurm.set(hang="squeue")
    quick = "launcher.slurm.patience=0.5"
    assert refused(["train", *words, quick], capsys, 3) == "squeue: no answer within 0.5 s"
    assert slurm.jobs() == []
    slurm.set()
    # On a busy machine even a scheduler that answers takes longer than half a second.
    assert run(["train", *words]) == 0
    slurm.set(hang="squeue")
    begin = time.monotonic()
    assert run(["status", str(study.folder), quick]) == 0
    assert time.monotonic() - begin < 20
    out = " ".join(capsys.readouterr().out.split())
    assert out.count("squeue: no answer within 0.5 s: the states of the jobs are unknown") == 1
    assert "waiting" in out


@pytest.mark.slow
def test_rounds_of_an_active_design_follow_each_other(words, study, slurm, capsys) -> None:
    mine = [*words, "design=active", "design.batch=2", "design.tolerance=0.0001", "goal.tolerance=0.02"]

    def submitted(*command: str) -> set[str]:
        assert run(["train", *(command or mine)]) == 0
        runs = {planned.spec.hash: planned.name for planned in study.read_plan()}
        return {runs[run] for job in read_jobs(study) for run in job.tasks}

    first = submitted()
    assert len(first) == 2 + 2
    (behind,) = (job for job in read_jobs(study) if job.kind == "continue")
    script = (study.folder / f"jobs/{behind.token}.sbatch").read_text()
    assert script.endswith(f" -m pipeline.cli.main continue {study.folder}\n")
    assert submitted() == first
    # Not confirmed before the last round is done.
    assert run(["confirm", str(study.folder)]) == 0
    assert capsys.readouterr().out.splitlines()[-2] == "not confirmed yet: 2 runs for the fit are not in the answer"
    for planned in study.read_plan():
        ratio = float(Fraction(planned.spec.mixture["domain"]))
        shift = {"general": 0.3 * ratio, "domain": -ratio}
        ends = [0, 6, 12, planned.spec.steps]
        write_losses(study, planned, [(at, name, 4 + by * at / 48) for at in ends for name, by in shift.items()])
    # Nor when its runs have ended, but after the points of the answer were collected.
    assert run(["confirm", str(study.folder)]) == 0
    assert capsys.readouterr().out.splitlines()[-2] == "not confirmed yet: 2 runs for the fit are not in the answer"
    # Of a host whose clock is years ahead of the other's, or behind it.
    plan = study.read_plan()
    for date, collected, missing in ((2_000_000_000, plan[:-2], plan[-2:]), (1, plan, [])):
        study.write_plan(collected)
        assert run(["collect", str(study.folder)]) == 0
        study.write_plan(plan)
        os.utime(study.folder / "points.parquet", (date, date))
        assert not_collected(Context(question_of_study(study.folder, []), study)) == missing
    (study.folder / "points.parquet").unlink()
    # As the job does it, in which the study has a question already.
    assert len(submitted(str(study.folder)) - first) in (1, 2)
    assert len([job for job in read_jobs(study) if job.kind == "continue"]) == 2


@pytest.mark.slow
def test_the_stages_of_a_search_for_weights_follow_each_other(words, study, slurm) -> None:
    search = ["weights.methods=[ddo,uniform]", "weights.rounds=2", "weights.scales=[24]", "weights.target=30"]
    # Far from the optimum, so that there is a second round.
    search += ["weights.base={general: 0.75, domain: 0.25}", "weights.confirm_seeds=1", "ladder=[]"]
    assert run(["train", *words, "goal=weights", *search]) == 0
    for stage in ("first", "second", "confirmation"):
        assert [job.kind for job in read_jobs(study)][-2:] == ["train", "continue"], stage
        for planned in study.read_plan():
            spec, losses = planned.spec, {}
            for height, (name, ratio) in enumerate(spec.mixture.items(), start=1):
                losses[name] = 3 + height * (1 + float(Fraction(ratio)) * spec.tokens) ** -0.3
            ends = [(at, name, loss) for at in (0, spec.steps) for name, loss in losses.items()]
            write_losses(study, planned, ends)
        *ended, behind = read_jobs(study)
        for job in ended:
            slurm.change(job.number or "", "GONE", "")
        slurm.change(behind.number or "", "RUNNING", "None")
        assert run(["continue", str(study.folder)]) == 0
    assert [job.kind for job in read_jobs(study)] == ["train", "continue"] * 3
    assert {"ddo", "uniform"} <= {row.method for row in WeightsConfirmation.read(study).methods}


def _end(study: Study, runs: Iterable[PlannedRun]) -> None:
    """Let runs have ended with losses that depend on their ratio."""
    for planned in runs:
        ratio = float(Fraction(planned.spec.mixture.get("domain", "0")))
        shift = {"general": 0.3 * ratio, "domain": -ratio}
        ends = [(at, name, 4 + by * at / 48) for at in (0, 6, 12, planned.spec.steps) for name, by in shift.items()]
        write_losses(study, planned, ends)


def _answer(study: Study) -> None:
    for verb in ("collect", "fit", "recommend"):
        assert run([verb, str(study.folder)]) == 0


def _confirm(study: Study) -> None:
    context = Context(question_of_study(study.folder, []), study)
    runs = goal_of(context.question).confirmation_runs(context)
    add_to_plan(study, runs)
    _end(study, runs)
    goal_of(context.question).confirm(context.fresh(), runs)


@pytest.mark.slow
def test_no_job_follows_an_answer_that_is_confirmed_or_followed(words, study, slurm, capsys) -> None:
    """A dry run says so too, and what is next."""

    def submitted(*more: str) -> bool:
        """Whether train submits a job, and only that which continues; it is gone then."""
        before = len(slurm.jobs())
        capsys.readouterr()
        assert run(["train", *words, *more]) == 0
        new, done = read_jobs(study)[before:], "runs of the plan are done" in capsys.readouterr().out
        for job in new:
            slurm.change(job.number or "", "GONE", "")
        assert [job.kind for job in new] == ["continue"] * (not done)
        return not done

    assert run(["plan", *words]) == 0
    _end(study, study.read_plan())
    large = "large.tokens=1"
    assert submitted(large), "it answers"
    _answer(study)
    assert not submitted(large)
    assert submitted(), "it confirms"
    _confirm(study)
    dry = ["train", str(study.folder), "dry_run=true"]
    capsys.readouterr()
    assert run([*dry, "launcher.slurm.gpus=2"]) == 0
    done = f"all {len(study.read_plan())} runs of the plan are done and confirmed; cptlaw report shows the result"
    assert capsys.readouterr().out.splitlines() == [done, f"next: cptlaw report {study.folder}"]
    assert run([*dry, "seed=5"]) == 0, "other runs are open"
    out = capsys.readouterr().out
    assert "$ sbatch --parsable " in out
    assert out.splitlines()[-1] == f"next: cptlaw train {study.folder} seed=5"
    confirmation = study.folder / "confirmation.json"
    content = json.loads(confirmation.read_text())
    # By the number of points, whatever the clock was.
    for date, points in ((1, content["points"]), (2_000_000_000, content["points"] - 2)):
        confirmation.write_text(json.dumps(content | {"points": points}))
        os.utime(confirmation, (date, date))
        assert submitted() == (points != content["points"])
    confirmation.write_text(json.dumps(content))
    assert submitted("goal.tolerance=0.4"), "the answer is to another question"


def test_without_slurm(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        assert "squeue: not found; launcher=slurm needs Slurm's commands" in refused(["train", *words], capsys, 3)
        # A dry run works without Slurm.
        assert run(["train", *words, "dry_run=true"]) == 0
        out = capsys.readouterr().out
        assert "the job continue fits and answers, and submits the runs that confirm the answer, and behind them" in out
        assert "shown as if no job were queued" in out
        # No other run confirms a large one.
        assert run(["train", *words, "dry_run=true", "large.tokens=1"]) == 0
        assert "the job continue fits and answers; no other runs follow\n" in capsys.readouterr().out
        rounds = [word for word in words if not word.startswith(("mixture.", "continual.", "law", "goal"))]
        rounds += ["law=transfer-anchored", "dry_run=true", "design.batch=1"]
        assert run(["train", *rounds]) == 0
        chosen = "the job continue submits the runs that follow from results"
        assert f"{chosen}, those that confirm the answer among them, and behind" in capsys.readouterr().out
        assert run(["train", *rounds, "large.tokens=1", "large.budget=0.9", "large.lengths=[0.25]"]) == 0
        assert f"{chosen}, if any, and behind them" in capsys.readouterr().out


def test_a_dry_run_prints_everything_and_writes_nothing(words, study, slurm, capsys) -> None:
    settings = ["launcher.slurm.account=lab", "launcher.slurm.setup=[module load x]"]
    assert run(["train", *words, "dry_run=true", *settings]) == 0
    out = capsys.readouterr().out
    assert out.count("$ sbatch --parsable ") == 3
    assert out.count("by a script like EXAMPLE1.sbatch\n") == 1, "the second array"
    assert "--dependency=afterok:JOB1_1 --kill-on-invalid-dep=yes" in out
    assert "\n#SBATCH --account=lab\n" in out
    assert "\nmodule load x\n" in out
    assert slurm.jobs() == []
    assert not study.folder.exists()


def test_a_dry_run_has_the_notes_of_a_plan_and_its_next_command(words, study, slurm, tmp_path: Path, capsys) -> None:
    asked = [*words, f"data={tmp_path / 'unprepared'}", "launcher.slurm.gpus=2", "large.tokens=1", "target.steps=8000"]
    shown = []
    for verb, more in (("plan", []), ("train", ["dry_run=true"])):
        assert run([verb, *asked, *more]) == 0
        shown.append(capsys.readouterr().out)
    planned, dry = shown
    assert dry.splitlines()[-1] == planned.splitlines()[-1]
    assert dry.splitlines()[-1].startswith("next: cptlaw prepare experiment=own ")
    notes = [line for line in planned.splitlines() if line.startswith("note")]
    assert any("note, estimated: corpora.sources.domain" in line for line in notes)
    assert any("its GPUs do nothing" in line for line in notes)
    assert [line for line in dry.splitlines() if line in notes] == notes
    assert run(["train", *words, "dry_run=true"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("next: cptlaw train experiment=own ")


def test_a_dry_run_of_all_steps_leaves_no_folder(words, study, slurm, tmp_path: Path, capsys) -> None:
    elsewhere = [f"data={tmp_path / 'unprepared'}", f"studies={tmp_path / 'new'}"]
    assert run(["quickstart", *words, *elsewhere, "dry_run=true"]) == 0
    out = capsys.readouterr().out
    assert out.count("the corpora are not prepared: this is an estimate, no plan is written") == 1
    assert "$ sbatch --parsable " in out
    assert not (tmp_path / "unprepared").exists()
    assert not (tmp_path / "new").exists()
    # Nor does a prepare that is refused.
    line = refused(["prepare", *words, *elsewhere, "corpora.sources.domain.path=absent.txt"], capsys, 3)
    assert "does not exist" in line
    (tmp_path / "one.jsonl").write_text("{\n")
    line = refused(["prepare", *words, *elsewhere, f"corpora.sources.domain.path={tmp_path / 'one.jsonl'}"], capsys, 3)
    assert "not JSON" in line
    assert not (tmp_path / "unprepared").exists()
    assert not (tmp_path / "new").exists()


def test_a_dry_run_of_all_steps_leaves_a_study_as_it_was(words, study, slurm, capsys) -> None:
    local = [word for word in words if word != "launcher=slurm"]
    assert run(["plan", *local]) == 0
    kept = [(study.folder / name).read_bytes() for name in ("study.yaml", "plan.jsonl")]
    capsys.readouterr()
    assert run(["quickstart", *words, "goal.tolerance=0.4", "dry_run=true"]) == 0
    out = capsys.readouterr().out
    assert "$ sbatch --parsable " in out
    assert "a dry run: nothing is written" in " ".join(out.split())
    assert [(study.folder / name).read_bytes() for name in ("study.yaml", "plan.jsonl")] == kept
    assert slurm.jobs() == []


@pytest.mark.slow
def test_a_marker_that_appears_late_on_a_shared_disk(prepared: list[str], tmp_path: Path) -> None:
    words = [*prepared, f"studies={tmp_path}", "launcher.stale_after=20", "mixture.domain_ratio=[0.5]"]
    assert run(["plan", *words]) == 0
    study = Study(tmp_path / "small")
    parent, child = (planned for planned in study.read_plan() if planned.model == "qwen2-0.05m")
    assert run_forked(worker(study, parent.spec.hash)).returncode == 0
    done = study.runs / parent.name / "DONE"
    done.rename(done.with_name("LATE"))
    # By hand it is a mistake. Slurm starts a job only after its parent, so there the disk is slow.
    assert run_forked(worker(study, child.spec.hash)).returncode == 3
    process = subprocess.Popen(worker(study, child.spec.hash), env=os.environ | {"SLURM_JOB_ID": "7"})
    time.sleep(8)
    assert process.poll() is None
    done.with_name("LATE").rename(done)
    assert process.wait(60) == 0
    assert study.state(child) == "done"


def test_an_unexpected_answer_of_sbatch_is_an_error(slurm: FakeSlurm, tmp_path: Path) -> None:
    (slurm.bin / "sbatch").write_text("#!/bin/sh\necho Granted\n")
    with pytest.raises(SchedulerError, match="the answer 'Granted' is not a job number"):
        Scheduler().submit([], tmp_path / "x.sbatch")


def test_planning_status_and_submission_do_not_load_torch_or_plotly(words, slurm, study) -> None:
    folder = str(study.folder)
    code = (
        "import sys\nfrom pipeline.cli.main import run\nfrom pipeline.launch.slurm.client import Scheduler\n"
        "import pipeline.study.fits\n"
        "Scheduler.__init__.__defaults__ = (60.0, 0.0)\n"
        f"assert run({['plan', *words]}) == run({['train', folder]}) == 0\n"
        f"assert run({['status', folder]}) == run({['cancel', folder]}) == 0\n"
        "assert not {'torch', 'transformers', 'plotly'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
