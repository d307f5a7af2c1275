"""Training speed of this process, measured in some seconds whatever the model."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median

import torch
from transformers import PreTrainedModel

from training.devices.group import ALONE, Parallel
from training.devices.placement import place_model
from training.engines import build_engine
from training.objectives import Losses
from training.spec import RunSpec

_LEAST_TOKENS, _REPEATED = 16, 5


def step_parts(
    network: PreTrainedModel, losses: Losses, spec: RunSpec, batch: int, parallel: Parallel | None = None
) -> tuple[Callable[[int, int], object], Callable[[], object]]:
    """The parts of a step of the training loop, on random tokens: gradient, of sequences and tokens of each; update."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(0.01)  # The time of some values, like denormal ones, is another.
    devices, causal = place_model(network, losses, spec, parallel or Parallel(), ALONE), spec.objective.kind == "causal"
    size = (batch, spec.sequence_length + 1) if causal else (batch, 2, spec.sequence_length)
    tokens = torch.randint(
        network.config.get_text_config().vocab_size, size, generator=torch.Generator().manual_seed(0)
    )

    def gradient(sequences: int, length: int) -> None:
        part = tokens[:sequences, ..., : length + causal]
        devices.gradient(part, part.numel())

    return gradient, lambda: float(devices.update(0.0))  # waits for a GPU


def measured_speed(spec: RunSpec, engine: str, batch: int, threads: int, limit: float) -> float | None:
    """Training tokens a second of this process, updates included, measured in about `limit` seconds.

    A gradient of a few tokens is timed first, then one of as many as there is time for. Of a batch that takes longer
    its time is in proportion.

    Returns:
        None where `limit` is too short for a sound measurement.
    """
    length, total = spec.sequence_length, batch * spec.sequence_length
    gradient, update = step_parts(*build_engine(spec, engine, threads), spec, batch)
    few = min(_LEAST_TOKENS, length)
    gradient(1, few)  # loads kernels
    if (shortest := _median_seconds(partial(gradient, 1, few), 0.0)) > limit / 2:
        return None
    tokens = min(max(few, int(few * limit / (4 * shortest))), total)
    sequences, length = max(1, tokens // length), min(tokens, length)
    of_gradient = _median_seconds(partial(gradient, sequences, length), limit / 2) * total / (sequences * length)
    update()  # makes the moments
    speed = total / (of_gradient + _median_seconds(update, limit / 4))
    return speed if speed > 1 else None


def _median_seconds(act: Callable[[], object], limit: float) -> float:
    """Median time of an act that is done once, or more often within so many seconds."""
    took: list[float] = []
    while not took or (len(took) < _REPEATED and sum(took) + took[-1] <= limit):
        before = time.perf_counter()
        act()
        took.append(time.perf_counter() - before)
    return median(took)
