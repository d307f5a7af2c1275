"""The fastest engine for a model shape on this machine: attention, compilation and precision, measured and kept.

`python -m training.engine` is one of the processes of `measured_speeds`. Each message is one line of JSON: it reads the
arguments of `plain_speeds`, prints the target's speed by precision, reads the precision chosen, prints the result.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
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
from training.parameters import compiling_pays, model_size
from training.speed_probe import Stopwatch, measure_speed


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
"""About how long an engine that is not compiled is measured: large models with shorter batches, and fewer passes."""
PROBE_LIMIT = 20.0
"""Seconds that the measured passes of `plain_speeds` take at most, of all shapes and precisions together."""


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
    """Clear the cache of `ready`, and give the memory of a GPU back to other processes.

    A model that was sharded over processes cannot serve the next run, and one that was measured serves none here.
    """
    _ready.cache_clear()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


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
        A record: engine, shape (hash of the model), measured (engine -> tokens per second of training), evaluation (of
        the engine), seconds (that measuring took), precision, device. The same for every caller: a resumed run must
        not change its arithmetic.
    """
    key = [dict(model), precision, batch, sequence_length, threads, device_name(), torch.__version__]
    path = folder / f"{json_hash(key, digest_size=8)}.json"
    if not path.exists():
        start = time.perf_counter()
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
            "measured": {name: max(round(each["training"]), 1) for name, each in measured.items()},
            "evaluation": max(round(measured[fastest]["evaluation"]), 1),
            "seconds": round(time.perf_counter() - start, 1),
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
    *,
    seconds: float = PROBE_SECONDS,
    stopwatch: Stopwatch | None = None,
) -> dict[str, float]:
    """Tokens a second of an engine: `training`, a step with its update, and `evaluation`, a forward pass.

    As `training.speed_probe.measure_speed` measures it, in about `seconds` where it is not compiled.
    """
    # Of a large model each engine that is measured would keep a copy; only compiled code is worth keeping.
    compiled = ENGINES[engine].compiled
    network, losses = ready(model, engine, precision, threads, objective=objective, cached=compiled)
    whole, watch = (batch, sequence_length), stopwatch or Stopwatch()
    return measure_speed(network, losses, model, whole, objective, watch, seconds, compiled=compiled)


Speeds = dict[str, dict[str, dict[str, float]]]
"""Precision -> shape -> as `measured_speed`."""


def measured_speeds(shapes: Mapping[str, Mapping[str, Any]], processes: int, threads: int, **settings: Any) -> Speeds:
    """Speeds of one of `processes` that train at once on this machine.

    They compete for its caches and its memory, so that each is slower than one alone. On GPUs each has its own: one
    process is measured. `settings`: target, precisions, batch, sequence_length and objective of `plain_speeds`; this is
    the mean of its results.
    """
    request = {"shapes": {name: dict(shape) for name, shape in shapes.items()}, "threads": threads, **settings}
    measured = None
    if processes > 1 and not torch.cuda.is_available():
        # A process ends early where memory is too short for all of them, as it may be for the runs.
        with contextlib.suppress(BrokenPipeError, json.JSONDecodeError):
            measured = _measured_together(request, processes, threads)
    return _mean(measured) if measured else plain_speeds(**request)


def _measured_together(request: Mapping[str, Any], processes: int, threads: int) -> list[Speeds]:
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": str(threads)}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    command = [sys.executable, "-m", "training.engine"]
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(subprocess.Popen(command, **pipes)) for _ in range(processes)]
        for process in started:
            stack.callback(process.kill)

        def ask(message: object) -> list[Any]:
            for process in started:
                assert process.stdin
                print(json.dumps(message), file=process.stdin, flush=True)
            return [json.loads(process.stdout.readline()) for process in started if process.stdout]

        return ask(_fastest(_mean(ask(request))))


def _answer_parent() -> None:
    def agree(of_target: Mapping[str, float]) -> str:
        print(json.dumps(of_target), flush=True)
        return json.loads(sys.stdin.readline())

    print(json.dumps(plain_speeds(**json.loads(sys.stdin.readline()), agree=agree)), flush=True)


def _mean(values: list[Any]) -> Any:
    """The mean of numbers, or of nested dictionaries of them, of which all have the same keys."""
    first = values[0]
    if isinstance(first, dict):
        return {key: _mean([value[key] for value in values]) for key in first}
    return sum(values) / len(values)


def _fastest(of_target: Mapping[str, float]) -> str:
    return max(of_target, key=of_target.__getitem__)


def plain_speeds(
    shapes: Mapping[str, Mapping[str, Any]],
    target: str,
    precisions: Sequence[str],
    threads: int,
    batch: int,
    sequence_length: int,
    objective: str = "causal",
    *,
    agree: Callable[[Mapping[str, float]], str] = _fastest,
) -> Speeds:
    """Speeds of shapes on these threads, without compiling: of `target` in each precision, of the others in one.

    Their passes take PROBE_LIMIT seconds at most, unless those of a single token take longer; loading and building the
    models comes on top. A speed that there is no time to measure is the target's, scaled by FLOPs.

    Args:
        shapes: name -> architecture.
        target: name of the shape that decides the precision.
        precisions: of PRECISIONS, those to choose from.
        threads, batch, sequence_length, objective: as `measured_speed`.
        agree: precision -> training tokens per second of the target; returns the precision of the other shapes.
    """
    engine = "eager" if sequence_length <= LONGEST_EAGER else "sdpa"
    watch, speeds = Stopwatch(), {precision: {} for precision in precisions}

    def measure(name: str, precision: str, seconds: float) -> dict[str, float]:
        if watch.total + watch.single_token > PROBE_LIMIT:
            flops = [model_size(shapes[each], sequence_length).flops_per_token for each in (target, name)]
            of_target = speeds[precision].get(target) or speeds[precisions[0]][target]
            return {kind: speed * flops[0] / flops[1] for kind, speed in of_target.items()}
        common = (engine, precision, batch, sequence_length, threads, objective)
        return measured_speed(shapes[name], *common, seconds=seconds, stopwatch=watch)

    others = [name for name in shapes if name != target]
    # A tenth is left for passes that take longer than expected; all other shapes together have the time of a precision.
    share = 0.9 * PROBE_LIMIT / max(2, len(precisions) + bool(others))
    for precision in precisions:
        speeds[precision][target] = measure(target, precision, share)
    chosen = agree({precision: of_shape[target]["training"] for precision, of_shape in speeds.items()})
    for name in others:
        speeds[chosen][name] = measure(name, chosen, share / len(others))
    return speeds


def fast_precisions() -> list[str]:
    """Precisions of PRECISIONS whose products this machine has instructions for.

    A processor without those of bf16 emulates them, which is slower than fp32.
    """
    instructions = torch.cpu.get_capabilities()
    has_bf16 = any(instructions.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))
    return [*PRECISIONS] if has_bf16 or torch.cuda.is_available() else ["fp32"]


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
    _answer_parent()
