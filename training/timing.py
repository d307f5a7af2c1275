"""Training speed of this process, measured in some seconds whatever the model."""

from collections.abc import Callable
from functools import partial
from statistics import median
from timeit import Timer

import torch
from transformers import PreTrainedModel

from training.devices.group import ALONE, Parallel
from training.devices.placement import place_model
from training.devices.single import Devices
from training.engines import build_engine
from training.objectives import Losses
from training.spec import RunSpec

_LEAST_TOKENS, _REPEATED = 16, 5


def on_random_tokens(
    network: PreTrainedModel, losses: Losses, spec: RunSpec, batch: int, parallel: Parallel | None = None
) -> tuple[Devices, torch.Tensor]:
    """A new model on its device, as the training loop has it, and a batch of random tokens."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(0.01)  # The time of some values, like denormal ones, is another.
    causal = spec.objective.kind == "causal"
    size = (batch, spec.sequence_length + 1) if causal else (batch, 2, spec.sequence_length)
    drawn = torch.randint(network.config.get_text_config().vocab_size, size)
    return place_model(network, losses, spec, parallel or Parallel(), ALONE), drawn


def measured_speed(spec: RunSpec, engine: str, batch: int, threads: int, limit: float) -> float:
    """Training tokens a second of this process, updates included, measured in about `limit` seconds.

    A gradient of a few tokens is timed first, then one of as many as there is time for. Of a batch that takes longer
    its time is in proportion.

    Returns:
        0 where `limit` is too short for a sound measurement.
    """
    length, total = spec.sequence_length, batch * spec.sequence_length
    devices, drawn = on_random_tokens(*build_engine(spec, engine, threads), spec, batch)

    def gradient(tokens: int) -> None:
        # Whole sequences, or the first tokens of one and their successors.
        part = drawn[: max(1, tokens // length), ..., : tokens + drawn.shape[-1] - length]
        devices.gradient(part, tokens)

    few = min(_LEAST_TOKENS, length)
    gradient(few)  # loads kernels
    if (shortest := _median_seconds(partial(gradient, few), 0.0)) > limit / 2:
        return 0.0
    tokens = min(max(few, int(few * limit / (4 * shortest))), total)
    tokens -= tokens % length if tokens > length else 0
    of_gradient = _median_seconds(partial(gradient, tokens), limit / 2) * total / tokens
    devices.update(0.0)  # makes the moments
    speed = total / (of_gradient + _median_seconds(partial(devices.update, 0.0), limit / 4))
    return speed if speed > 1 else 0.0


def _median_seconds(act: Callable[[], object], limit: float) -> float:
    """Median time of an act that is done once, or more often within so many seconds."""
    timer = Timer(act)
    first = timer.timeit(1)
    return median([first, *timer.repeat(min(_REPEATED, int(limit / first)) - 1, 1)])
