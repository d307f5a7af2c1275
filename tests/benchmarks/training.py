"""Our loop against a bare PyTorch loop and transformers.Trainer: same model, batch, precision; in turn, one thread.

`measure` takes fewer sizes, precisions or engines, and more rounds.
"""

import dataclasses
import itertools
import statistics
import tempfile
import timeit
from collections.abc import Sequence
from pathlib import Path

import torch

from pipeline.goals.registry import read_question
from pipeline.plan.prepared_corpora import prepare_corpora
from pipeline.plan.runs import planned_runs
from pipeline.study.context import context_of
from tests.benchmarks import Row, row
from tests.benchmarks.peers import bare_loop, our_loop, trainer_blocks
from tests.conftest import SHAPE
from training.batches import training_batches
from training.corpora.manifest import Manifest
from training.engines import drop_shared_engines
from training.evaluation_steps import EvaluationPolicy
from training.parameters import model_size
from training.spec import MixturePhase, RunSpec

SIZES = {"0.1M": (64, 2, 176, 16, 5), "1M": (192, 2, 608, 16, 2), "10M": (512, 3, 1472, 4, 1)}
"""Non-embedding parameters -> width, layers, width inside the MLP, sequences a step, steps a block. Few layers, since
each makes compiling longer."""
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}
ENGINES = ("eager", "eager-compiled")
PEERS = {"bare": "peer: bare PyTorch loop; bar .97", "trainer": "peer: transformers.Trainer, likewise; bar 1"}
_BLOCKS = 4
"""Blocks a round; the first warms up or compiles, and our last holds the evaluation that every run ends with."""


def measure(
    sizes: Sequence[str] = tuple(SIZES),
    precisions: Sequence[str] = tuple(PRECISIONS),
    engines: Sequence[str] = ENGINES,
    rounds: int = 3,
    changes: int = 0,
) -> list[Row]:
    """Rows of the chosen cells; the ratio is the median over rounds, in each of which the loops ran within seconds.

    `changes`: how often the mixture of two corpora changes during a run; 0: one corpus.
    """
    question = read_question(["experiment=quickstart", "precision=bf16"])
    manifest = prepare_corpora(question, lambda _: None)
    context = dataclasses.replace(context_of(question), given_manifest=manifest, given_precision="bf16")
    like = next(run.spec for run in planned_runs(context) if run.role == "pretrain")
    torch.set_num_threads(1)
    peaks, cells = dict.fromkeys(precisions, 0.0), []
    for size, precision, engine in itertools.product(sizes, precisions, engines):
        # Compiled code of one cell is not to count against the recompilations that torch allows the next.
        drop_shared_engines()
        torch.compiler.reset()
        peaks[precision] = max(peaks[precision], gemm_peak(PRECISIONS[precision]))
        spec = _spec(like, size, precision)
        if changes:
            spec = _changing(spec, manifest, changes)
        cells.append(
            (
                f"{size} {precision} {engine}{f' {changes} changes' if changes else ''}",
                spec,
                *_cell(spec, manifest, engine, SIZES[size][-1], rounds),
            )
        )
    rows = []
    for name, spec, speeds, wait in cells:
        ours = statistics.median(speeds["ours"])
        for peer, meaning in PEERS.items():
            ratio = statistics.median(mine / its for mine, its in zip(speeds["ours"], speeds[peer], strict=True))
            speed = row(f"training {name}, {peer}", ours, "tokens/s", meaning, statistics.median(speeds[peer]))
            rows.append(speed | {"ratio": ratio})
        flops = ours * model_size(spec.model, spec.sequence_length).flops_per_token / 1e9
        meaning = f"peer: products of matrices; waiting for data {wait:.2%} of the time, bar 1%"
        # The best peak of all cells, since a neighbour can only make a product of matrices slower.
        rows.append(row(f"training {name}, GEMM", flops, "GFLOP/s", meaning, peaks[spec.precision] / 1e9))
    return rows


def gemm_peak(dtype: torch.dtype, width: int = 1536) -> float:
    """FLOP a second of this machine in products of square matrices, one thread: the best of ten."""
    left, right = torch.randn(width, width).to(dtype), torch.randn(width, width).to(dtype)
    return 2 * width**3 / min(timeit.repeat(lambda: left @ right, repeat=10, number=1))


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


def _changing(spec: RunSpec, manifest: Manifest, changes: int) -> RunSpec:
    """The run with two corpora, whose mixture changes after equal parts of it."""
    corpora = {name: corpus.fingerprint for name, corpus in manifest.corpora.items()}
    first, second = corpora
    up, down = ({first: ratio, second: other} for ratio, other in (("0.25", "0.75"), ("0.75", "0.25")))
    sequences = spec.steps * spec.global_batch
    phases = tuple(
        MixturePhase(sequences * number // (changes + 1), down if number % 2 else up)
        for number in range(1, changes + 1)
    )
    return dataclasses.replace(spec, corpora=corpora, mixture=up, phases=phases)


def _cell(
    spec: RunSpec, manifest: Manifest, engine: str, every: int, rounds: int
) -> tuple[dict[str, list[float]], float]:
    """Loop -> tokens per second in each round, and the fraction of our time spent waiting for data."""
    stores = {corpus: manifest.store(corpus) for corpus in spec.corpora}
    batches = list(training_batches(stores, spec, first_step=1))
    waits: list[float] = []

    def ours() -> list[float]:
        lines = our_loop(spec, manifest, engine, metrics_every=every, resume_every=0)
        waits.extend(line["data_wait"] for line in lines)
        return [line["tokens_per_second"] for line in lines]

    def trainer() -> list[float]:
        with tempfile.TemporaryDirectory() as folder:
            return trainer_blocks(spec, torch.cat(batches), Path(folder), every, compiled=engine == "eager-compiled")

    loops = {"ours": ours, "bare": lambda: bare_loop(spec, batches, engine, every), "trainer": trainer}
    speeds: dict[str, list[float]] = {name: [] for name in loops}
    for number in range(rounds):
        # To and fro, so that a machine that slows down is no loop's advantage.
        for name in loops if number % 2 == 0 else reversed(loops):
            speeds[name].append(statistics.median(loops[name]()[1:-1]))
    return speeds, statistics.mean(waits)
