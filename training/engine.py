"""The fastest engine for a model shape on this machine: attention, compilation and precision, measured and kept.

`python -m training.engine` reads the arguments of `plain_speeds` as JSON and prints its result as JSON.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from training import objectives
from training.corpora.documents import json_hash
from training.durable import write_whole
from training.model import build_model, has_linear_head
from training.objectives import Losses
from training.parameters import compiling_pays


@dataclass(frozen=True)
class Engine:
    """An attention implementation of transformers, with or without torch.compile, and with full or chunked logits."""

    attention: str
    compiled: bool
    chunked: bool = False


ENGINES = {
    "sdpa": Engine("sdpa", False),
    "eager": Engine("eager", False),
    "sdpa-compiled": Engine("sdpa", True),
    "eager-compiled": Engine("eager", True),
    "sdpa-chunked": Engine("sdpa", False, chunked=True),
}
# Eager attention stores each layer's (T, T) scores, too much memory for longer sequences.
LONGEST_EAGER = 512
# Fewer bytes of logits are computed at once: chunks had 0.2 to 0.6 times the speed on a CPU.
LARGEST_LOGITS = 2**32
PRECISIONS = ("fp32", "bf16")
PROBE_SECONDS = 6.0
"""About how long an engine that is not compiled is measured: large models with fewer sequences, and fewer passes."""


def ready(
    model: Mapping[str, Any],
    engine: str,
    precision: str,
    threads: int,
    *,
    objective: str = "causal",
    end_of_text: int | None = None,
    by_token: bool = False,
    second: bool = False,
    cached: bool = True,
) -> tuple[PreTrainedModel, Losses]:
    """A model of a shape and its loss function, cached for the runs of this process; load its weights before use.

    Args:
        model, engine, precision: architecture, a name of ENGINES, fp32 or bf16.
        threads, objective: CPU threads of this process; causal or masked.
        end_of_text: token id after each document, which ends attention; None: attention sees the whole sequence.
        by_token: whether the losses are (n, T), of each token, 0 where nothing is predicted.
        second: whether to use a second model with weights of its own.
        cached: False: a model that the cache does not know, whose memory is free when the caller drops it.
    """
    torch.set_num_threads(threads)
    shape = json.dumps(dict(model), sort_keys=True)
    build = _ready if cached else _ready.__wrapped__
    return build(shape, engine, precision, objective, end_of_text, by_token, second)


@functools.lru_cache(maxsize=4)
def _ready(
    model: str, engine: str, precision: str, objective: str, end_of_text: int | None, by_token: bool, second: bool
) -> tuple[PreTrainedModel, Losses]:
    chosen = ENGINES[engine]
    network = build_model(json.loads(model), chosen.attention, seed=0, objective=objective)
    if chosen.compiled:
        _prepare_compiler()
    blocks = [block for block in network.modules() if type(block).__name__ in (network._no_split_modules or ())]
    by_sequence, by_layer = objectives.sequence_losses, False
    if objective == "causal" and has_linear_head(network):
        if chosen.chunked:
            by_sequence = objectives.sequence_losses_chunked
        elif chosen.compiled and blocks:
            by_sequence, by_layer = _compiled_by_layer(blocks), True

    def losses(tokens: torch.Tensor) -> torch.Tensor:
        if objective == "masked":
            return objectives.masked_losses(network, tokens, precision, by_token=by_token)
        return by_sequence(network, tokens, precision, end_of_text, by_token=by_token)

    if not chosen.compiled:
        return network, losses
    compiled = losses if by_layer else torch.compile(losses, dynamic=False)

    def one_graph(tokens: torch.Tensor) -> torch.Tensor:
        # Evaluations use the training graph: compiling a second one would take 15 s per shape.
        with torch.enable_grad():
            return compiled(tokens)

    return network, one_graph


def _prepare_compiler() -> None:
    # One thread compiles; the default pool of one worker per core would cost memory in every process.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    import torch._inductor.config as inductor  # takes two seconds, which engines without compilation need not spend

    # Autocast's arguments are constants of the graph and so part of its key, but by default they keep the traced
    # forward and backward out of the cache: each process would spend half its start tracing them again.
    inductor.unsafe_marked_cacheable_functions.update(
        {f"torch.amp.autocast_mode.{name}": torch.__version__ for name in ("_enter_autocast", "_exit_autocast")}
    )
    # Each shape is one cache entry of a compiled function; beyond the limit it would run without compilation.
    torch._dynamo.config.recompile_limit = 64


def _compiled_by_layer(blocks: list[torch.nn.Module]) -> Callable[..., torch.Tensor]:
    """Compile a model's layers in place; returns `sequence_losses_by_rows` with its head compiled.

    One compiled layer serves all, in 60% of the compile time of the whole model. Its steps were 5% slower than the
    whole graph's at 0.056 M parameters, 3.5% slower at 0.152 M and 2 to 12% faster at 0.333 M.
    """
    for block in blocks:
        block.compile(dynamic=False)
    # The loss by rows was 2 to 6% faster at 0.056 M to 0.333 M when compiled; otherwise it is slower.
    return functools.partial(
        objectives.sequence_losses_by_rows, of_hidden=torch.compile(objectives.losses_by_rows, dynamic=False)
    )


def forget() -> None:
    """Clear the cache of `ready`: a model that was sharded over processes cannot serve the next run."""
    _ready.cache_clear()


def choose_engine(
    model: Mapping[str, Any],
    precision: str,
    batch: int,
    sequence_length: int,
    threads: int,
    tokens_ahead: int,
    folder: Path,
    *,
    objective: str = "causal",
) -> dict[str, Any]:
    """The fastest engine for a shape on this machine, read from `folder` or measured now.

    Args:
        model, precision, threads, objective: as `ready`.
        batch, sequence_length: sequences per forward pass, tokens per sequence.
        tokens_ahead: tokens yet to be trained at this shape, which decide whether compiling pays.
        folder: where choices are kept, one file per shape and machine.

    Returns:
        A record: engine, shape (hash of the model), measured (engine -> tokens a second of training), evaluation (of
        the engine), precision, device. The same for every caller: a resumed run must not change its arithmetic.
    """
    key = [dict(model), precision, batch, sequence_length, threads, device_name(), torch.__version__]
    path = folder / f"{json_hash(key, digest_size=8)}.json"
    if not path.exists():
        # A hub configuration may lack vocab_size; 0 then means full logits.
        logits = 4 * batch * sequence_length * model.get("vocab_size", 0)
        names = ["sdpa", "eager"] if sequence_length <= LONGEST_EAGER else ["sdpa"]

        def speed(engine: str) -> dict[str, float]:
            return measured_speed(model, engine, precision, batch, sequence_length, threads, objective)

        measured = {name: speed(name) for name in (names if logits <= LARGEST_LOGITS else ["sdpa-chunked"])}
        plain = max(each["training"] for each in measured.values())
        pays = compiling_pays(tokens_ahead, plain) and logits <= LARGEST_LOGITS
        if pays and shutil.which(os.environ.get("CXX", "g++")):
            compiled = "eager-compiled" if "eager" in measured else "sdpa-compiled"
            measured[compiled] = speed(compiled)
        fastest = max(measured, key=lambda name: measured[name]["training"])
        record = {
            "engine": fastest,
            "shape": shape_hash(model),
            "measured": {name: round(each["training"]) for name, each in measured.items()},
            "evaluation": round(measured[fastest]["evaluation"]),
            "precision": precision,
            "device": device_name(),
        }
        folder.mkdir(parents=True, exist_ok=True)
        _write_once(path, record)
    return json.loads(path.read_text())


def shape_hash(model: Mapping[str, Any]) -> str:
    """The name of a model's shape in the records of engines."""
    return json_hash(dict(model), digest_size=8)


