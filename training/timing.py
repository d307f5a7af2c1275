"""Time of a training step, measured in seconds whatever the model."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch
from transformers import PreTrainedModel

from training.devices.group import ALONE, Parallel
from training.devices.placement import place_model
from training.objectives import Losses
from training.spec import RunSpec

_LEAST_TOKENS = 16


def training_step(
    network: PreTrainedModel, losses: Losses, spec: RunSpec, batch: int, parallel: Parallel | None = None
) -> Callable[[int, int], object]:
    """The step of the training loop, with its update, on random tokens: a function of sequences and tokens of each."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(0.01)  # The time of some values, like denormal ones, is another.
    devices, causal = place_model(network, losses, spec, parallel or Parallel(), ALONE), spec.objective.kind == "causal"
    size = (batch, spec.sequence_length + 1) if causal else (batch, 2, spec.sequence_length)
    tokens = torch.randint(
        network.config.get_text_config().vocab_size, size, generator=torch.Generator().manual_seed(0)
    )

    def step(sequences: int, length: int) -> None:
        part = tokens[:sequences, ..., : length + causal]
        devices.gradient(part, part.numel())
        float(devices.update(0.0))  # waits for a GPU

    return step


def step_seconds(
    step: Callable[[int, int], object], batch: int, length: int, limit: float, *, whole: bool = False
) -> float | None:
    """Seconds of a step on a batch: the median of up to five after the first.

    A few tokens are timed first, then as many as there is time for. Where that is not the whole batch, the line through
    both gives its time, since an update takes as long however many tokens a step has.

    Args:
        step: takes sequences, and tokens of each.
        batch, length: sequences of the batch, tokens of each.
        limit: seconds that all steps together take, about.
        whole: time the whole batch only, as compiled code is made for one shape, at its first call.

    Returns:
        None where `limit` or noise leaves the time unknown.
    """
    total = batch * length
    tokens = total if whole else min(_LEAST_TOKENS, total)
    times: dict[int, float] = {}

    def timed() -> float:
        before = time.perf_counter()
        step(max(1, tokens // length), min(tokens, length))
        return time.perf_counter() - before

    first = timed()  # loads kernels, or compiles
    if tokens < total and first > limit / 2:
        return None
    start = time.perf_counter()
    while True:
        times[tokens] = timed()
        # A step takes no longer than in proportion to its tokens; half of the time is for repetitions.
        growth = int((limit - (time.perf_counter() - start)) / (2 * times[tokens]))
        if tokens == total or (growth < 2 and len(times) > 1):
            break
        tokens = min(tokens * max(growth, 4), total)
        tokens -= tokens % length if tokens > length else 0
    repeated: list[float] = []
    while len(repeated) < 5 and time.perf_counter() - start + times[tokens] <= limit:
        repeated.append(timed())
    seconds, least = median(repeated or [times[tokens]]), min(times)
    if tokens == total:
        return seconds
    if seconds < 1.2 * times[least]:
        return None
    return seconds + (seconds - times[least]) / (tokens - least) * (total - tokens)
