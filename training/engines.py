"""Engines: how a model is computed, which one a shape gets on this machine, and the record of that choice.

The name of an engine is an attention implementation of transformers, sdpa or eager, and perhaps -compiled or -chunked.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import shutil
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedModel

from training import objectives
from training.corpora.documents import json_hash
from training.devices.group import SHARDED
from training.devices.memory import plain_engine
from training.durable import read_record, write_new, write_whole
from training.model import CAUSAL, build_model, has_linear_head
from training.objectives import Losses
from training.parameters import model_size
from training.spec import Execution, RunSpec

COMPILING_PAYS = 5e12
"""FLOPs of training ahead of a thread from which compiling pays: 100 s at the 50 to 70 GFLOP/s of small models without
it. It takes 20 to 45 s a shape on a slow core, and makes each step 1.15 to 2 times as fast."""
_MOST_SHARED = 4


@dataclass(frozen=True)
class EngineChoice:
    """The engine of a shape on this machine."""

    engine: str
    """Its name."""


def build_engine(
    spec: RunSpec, engine: str, threads: int, end_of_text: int | None = None
) -> tuple[PreTrainedModel, Losses]:
    """A new model of a run's shape and its loss function, by token with a reweighting; load its weights before use.

    Args:
        spec, engine, threads: the run; name of the engine; CPU threads of this process.
        end_of_text: token id after each document, which ends attention; None: attention sees the whole sequence.
    """
    torch.set_num_threads(threads)
    attention, _, variant = engine.partition("-")
    precision, by_token = spec.precision, spec.reweighting is not None
    if attention == "sdpa" and spec.objective.kind == "causal":
        attention = CAUSAL
    network = build_model(spec.model, attention, None, objective=spec.objective.kind)
    if variant == "compiled":
        _prepare_compiler()
    blocks = [block for block in network.modules() if type(block).__name__ in (network._no_split_modules or ())]
    by_sequence, by_layer = objectives.sequence_losses, False
    if spec.objective.kind == "causal" and has_linear_head(network):
        if variant == "chunked":
            by_sequence = functools.partial(objectives.sequence_losses_of_head, head=objectives.losses_in_chunks)
        elif variant == "compiled" and blocks:
            by_sequence, by_layer = _compiled_by_layer(blocks), True

    def losses(tokens: torch.Tensor) -> torch.Tensor:
        if spec.objective.kind == "masked":
            return objectives.masked_losses(network, tokens, precision, by_token=by_token)
        return by_sequence(network, tokens, precision, end_of_text, by_token=by_token)

    if variant != "compiled":
        return network, losses
    compiled = losses if by_layer else torch.compile(losses, dynamic=False)

    def one_graph(tokens: torch.Tensor) -> torch.Tensor:
        # Evaluations use the training graph: compiling a second one would take 15 s per shape.
        with torch.enable_grad():
            try:
                return compiled(tokens)
            except Exception as error:
                # Its compiler, or that of another process, was killed: compiled again, once what it left is gone.
                if ".so" not in str(error):
                    raise
                drop_cut_libraries()
                return compiled(tokens)

    return network, one_graph


_shared: dict[str, tuple[PreTrainedModel, Losses]] = {}


def shared_engine(
    spec: RunSpec, engine: str, threads: int, end_of_text: int | None = None
) -> tuple[PreTrainedModel, Losses]:
    """As `build_engine`, but one for all runs of a shape in this process, which then share its compiled code."""
    shape = [spec.model, spec.precision, spec.objective.kind, spec.reweighting is not None, engine, end_of_text]
    key = json.dumps(shape, sort_keys=True)
    if key not in _shared:
        if len(_shared) == _MOST_SHARED:
            del _shared[next(iter(_shared))]
        _shared[key] = build_engine(spec, engine, threads, end_of_text)
    return _shared[key]


def drop_shared_engines() -> None:
    """Free the models of `shared_engine`: one that was sharded over processes cannot serve the next run."""
    _shared.clear()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _prepare_compiler() -> None:
    # One thread compiles; the default pool of one worker per core would cost memory in every process.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    import torch._inductor.config as inductor  # takes two seconds, which engines without compilation need not spend

    drop_cut_libraries()
    # Autocast's arguments are constants of the graph and so part of its key, but by default they keep the traced
    # forward and backward out of the cache: each process would spend half its start tracing them again.
    inductor.unsafe_marked_cacheable_functions.update(
        {f"torch.amp.autocast_mode.{name}": torch.__version__ for name in ("_enter_autocast", "_exit_autocast")}
    )
    # Each shape is one cache entry of a compiled function; beyond the limit it would run without compilation.
    torch._dynamo.config.recompile_limit = 64


def drop_cut_libraries() -> None:
    """Remove the libraries that a killed compiler left in torch's cache: each later process would fail to load them."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir  # takes two seconds

    if sys.platform == "linux":
        for library in Path(cache_dir()).glob("**/*.so"):
            with contextlib.suppress(OSError):
                if not _is_whole(library):
                    library.unlink()


