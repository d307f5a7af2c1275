"""A plan of ten thousand runs whose mixture changes, on a Slurm that only answers.

Built, submitted, looked at and collected; then a twentieth of the runs failed with their nodes, another was preempted,
the queue is empty, and what is missing is submitted again.
"""

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pipeline.launch.slurm.jobs import read_jobs
from pipeline.study.folder import PlannedRun, Study
from tests.benchmarks import Row, row
from tests.benchmarks.collect import write_points
from tests.conftest import write_text
from tests.slurm.fake_slurm import FakeSlurm
from training.evaluation_steps import evaluation_steps

RUNS = 10_000
BARS = {"plan": 5.0, "submit": None, "status": 3.0, "collect": 10.0, "submit again": None}
"""Verb -> seconds it may take; to submit takes a second a job, since the scheduler is asked no more often."""


def measure(runs: int = RUNS) -> list[Row]:
    """Seconds and memory of each verb as a process of its own."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        found = simulate(Path(folder), runs)
    for verb, bar in BARS.items():
        seconds, processor, memory = found["verbs"][verb]
        meaning = f"{found['runs']:,} runs, {processor:.1f} s of CPU, {memory / 1e6:.0f} MB; "
        meaning += f"bar: {bar:g} s" if bar else found["calls"]
        rows.append(row(f"scale {verb}", seconds, "s", meaning))
    return rows


def simulate(folder: Path, runs: int = RUNS, points: int = 100) -> dict[str, Any]:
    """Plan, submit, look and collect.

    Args:
        folder: for everything.
        runs: about how many.
        points: lines of points.jsonl of each run.

    Returns:
        verbs: verb -> (seconds, of CPU, bytes of memory at most); runs; jobs; interval: least seconds between two
            calls of one verb.
    """
    slurm = FakeSlurm(folder / "slurm")
    for seed, name in enumerate(("general", "code")):
        write_text(folder / name, seed)
    words, there = words_of(folder, runs), (slurm.folder, str(slurm.bin))
    found: dict[str, tuple[float, float, int]] = {}
    timed("prepare", words, *there)
    found["plan"] = timed("plan", words, *there)
    study = Study(folder / "studies" / "scale")
    plan = study.read_plan()
    found["submit"] = timed("train", words, *there)
    assert len(slurm.jobs()) >= len(plan) // 1000
    states = {run.name: _state_of(run, number, len(plan)) for number, run in enumerate(plan)}
    for run in plan:
        _write(study, run, points, states[run.name])
    found["status"] = timed("status", [str(study.folder)], *there)
    found["collect"] = timed("collect", [str(study.folder)], *there)
    for job in slurm.jobs():
        slurm.change(job["id"], "GONE", "NODE_FAIL")
    known = len(read_jobs(study))
    found["submit again"] = timed("train", [*words, "retry_failed=true"], *there)
    again = [run for job in read_jobs(study)[known:] for run in job.tasks]
    assert sorted(again) == sorted(run.spec.hash for run in plan if states[run.name] != "done")
    calls = slurm.calls()
    # A verb is a process, and knows nothing of how soon the next one is called.
    gaps = [after[0] - before[0] for before, after in itertools.pairwise(calls) if before[2] == after[2]]
    interval = min(gaps, default=1.0)
    calls = f"{len(slurm.jobs())} jobs, {len(calls)} calls of Slurm, {interval:.2f} s apart or more within a verb"
    return {"verbs": found, "runs": len(plan), "jobs": slurm.jobs(), "interval": interval, "calls": calls}


def _state_of(run: PlannedRun, number: int, runs: int) -> str:
    """As it is in the middle of a study: most runs are done, some run, the others wait; a tenth met a bad node."""
    if run.role != "pretrain" and number % 20 < 2:
        return ("failed", "preempted")[number % 20]
    return "done" if number < runs * 0.9 else "running" if number % 10 == 2 else "waiting"


def words_of(folder: Path, runs: int) -> list[str]:
    """A question of so many runs: three models at many ratios, ten seeds each."""
    count = max(2, round(runs / 30))
    listed = ",".join(f"{(number + 1) / (count + 1):.4f}" for number in range(count))
    return [
        *("continual.phases=[{share: 0.8}, {domain_ratio: 0.5}]", "experiment=own", "name=scale"),
        *("launcher=slurm", "model=qwen2-0.7m", "allow_repeats=true", "precision=fp32"),
        *("ladder=[qwen2-0.05m,qwen2-0.15m,qwen2-0.3m]", "corpora.tokenizer.vocabulary=300"),
        *(f"mixture.domain_ratio=[{listed}]", f"mixture.replicate_at=[{listed}]", "mixture.replicates=10"),
        *(f"studies={folder / 'studies'}", f"data={folder / 'data'}"),
        *(f"corpora.sources.general.path={folder / 'general'}", f"corpora.sources.domain.path={folder / 'code'}"),
    ]


def timed(verb: str, words: list[str], folder: Path, programs: str = "") -> tuple[float, float, int]:
    """Seconds, seconds of CPU and most bytes of memory of a command; its output is logged in the folder."""
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-S", "-c", _USAGE, sys.executable, "-m", "pipeline.cli.main", verb, *words]
    start = time.perf_counter()
    with open(folder / f"{verb}.log", "w") as log:
        found = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, env=environment, text=True)
    assert found.returncode == 0, verb
    processor, memory = json.loads(found.stdout)
    return time.perf_counter() - start, processor, memory


# Linux counts what the caller held at the moment of the exec into ru_maxrss of the child, so a small process has to
# start the verb: pytest after an hour holds a gigabyte.
_USAGE = """
import json, os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=2)
_, status, usage = os.wait4(process.pid, 0)
process.returncode = os.waitstatus_to_exitcode(status)
print(json.dumps([usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024]))
sys.exit(process.returncode)
"""


def _write(study: Study, run: PlannedRun, points: int, state: str) -> None:
    if state == "waiting":
        return
    folder, spec = study.runs / run.name, run.spec
    (folder / "attempts").mkdir(parents=True)
    record: dict[str, Any] = {"attempt": 1, "host": "elsewhere", "boot": "x", "pid": 1, "process_start": 0.0}
    if state != "running":
        codes = {"done": 0, "failed": 1, "preempted": 75}
        record |= {"end": "2026-01-01T00:00:30+00:00", "exit_code": codes[state]}
    if state == "done":
        (folder / "DONE").write_text('{"attempt": 1}\n')
    if state == "failed":
        (folder / "FAILED").write_text("its node failed\n")
    (folder / "attempts" / "001.heartbeat").touch()
    (folder / "attempts" / "001.json").write_text(json.dumps(record))
    steps = evaluation_steps(spec.evaluation, spec.steps)[: points // 2]
    write_points(folder, spec, steps)
    (folder / "metrics.jsonl").write_text('{"step": 20, "loss": 5.0, "tokens_per_second": 12345}\n')
