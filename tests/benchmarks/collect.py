"""5,000 runs of 200 points each, from their folders to points.parquet."""

import dataclasses
import json
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from pipeline.study.collect import collect
from pipeline.study.folder import PlannedRun, Study
from tests.benchmarks import Row, row
from tests.conftest import tiny_spec
from training.evaluation_steps import EvaluationPolicy
from training.spec import RunSpec

RUNS, STEPS = 5000, 100


def measure() -> list[Row]:
    """Ours reads all files in one parse; the peer is pandas.read_json, file by file, on a tenth of them."""
    with tempfile.TemporaryDirectory() as folder:
        study = Study(Path(folder) / "study")
        runs = _write(study)
        start = time.perf_counter()
        table = collect(study, "general")
        ours = time.perf_counter() - start
        assert len(table) == RUNS * STEPS * 2
        start = time.perf_counter()
        parts = [pd.read_json(study.runs / run.name / "points.jsonl", lines=True) for run in runs[: RUNS // 10]]
        pd.concat(parts, ignore_index=True)
        peer = (time.perf_counter() - start) * 10
    meaning = "5,000 runs of 200 points joined and written; peer: pandas.read_json alone, 500 files x 10; bar: 5 s"
    return [row("collect", ours, "s", meaning, peer, lower_is_better=True)]


def write_points(folder: Path, spec: RunSpec, steps: Iterable[int]) -> None:
    """Write points.jsonl of a run: made-up losses of its corpora at some steps."""
    lines = [
        json.dumps(
            {"step": step, "tokens": step * spec.tokens_per_step, "corpus": corpus, "loss": 5.0 + 1.0 / (step + 1),
             "loss_stderr": 0.0123456789, "learning_rate": 1e-3}
        )
        for step in steps
        for corpus in sorted(spec.corpora)
    ]  # fmt: skip
    (folder / "points.jsonl").write_text("\n".join(lines) + "\n")


def _write(study: Study) -> list[PlannedRun]:
    first = tiny_spec(phase="continual", steps=STEPS, evaluation=EvaluationPolicy("dense", every=1))
    runs = []
    for seed in range(RUNS):
        spec = dataclasses.replace(first, seed=seed)
        run = PlannedRun(f"continual-{seed}-{spec.hash[:8]}", "fit", "tiny", "", spec)
        folder = study.runs / run.name
        folder.mkdir(parents=True)
        write_points(folder, spec, range(1, STEPS + 1))
        runs.append(run)
    study.write_plan(runs)
    return runs
