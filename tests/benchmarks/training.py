"""Our loop against a bare PyTorch loop and transformers.Trainer: same model, batch, precision; in turn, one thread.

Run: python -m tests.benchmarks.training --sizes 0.1M 1M --precisions bf16 --rounds 3
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from pipeline.plan.prepare import prepare_corpora
from pipeline.plan.runs import planned_runs
from pipeline.question.loading import read_question
from tests.benchmarks.peers import bare_loop, trainer_blocks
from tests.conftest import SHAPE
from training.batches import training_batches
from training.corpora.manifest import Manifest
from training.durable import read_lines_whole
from training.engine import forget, ready
from training.evaluation_steps import EvaluationPolicy
from training.loop import train
from training.parameters import model_size
from training.spec import Execution, RunSpec

SIZES = {"0.1M": (64, 2, 176, 16, 5), "1M": (192, 2, 608, 16, 2), "10M": (512, 3, 1472, 4, 1)}
"""Non-embedding parameters -> width, layers, width inside the MLP, sequences a step, steps a block. Few layers, since
each makes compiling longer."""
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}
ENGINES = ("eager", "eager-compiled")
ROUNDS = 3
_BLOCKS = 4
"""Blocks a round; the first warms up or compiles, and our last holds the evaluation that every run ends with."""


def measure(
    sizes: Sequence[str] = tuple(SIZES),
    precisions: Sequence[str] = tuple(PRECISIONS),
    engines: Sequence[str] = ENGINES,
    rounds: int = ROUNDS,
) -> list[dict[str, Any]]:
    """Rows of the chosen cells; the ratio is the median over rounds, in each of which the loops ran within seconds."""
    question = read_question(["experiment=quickstart", "precision=bf16"])
    manifest = prepare_corpora(question, lambda _: None)
    like = next(run.spec for run in planned_runs(question, manifest, "bf16") if run.role == "pretrain")
    torch.set_num_threads(1)
    rows, peaks = [], dict.fromkeys(precisions, 0.0)
    for size, precision, engine in itertools.product(sizes, precisions, engines):
        # Compiled code of one cell is not to count against the recompilations that torch allows the next.
        forget()
        torch.compiler.reset()
        peaks[precision] = max(peaks[precision], gemm_peak(PRECISIONS[precision]))
        start = time.perf_counter()
        spec = _spec(like, size, precision)
        speeds, wait = _cell(spec, manifest, engine, SIZES[size][-1], rounds)
        rows += _rows(f"{size} {precision} {engine}", spec, speeds, wait)
        ratios = ", ".join(f"{row['ratio']:.3f}" for row in rows[-3:-1])
        print(f"{rows[-3]['name']}: {ratios}; {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    for row in rows:
        if row["unit"] == "GFLOP/s":
            # Of all cells the best, since a neighbour can only make a product of matrices slower.
            row["peer"] = peaks[row["name"].split()[2]] / 1e9
            row["ratio"] = row["ours"] / row["peer"]
    return rows


def gemm_peak(dtype: torch.dtype, width: int = 1536) -> float:
    """FLOP a second of this machine in products of square matrices, one thread: the best of ten."""
    left, right = torch.randn(width, width).to(dtype), torch.randn(width, width).to(dtype)
    best = float("inf")
    for _ in range(10):
        start = time.perf_counter()
        left @ right
        best = min(best, time.perf_counter() - start)
    return 2 * width**3 / best


def _spec(like: RunSpec, size: str, precision: str) -> RunSpec:
    width, layers, inner, batch, every = SIZES[size]
    shape = {"hidden_size": width, "num_hidden_layers": layers, "intermediate_size": inner}
    heads = dict.fromkeys(("num_attention_heads", "num_key_value_heads"), max(2, width // 64))
    return dataclasses.replace(
        like,
        model={**SHAPE, **shape, **heads, "max_position_embeddings": 2048, "vocab_size": like.model["vocab_size"]},
        precision=precision,
        steps=_BLOCKS * every,
        global_batch=batch,
        evaluation=EvaluationPolicy("explicit"),
        validation_windows=batch,
    )


def _cell(
    spec: RunSpec, manifest: Manifest, engine: str, every: int, rounds: int
) -> tuple[dict[str, list[float]], float]:
    """Loop -> tokens a second in each round, and the share of our time spent waiting for data."""
    stores = {corpus: manifest.store(corpus) for corpus in spec.corpora}
    batches = list(training_batches(stores, spec, first_step=1))
    tokens = torch.cat(batches)
    speeds: dict[str, list[float]] = {"ours": [], "bare": [], "trainer": []}
    waits: list[float] = []

    def ours() -> list[float]:
        lines = _ours(spec, manifest, engine, every)
        waits.extend(line["data_wait"] for line in lines)
        return [line["tokens_per_second"] for line in lines]

    def trainer() -> list[float]:
        with tempfile.TemporaryDirectory() as folder:
            return trainer_blocks(spec, tokens, Path(folder), every, compiled=engine == "eager-compiled")

    loops = {"ours": ours, "bare": lambda: bare_loop(spec, batches, engine, 1, every), "trainer": trainer}
    for number in range(rounds):
        # To and fro, so that a machine that slows down is no loop's advantage.
        for name in loops if number % 2 == 0 else reversed(loops):
            speeds[name].append(statistics.median(loops[name]()[1:-1]))
    return speeds, statistics.mean(waits)


def _ours(spec: RunSpec, manifest: Manifest, engine: str, every: int) -> list[dict[str, Any]]:
    network, losses = ready(spec.model, engine, spec.precision, 1)
    execution = Execution(metrics_every=every, resume_every=0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train(
            spec,
            folder,
            manifest=manifest,
            start=None,
            network=network,
            losses=losses,
            execution=execution,
            check=lambda: None,
        )
        return read_lines_whole(folder / "metrics.jsonl")


def _rows(name: str, spec: RunSpec, speeds: dict[str, list[float]], wait: float) -> list[dict[str, Any]]:
    ours = statistics.median(speeds["ours"])
    flops = model_size(spec.model, spec.sequence_length).flops_per_token
    meanings = {"bare": "peer: bare PyTorch loop; bar .97", "trainer": "peer: transformers.Trainer, likewise; bar 1"}
    rows = [
        {
            "name": f"training {name}, {peer}",
            "ours": ours,
            "peer": statistics.median(speeds[peer]),
            "ratio": statistics.median(mine / its for mine, its in zip(speeds["ours"], speeds[peer], strict=True)),
            "unit": "tokens/s",
            "meaning": meaning,
        }
        for peer, meaning in meanings.items()
    ]
    peak = {"name": f"training {name}, GEMM", "ours": ours * flops / 1e9, "unit": "GFLOP/s"}
    rows.append(peak | {"meaning": f"peer: products of matrices; waiting for data {wait:.2%} of the time, bar 1%"})
    return rows


def main() -> None:
    """Measure the cells that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, values in (("sizes", SIZES), ("precisions", PRECISIONS), ("engines", ENGINES)):
        parser.add_argument(f"--{name}", nargs="+", choices=list(values), default=list(values))
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"of all three loops in turn; {ROUNDS} if not given")
    for row in measure(**vars(parser.parse_args())):
        ours, peer, ratio = (f"{row[key]:,.4g}" for key in ("ours", "peer", "ratio"))
        print(f"{row['name']:40} {ours:>10} {peer:>10} {ratio:>7} {row['unit']}  {row['meaning']}")


if __name__ == "__main__":
    main()
