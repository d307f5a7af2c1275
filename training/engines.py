"""Engines: how a model is computed, and which one a shape gets on this machine.

The name of an engine is an attention implementation of transformers, sdpa or eager, and perhaps -compiled or -chunked.
"""

import functools
import json
import os
import shutil

import torch
from transformers import PreTrainedModel

from training import objectives
from training.devices.compile_cache import call_compiled, prepare_compiler
from training.devices.group import SHARDED
from training.devices.memory import auto_engine
from training.model import CAUSAL, build_model, documents_problem, has_linear_head
from training.objectives import Losses
from training.parameters import model_size
from training.spec import Execution, RunSpec, SpecError

_MOST_SHARED = 4


def build_engine(
    spec: RunSpec, engine: str, threads: int, end_of_text: int | None = None
) -> tuple[PreTrainedModel, Losses]:
    """A new model of a run's shape and its loss function, by token with a reweighting; load its weights before use.

    Args:
        spec, engine, threads: the run; name of the engine; CPU threads of this process.
        end_of_text: token id after each document, which ends attention; None: attention sees the whole sequence.

    Raises:
        SpecError: transformers has no such model, or cannot end its attention at the end of a document.
    """
    torch.set_num_threads(threads)
    attention, _, variant = engine.partition("-")
    kind, precision, by_token = spec.objective.kind, spec.precision, spec.reweighting is not None
    if attention == "sdpa" and kind == "causal":
        attention = CAUSAL
    network = build_model(spec.model, attention, None, objective=kind)
    if end_of_text is not None and (problem := documents_problem(spec.model["model_type"])):
        raise SpecError(problem)
    linear = kind == "causal" and has_linear_head(network)
    head = objectives.losses_in_chunks if linear and variant == "chunked" else None

    def losses(tokens: torch.Tensor) -> torch.Tensor:
        if kind == "masked":
            return objectives.masked_losses(network, tokens, precision, by_token=by_token)
        return objectives.sequence_losses(network, tokens, precision, end_of_text, head=head, by_token=by_token)

    if variant != "compiled":
        return network, losses
    prepare_compiler()
    blocks = [block for block in network.modules() if type(block).__name__ in (network._no_split_modules or ())]
    if linear and blocks:
        head = _compiled_by_layer(blocks)
    return network, functools.partial(call_compiled, losses if head else torch.compile(losses, dynamic=False))


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
    torch.cuda.empty_cache()


def _compiled_by_layer(blocks: list[torch.nn.Module]) -> objectives.Head:
    """Compile a model's layers in place; returns its head compiled, on a GPU in chunks.

    One compiled layer serves all, in 60% of the compile time of the whole model. Its steps were 5% slower than the
    whole graph's at 0.056 M parameters, 3.5% slower at 0.152 M and 2 to 12% faster at 0.333 M.
    """
    compiled = functools.partial(torch.compile, dynamic=False)
    for block in blocks:
        block.compile(dynamic=False)
    if torch.cuda.is_available():
        of_chunk = (compiled(objectives.chunk_losses), compiled(objectives.chunk_gradients))
        return functools.partial(objectives.losses_in_chunks, of_chunk=of_chunk)
    # The loss by rows was 2 to 6% faster at 0.056 M to 0.333 M when compiled; otherwise it is slower.
    return compiled(objectives.losses_by_rows)


def choose_engine(spec: RunSpec, execution: Execution, tokens_of_shape: int = 0, begun: str | None = None) -> str:
    """The engine that a run uses: as given, or for "auto" by its shape and this machine.

    On a CPU code is compiled if the tokens of all runs of the shape pay for it, and there is a compiler.

    Args:
        spec, execution: the run, and how it is executed.
        tokens_of_shape: tokens that all runs of this shape train, so that they choose alike.
        begun: engine that the run was begun with on this machine: a resumed run must not change its arithmetic.
    """
    if execution.engine != "auto":
        return execution.engine
    parallel, can_compile = execution.parallel, shutil.which(os.getenv("CXX", "g++"))
    if begun and parallel.kind not in SHARDED:
        return begun
    flops = max(tokens_of_shape, spec.tokens) * model_size(spec.model, spec.sequence_length).flops_per_token
    of_thread = flops / execution.threads if can_compile else 0.0
    batch = parallel.micro_batch(spec.global_batch, execution.micro_batch)
    return auto_engine(spec, parallel, batch, gpu=torch.cuda.is_available(), flops=of_thread)
