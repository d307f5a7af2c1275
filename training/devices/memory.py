"""Peak memory a device of training a model, by formula; the largest micro-batch that fits follows from it.

The formula counts what PyTorch keeps of a model that is computed operation by operation, as fake tensors show it, or of
compiled layers, by what their partition into a forward and a backward pass saves.
"""

from dataclasses import dataclass, replace

from training.devices.group import SHARDED
from training.parameters import CHUNK, model_size
from training.spec import Architecture, Parallel, RunSpec

LONGEST_EAGER = 512
"""Eager attention is faster on a CPU up to this sequence length; of longer ones its (T, T) scores take the memory."""
LARGEST_LOGITS = 2**32
"""Bytes of logits above which a CPU computes them in chunks, which have .7 to .8 times the speed."""
COMPILING_PAYS = 5e12
"""FLOPs of training for each thread of a CPU from which compiling pays: 100 s at the 50 to 70 GFLOP/s of small models
without it. It takes 20 to 45 s a shape on a slow core, and makes each step 1.15 to 2 times as fast."""
GRAPHED_FLOPS = 1e12
"""FLOPs of a layer's work on a micro-batch up to which launching it takes a GPU longer than computing it: an H200
computed 4e14 a second, and was given the operations of a layer in 2.6 to 3.7 ms."""
PROCESS = 5e8
"""Bytes that a process takes beside its tensors: libraries, or a GPU's context and kernels."""
LOST = {True: 0.05, False: 0.22}
"""GPU or not -> part of the memory that the allocator loses between tensors. Of CPUs: SmolLM2-135M took 8.0 and 8.7 GB
where its tensors have 5.9 and 6.3; of GPUs it is not measured.
"""

_KEPT = {
    "llama": ((26, 4, 4, 8), (24, 8, 8, 16)),
    "qwen2": ((26, 4, 4, 8), (24, 8, 8, 16)),
    "qwen3": ((26, 10, 10, 8), (24, 16, 16, 16)),
    "gpt2": ((12, 4, 4, 10), (16, 8, 8, 20)),
    "bert": ((16, 4, 4, 4), (16, 8, 8, 8)),
}
"""model_type -> bytes that a layer keeps of a token, in bf16 and in fp32, for each unit of: hidden size, queries, keys,
inner size."""
_KEPT_OF_OTHERS = ((42, 12, 12, 8), (40, 16, 16, 16))
"""The same of Gemma 3, which has more norms than the others."""
_KEPT_COMPILED = {
    "llama": ((10, 4, 4, 6), (16, 8, 8, 12)),
    "qwen2": ((10, 4, 4, 6), (16, 8, 8, 12)),
    "qwen3": ((10, 6, 6, 6), (16, 12, 12, 12)),
    "gpt2": ((18, 0, 0, 4), (32, 0, 0, 8)),
    "gemma3_text": ((12, 6, 6, 6), (20, 12, 12, 12)),
}
"""The same of compiled layers; of others as if they were not compiled."""
_SCALES_OF_LOGITS = ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier")
"""Fields by which logits are no product with the head's weight alone; null or 1: they are."""
_BIASED_HEADS = ("phi", "gptj", "codegen")


@dataclass(frozen=True)
class Memory:
    """Bytes of one device at the moment at which training takes the most."""

    weights: float = 0.0
    """fp32 weights, or this process' part of them and the layer in use."""
    gradients: float = 0.0
    """Gradients, fp32."""
    moments: float = 0.0
    """Both moments of AdamW, fp32."""
    activations: float = 0.0
    """What the backward pass needs of the forward pass, the weights' copies of autocast included."""
    logits: float = 0.0
    """Logits or a chunk of them, their gradients, and those of the head."""
    state: float = 0.0
    """Copies of weights and moments that are written to disk, of a process without a GPU."""

    @property
    def total(self) -> float:
        """The sum."""
        return self.weights + self.gradients + self.moments + self.activations + self.logits + self.state

    def of_process(self, *, gpu: bool) -> float:
        """What the process takes for it."""
        return self.total / (1 - LOST[gpu]) + PROCESS


@dataclass(frozen=True)
class Fitted:
    """How a process computes a step within its memory."""

    micro_batch: int
    """Sequences per forward pass."""
    checkpointing: bool
    """Whether activations are recomputed."""
    memory: Memory | None
    """What that takes; None: not known."""
    fits: bool
    """Whether it is within the limit."""


@dataclass(frozen=True)
class _Sizes:
    layers: int
    hidden: int
    queries: int
    keys: int
    inner: int
    heads: int
    vocabulary: int
    tied: bool
    matrices: int