def measured_speed(
    model: Mapping[str, Any],
    engine: str,
    precision: str,
    batch: int,
    sequence_length: int,
    threads: int,
    objective: str = "causal",
) -> dict[str, float]:
    """Tokens a second of an engine: `training`, a step with its update, and `evaluation`, a forward pass.

    Each is the best of four passes after one or two to warm up; of a slow engine the best of the passes that
    PROBE_SECONDS leaves time for, of as many sequences as that allows.
    """
    # Of a large model each engine that is measured would keep a copy; only compiled code is worth keeping.
    compiled = ENGINES[engine].compiled
    network, losses = ready(model, engine, precision, threads, objective=objective, cached=compiled)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    network.to(device)  # pyright: ignore[reportArgumentType]
    generator = torch.Generator().manual_seed(0)
    size = (batch, sequence_length + 1) if objective == "causal" else (batch, 2, sequence_length)
    tokens = torch.randint(0, network.config.vocab_size, size, generator=generator).to(device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.0, weight_decay=0.0, fused=True)

    def learn(sequences: int) -> None:
        optimizer.zero_grad(set_to_none=True)
        (losses(tokens[:sequences]).sum() / tokens.numel()).backward()

    def update() -> None:
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()

    def look(sequences: int) -> None:
        with torch.no_grad():
            losses(tokens[:sequences])

    # Compiled code is made for one shape; it is measured only where training takes far longer.
    sequences = batch
    if not compiled:
        sequences = min(batch, max(1, round(PROBE_SECONDS / 8 / _seconds(device, learn, 1))))
    learning = _best(device, learn, sequences)
    # Of a step, however many sequences it has.
    updating = _best(device, update)
    looking = _best(device, look, sequences)
    optimizer.zero_grad(set_to_none=True)
    each = sequence_length * sequences
    training = batch * sequence_length / (learning * batch / sequences + updating)
    return {"training": training, "evaluation": each / looking}