def _is_whole(library: Path) -> bool:
    """Whether a library has all of its bytes: the table of its sections is at its end."""
    with library.open("rb") as stream:
        header = stream.read(64)
        size = os.fstat(stream.fileno()).st_size
    if len(header) < 64 or header[:4] != b"\x7fELF":
        return False
    start, entry, count = struct.unpack("<40xQ10xHH2x", header)
    return size >= start + entry * count


def _compiled_by_layer(blocks: list[torch.nn.Module]) -> Callable[..., torch.Tensor]:
    """Compile a model's layers in place; returns the loss function with its head compiled, on a GPU in chunks.

    One compiled layer serves all, in 60% of the compile time of the whole model. Its steps were 5% slower than the
    whole graph's at 0.056 M parameters, 3.5% slower at 0.152 M and 2 to 12% faster at 0.333 M.
    """
    for block in blocks:
        block.compile(dynamic=False)
    if torch.cuda.is_available():
        compiled = functools.partial(torch.compile, dynamic=False)
        of_chunk = (compiled(objectives.chunk_losses), compiled(objectives.chunk_gradients))
        head = functools.partial(objectives.losses_in_chunks, of_chunk=of_chunk)
    else:
        # The loss by rows was 2 to 6% faster at 0.056 M to 0.333 M when compiled; otherwise it is slower.
        head = torch.compile(objectives.losses_by_rows, dynamic=False)
    return functools.partial(objectives.sequence_losses_of_head, head=head)


def choose_engine(
    spec: RunSpec, execution: Execution, folder: Path, tokens_ahead: int = 0, begun: str | None = None
) -> str:
    """The engine that a run uses: as given, or for "auto" the one kept in `folder` for its shape and this machine.

    On a GPU layers are compiled, and the head works in chunks. On a CPU the first run of a shape chooses for all:
    attention by sequence length, and compiled code if the tokens ahead pay for it; where they did not, a later run for
    which they do chooses anew. Sharded models are not compiled.

    Args:
        spec, execution: the run, and how it is executed.
        folder: where choices are kept, one file per shape and machine.
        tokens_ahead: tokens that all runs of this shape have yet to train.
        begun: engine that the run was begun with on this machine: a resumed run must not change its arithmetic.
    """
    if execution.engine != "auto":
        return execution.engine
    batch = execution.parallel.micro_batch(spec.global_batch, execution.micro_batch)
    plain, threads = plain_engine(spec, batch, gpu=torch.cuda.is_available()), execution.threads
    if execution.parallel.kind in SHARDED:
        return plain
    if begun or torch.cuda.is_available():
        return begun or "sdpa-compiled"
    flops = max(tokens_ahead, spec.tokens) * model_size(spec.model, spec.sequence_length).flops_per_token
    pays, can_compile = flops > COMPILING_PAYS * threads, "-" not in plain and shutil.which(os.getenv("CXX", "g++"))
    chosen = f"{plain}-compiled" if pays and can_compile else plain
    key = [spec.model, spec.precision, batch, spec.sequence_length, threads, device_name(), torch.__version__]
    path = folder / f"{json_hash(key, digest_size=8)}.json"
    kept = read_record(path, EngineChoice).engine if path.exists() else None
    if kept in (chosen, f"{plain}-compiled"):
        return kept
    folder.mkdir(parents=True, exist_ok=True)
    (write_whole if kept else write_new)(path, json.dumps({"engine": chosen}) + "\n")
    return read_record(path, EngineChoice).engine


def fast_precisions() -> list[str]:
    """fp32, and bf16 where this machine has instructions for its products; else they are emulated, more slowly."""
    if torch.cuda.is_available():
        has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        has_bf16 = any(torch.cpu.get_capabilities().get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))
    return ["fp32", "bf16"] if has_bf16 else ["fp32"]


def device_name() -> str:
    """Name of the GPU, or of the CPU where there is none."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), platform.processor() or platform.machine())