def _sizes(model: Architecture) -> _Sizes | None:
    """Sizes by the names of transformers; None where it has others."""
    model = model.get("text_config") or model
    gpt2, learned = "n_embd" in model, model.get("model_type") in ("gpt2", "bert")
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    values = (model.get(name) for name in (("n_embd", "n_layer", "n_head", "n_inner") if gpt2 else names))
    hidden, layers, heads, inner = values
    if not (hidden and layers and heads):
        return None
    inner = inner or 4 * hidden
    width = model.get("head_dim") or hidden // heads
    queries, keys = heads * width, (model.get("num_key_value_heads") or heads) * width
    matrices = hidden * (2 * queries + 2 * keys) + (2 if learned else 3) * hidden * inner
    tied = bool(model.get("tie_word_embeddings", learned))
    return _Sizes(layers, hidden, queries, keys, inner, heads, model.get("vocab_size") or 0, tied, matrices)


def is_head_linear(model: Architecture) -> bool:
    """What `has_linear_head` finds of a built model, by its configuration."""
    model = model.get("text_config") or model
    return model.get("model_type") not in _BIASED_HEADS and all(
        model.get(field) in (None, 1) for field in _SCALES_OF_LOGITS
    )


def plain_engine(spec: RunSpec, batch: int, *, gpu: bool) -> str:
    """The engine of a shape without compiling."""
    # A hub configuration may lack vocab_size; 0 then means full logits.
    if gpu or 4 * batch * spec.sequence_length * spec.model.get("vocab_size", 0) > LARGEST_LOGITS:
        return "sdpa-chunked"
    return "eager" if spec.sequence_length <= LONGEST_EAGER else "sdpa"


def auto_engine(spec: RunSpec, parallel: Parallel, batch: int, *, gpu: bool, flops: float = 0.0) -> str:
    """The engine of a shape by engine=auto, by the FLOPs of all its runs that a thread of a CPU can compile for.

    Layers are compiled on a GPU, and code on a CPU where that pays; a sharded model never is.
    """
    plain = plain_engine(spec, batch, gpu=gpu)
    if parallel.kind in SHARDED:
        return plain
    if gpu:
        return "sdpa-compiled"
    return f"{plain}-compiled" if flops > COMPILING_PAYS and "-" not in plain else plain


def most_graphed(spec: RunSpec, parallel: Parallel) -> float:
    """Sequences of the largest micro-batch that a GPU replays as CUDA graphs; 0: none (`training.devices.graphed`)."""
    sizes = _sizes(spec.model)
    if parallel.kind != "single" or spec.reweighting is not None or sizes is None:
        return 0.0
    flops = model_size(spec.model, spec.sequence_length).flops_per_token * spec.sequence_length
    return sizes.layers * GRAPHED_FLOPS / flops


def fitted(
    spec: RunSpec, parallel: Parallel, given: int, engine: str, limit: float | None, *, gpu: bool, most: int = 0
) -> Fitted:
    """The largest micro-batch that fits a process; smaller ones come before activation checkpointing.

    Args:
        spec, parallel, engine, gpu: as of `memory_of`; the engine may be auto.
        given, limit: a micro-batch that is asked for, or 0; bytes that the process may take, None: any number.
        most: the largest micro-batch that has not run out of memory, where one has; else 0.
    """
    local, asked = spec.global_batch // parallel.processes, parallel.activation_checkpointing
    sizes = [size for size in range(local, 0, -1) if local % size == 0 and size <= (most or local)]
    fits = []
    for checkpointing in (False, True) if asked is None else (asked,):
        how = replace(parallel, activation_checkpointing=checkpointing)
        for size in [given] if given and not most else sizes:
            # On a CPU as if nothing were compiled, which keeps less.
            of_size = auto_engine(spec, parallel, size, gpu=gpu) if engine == "auto" else engine
            memory = memory_of(spec, how, size, of_size, gpu=gpu)
            room = limit is None or memory is None or memory.of_process(gpu=gpu) <= limit
            fits.append(Fitted(size, checkpointing, memory, room))
            if room:
                break
    return next((fit for fit in fits if fit.fits), fits[-1])