def _best(device: torch.device, work: Callable[..., None], *arguments: int) -> float:
    """Seconds of the fastest of four calls after a first one, which may compile; of fewer where they take long."""
    _seconds(device, work, *arguments)
    end = time.perf_counter() + PROBE_SECONDS / 4
    times = [_seconds(device, work, *arguments)]
    while len(times) < 4 and time.perf_counter() < end:
        times.append(_seconds(device, work, *arguments))
    return min(times)


def _seconds(device: torch.device, work: Callable[..., None], *arguments: int) -> float:
    start = time.perf_counter()
    work(*arguments)
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def measured_speeds(
    shapes: Mapping[str, Mapping[str, Any]], processes: int, threads: int, **settings: Any
) -> dict[str, dict[str, dict[str, float]]]:
    """Speeds of one of `processes` that train at once on this machine: precision -> shape -> as `measured_speed`.

    They compete for its caches and its memory, so that each is slower than one alone. On GPUs each has its own: one
    process is measured. `settings`: batch, sequence_length and objective of `plain_speeds`; this is the mean of its
    results.
    """
    request = {"shapes": {name: dict(shape) for name, shape in shapes.items()}, "threads": threads, **settings}
    if processes == 1 or torch.cuda.is_available():
        return plain_speeds(**request)
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": str(threads)}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    started = [subprocess.Popen([sys.executable, "-m", "training.engine"], **pipes) for _ in range(processes)]
    for process in started:
        assert process.stdin
        process.stdin.write(json.dumps(request))
        process.stdin.close()
        process.stdin = None
    measured = [json.loads(process.communicate()[0] or "null") for process in started]
    if not all(measured):
        # Memory was too short for all of them, as it may be for the runs.
        return plain_speeds(**request)

    def mean(precision: str, name: str) -> dict[str, float]:
        each = [one[precision][name] for one in measured]
        return {kind: sum(speed[kind] for speed in each) / processes for kind in each[0]}

    return {precision: {name: mean(precision, name) for name in shapes} for precision in PRECISIONS}


def plain_speeds(
    shapes: Mapping[str, Mapping[str, Any]], threads: int, batch: int, sequence_length: int, objective: str = "causal"
) -> dict[str, dict[str, dict[str, float]]]:
    """Precision -> name of a shape -> `measured_speed` on these threads, without compiling."""
    engine = "eager" if sequence_length <= LONGEST_EAGER else "sdpa"

    def speed(shape: Mapping[str, Any], precision: str) -> dict[str, float]:
        return measured_speed(shape, engine, precision, batch, sequence_length, threads, objective)

    return {precision: {name: speed(shape, precision) for name, shape in shapes.items()} for precision in PRECISIONS}


def device_name() -> str:
    """Name of the GPU, or of the CPU where there is none."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), platform.processor() or platform.machine())


def _write_once(path: Path, record: dict[str, Any]) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}")
    write_whole(part, json.dumps(record, indent=2) + "\n")
    try:
        os.link(part, path)
    except FileExistsError:
        pass
    finally:
        part.unlink()


if __name__ == "__main__":
    print(json.dumps(plain_speeds(**json.load(sys.stdin))))
