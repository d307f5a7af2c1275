"""Our loop against a bare PyTorch loop and transformers.Trainer: same model, batch, precision; in turn, one thread."""

from __future__ import annotations

import dataclasses
import statistics
import tempfile
from pathlib import Path
from typing import Any

import torch

from pipeline.config import read_question
from pipeline.plan import planned_runs
from pipeline.prepare import prepare_corpora
from tests.benchmarks.peers import bare_loop, trainer
from training.batches import training_batches
from training.durable import read_lines_whole
from training.engine import ready
from training.evaluation_steps import EvaluationPolicy
from training.loop import train
from training.manifest import Manifest
from training.spec import Execution, RunSpec

ROUNDS, STEPS, EVERY = 3, 120, 20


def measure() -> list[dict[str, Any]]:
    """Medians over blocks of 20 steps; the first block of each round, which compiles, is left out."""
    question = read_question(["experiment=quickstart", "precision=bf16"])
    manifest = prepare_corpora(question, print)
    rows = []
    for model in ("qwen2-0.05m", "qwen2-0.3m"):
        run = next(
            run for run in planned_runs(question, manifest, "bf16") if (run.role, run.model) == ("pretrain", model)
        )
        spec = dataclasses.replace(
            run.spec,
            steps=STEPS,
            evaluation=EvaluationPolicy("explicit"),
            validation_windows=run.spec.global_batch,
        )
        rows += _measure_shape(model, spec, manifest)
    return rows


def _measure_shape(model: str, spec: RunSpec, manifest: Manifest) -> list[dict[str, Any]]:
    batches = list(_batches(manifest, spec))
    ours: dict[str, list[float]] = {"eager-compiled": [], "eager": []}
    bare: dict[str, list[float]] = {"eager-compiled": [], "eager": []}
    waits: list[float] = []
    for _ in range(ROUNDS):
        for engine, speeds in ours.items():
            with tempfile.TemporaryDirectory() as folder:
                speed, wait = _ours(spec, manifest, Path(folder), engine)
                speeds += speed
                waits += wait
            bare[engine] += bare_loop(spec, batches, engine, 1, EVERY)[1:]
    with tempfile.TemporaryDirectory() as folder:
        tokens = torch.cat(batches)
        seconds = trainer(spec, tokens, {}, Path(folder), threads=1, attention="eager")
    hands = spec.tokens / seconds
    middle = {engine: statistics.median(speeds) for engine, speeds in ours.items()}
    rows = [
        _row(
            f"training {model} {engine}",
            middle[engine],
            statistics.median(bare[engine]),
            "peer: bare PyTorch loop; bar .97",
        )
        for engine in ours
    ]
    rows.append(_row(f"training {model} Trainer", middle["eager"], hands, "peer: transformers.Trainer, same attention"))
    best = max(middle.values())
    rows.append(_row(f"training {model} best", best, hands, "our fastest engine against the same Trainer"))
    wait = statistics.mean(waits)
    meaning = "share of the time spent waiting for data; bar .01"
    rows.append(
        {
            "name": f"data wait {model}",
            "ours": wait,
            "peer": None,
            "ratio": None,
            "unit": "share",
            "meaning": meaning,
        }
    )
    return rows


def _ours(spec: RunSpec, manifest: Manifest, folder: Path, engine: str) -> tuple[list[float], list[float]]:
    network, losses = ready(spec.model, engine, spec.precision, 1)
    train(
        spec,
        folder,
        manifest=manifest,
        start=None,
        network=network,
        losses=losses,
        execution=Execution(metrics_every=EVERY, resume_every=0),
        check=lambda: None,
    )
    # The first block compiles or warms up, the last holds the evaluation that every run ends with.
    lines = read_lines_whole(folder / "metrics.jsonl")[1:-1]
    return [line["tokens_per_second"] for line in lines], [line["data_wait"] for line in lines]


def _batches(manifest: Manifest, spec: RunSpec) -> Any:
    stores = {corpus: manifest.store(corpus) for corpus in spec.corpora}
    return training_batches(stores, spec, first_step=1)


def _row(name: str, ours: float, peer: float, meaning: str) -> dict[str, Any]:
    return {
        "name": name,
        "ours": ours,
        "peer": peer,
        "ratio": ours / peer,
        "unit": "tokens/s",
        "meaning": meaning,
    }


if __name__ == "__main__":
    for row in measure():
        print(row)