def memory_of(spec: RunSpec, parallel: Parallel, micro_batch: int, engine: str, *, gpu: bool) -> Memory | None:
    """Peak memory of a process of a run, in bytes; None for an architecture whose configuration has other names.

    `gpu`: the process has one; on a CPU the copies for a saved state lie in the same memory.
    """
    sizes = _sizes(spec.model)
    if sizes is None:
        return None
    total, bf16 = 4.0 * model_size(spec.model, spec.sequence_length).total, spec.precision == "bf16"
    matrices, head = 4.0 * sizes.matrices, 4.0 * sizes.vocabulary * sizes.hidden
    # FSDP2 gathers a layer in bf16; otherwise autocast copies its weights.
    gathered = bf16 and parallel.kind == "fsdp2"
    held = _held(total, (matrices, (total - matrices * sizes.layers)), parallel, 0.5 if gathered else 1.0)
    tokens = micro_batch * spec.sequence_length
    layer = tokens * _kept(spec, sizes, engine)
    copies = matrices / 2 if bf16 and not gathered else 0.0
    body = tokens * 4.0 * sizes.hidden * 2
    inputs = body + sizes.layers * tokens * 4.0 * sizes.hidden
    # A chunk is computed again in the backward pass, so that its logits are not kept in the forward pass.
    # A masked objective, and a head that is more than a matrix, have whole logits by any engine.
    linear = spec.objective.kind == "causal" and is_head_linear(spec.model)
    fused = linear and gpu and engine.endswith("-compiled")
    chunked = (linear and engine.endswith("-chunked")) or fused
    rows = min(tokens, CHUNK) if chunked else tokens
    copy_of_head, width = (head / 2, 2.0) if bf16 else (0.0, 4.0)
    logits = max(rows * 12.0 * sizes.vocabulary, rows * 2.0 * sizes.vocabulary + 1.5 * head)
    if chunked:
        # The gradient of the head is summed over chunks: that of a chunk, the sum before and the one after.
        of_chunk = rows * width * sizes.vocabulary + (2 * head + (head / 2 if bf16 else head))
        logits = max(rows * (2 * width if fused else 9.0) * sizes.vocabulary + head, of_chunk)
    logits += copy_of_head
    inside = tokens * (4.0 if bf16 else 8.0) * (sizes.inner + sizes.hidden) + 0.5 * matrices
    # The gradients of earlier micro-batches of the step are there from the start; in a graph all are, in one place.
    graphed = gpu and micro_batch <= most_graphed(spec, parallel)
    before = held.gradients if graphed or micro_batch * parallel.processes < spec.global_batch else 0.0
    # Of a tied head it waits for that of the embedding, which comes last.
    waiting = head if sizes.tied else 0.0
    # Of the first layer, the last of the backward pass, and of an untied embedding.
    to_come = 0.0 if before or held.gradients < total else matrices + head - waiting
    if parallel.activation_checkpointing:
        kept, again, last = inputs, layer + copies + inside, body + layer + copies + inside
        forward = inputs + sizes.layers * copies
    else:
        kept = body + sizes.layers * (layer + copies)
        again, last, forward = inside, body + layer + copies + inside, kept
    stages = (
        (before, forward, copy_of_head + rows * 10.0 * sizes.vocabulary),
        (before, kept, logits),
        (before, kept + again, head),
        (held.gradients - to_come, last, waiting if before else 0.0),
        (held.gradients, body, 2 * waiting + (head if before else 0.0)),
    )
    peaks = [Memory(held.weights, gradients, held.moments, *rest) for gradients, *rest in stages]
    if not gpu:
        peaks.append(Memory(held.weights, 0.0, held.moments, state=held.weights + held.moments))
    return max(peaks, key=lambda peak: peak.total)


def _kept(spec: RunSpec, sizes: _Sizes, engine: str) -> float:
    """Bytes that a layer keeps of a token for the backward pass."""
    bf16, kind = spec.precision == "bf16", (spec.model.get("text_config") or spec.model).get("model_type", "")
    compiled = _KEPT_COMPILED if engine.endswith("-compiled") and spec.objective.kind == "causal" else {}
    table = compiled.get(kind) or _KEPT.get(kind, _KEPT_OF_OTHERS)
    of_hidden, of_queries, of_keys, of_inner = table[not bf16]
    scores = 0.0
    if engine.startswith("eager"):
        # Keys and values are repeated for each query, in the place of those that are shared.
        shift = 4 if bf16 else 8
        of_queries, of_keys = of_queries + shift, of_keys - shift
        scores = sizes.heads * spec.sequence_length * ((2.0 if kind == "bert" else 6.0) if bf16 else 4.0)
    parts = (of_hidden * sizes.hidden, of_queries * sizes.queries, of_keys * sizes.keys, of_inner * sizes.inner)
    return sum(parts) + scores


def _held(total: float, parts: tuple[float, float], parallel: Parallel, gathered: float) -> Memory:
    """Weights, gradients and moments of a process, `total` bytes of weights; `parts`: of a layer, of the rest.

    `gathered`: bytes of a gathered layer for each of its fp32 weights'.
    """
    kind, count = parallel.kind, parallel.shards
    if kind in ("fsdp2", "zero3"):
        # The layer in use is whole, and so are, during a step, the embedding and the head.
        weights = total / count + gathered * parts[0] + parts[1]
        return Memory(weights, total / count + parts[0], 2 * total / count)
    if kind in ("zero1", "zero2"):
        # DeepSpeed steps a copy of its part of the weights.
        return Memory(total + total / count, total / count if kind == "zero2" else total, 2 * total / count)
    return Memory(total, total, 2 * total)
