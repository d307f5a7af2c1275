"""Many runs: arrays of the largest size, and at most one Slurm command a second."""

import dataclasses
from pathlib import Path

import pytest

from pipeline.launch.slurm.arrays import Task, submit_runs
from pipeline.study.folder import PlannedRun
from pipeline.study.status import MOST, RunStatus, status_table
from tests.benchmarks.scale import BARS, simulate
from training.spec import Initial, RunSpec


def _run(spec: RunSpec, role: str = "fit") -> PlannedRun:
    return PlannedRun(f"{role}-{spec.hash[:8]}", role, "tiny", "", spec)


@pytest.fixture(scope="module")
def plan(spec: RunSpec) -> list[PlannedRun]:
    """Two pre-trainings, 2,500 continual runs of each, and a branch of each of these."""
    trunks = [_run(dataclasses.replace(spec, seed=seed), "pretrain") for seed in range(2)]
    runs = [
        _run(dataclasses.replace(spec, phase="continual", seed=seed, initial=Initial("run", trunk.spec.hash, 20)))
        for trunk in trunks
        for seed in range(2500)
    ]
    branches = [
        _run(dataclasses.replace(run.spec, steps=5, initial=Initial("run", run.spec.hash, 10, moments=True)))
        for run in runs
    ]
    return [*trunks, *runs, *branches]


def test_every_run_is_in_one_array_behind_its_parent(plan: list[PlannedRun]) -> None:
    sent: dict[str, tuple[dict[str, int], str]] = {}
    where: dict[str, Task] = {}

    def send(kind: str, tasks: dict[str, int], after: str) -> str:
        sent[str(len(sent) + 1)] = (tasks, after)
        return str(len(sent))

    assert submit_runs(plan, {run.spec.hash: "open" for run in plan}, where, 1001, send) == []
    # 1 of pre-trainings; 3 behind each of them; and as many of branches, each behind the one of its index.
    assert len(sent) == 1 + 6 + 6
    assert sum(len(tasks) for tasks, _ in sent.values()) == len(where) == len(plan) == 10_002
    for tasks, _ in sent.values():
        assert len(set(tasks.values())) == len(tasks)
        assert max(tasks.values()) <= 1000
    for run in plan:
        job, index = where[run.spec.hash]
        after = sent[job][1]
        if run.parent is None:
            assert after == ""
            continue
        parent, place = where[run.parent]
        assert after == (f"aftercorr:{parent}" if run.spec.initial.moments else f"afterok:{parent}_{place}")
        assert not run.spec.initial.moments or index == place


def test_a_long_table_shows_failed_and_running_runs_first(plan: list[PlannedRun]) -> None:
    rows = [RunStatus(run, "done", 20, None, "") for run in plan[:500]]
    rows += [RunStatus(plan[500], "failed", 3, None, "loss is nan [/x]"), RunStatus(plan[501], "running", 3, 9, "")]
    table = status_table(rows)
    assert table.row_count == MOST
    assert table.caption == f"502 runs: 1 failed, 1 running, 500 done; {MOST} are shown"
    assert str(next(iter(table.columns[0].cells))) == plan[500].name


@pytest.mark.slow
def test_a_small_plan_as_the_benchmark_does_it(tmp_path: Path) -> None:
    found = simulate(tmp_path, runs=60, points=20)
    assert found["runs"] == 64
    assert [len(job["array"]) > 0 for job in found["jobs"]] == [True] * 4 + [False, True, False]
    assert found["interval"] > 0.99
    for verb in BARS:
        assert found["verbs"][verb][2] < 1e9, verb
