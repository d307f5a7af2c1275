"""Validation loss on fixed windows, with its standard error."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from training.devices.group import ALONE, Group


@dataclass(frozen=True)
class Validation:
    """Validation loss on one corpus."""

    loss: float
    """Mean cross-entropy, nats per token."""
    stderr: float
    """Standard error of the loss over sequences, nats per token, 0 of a single one; differences between steps and runs
    on the same windows have a smaller one."""


def evaluate(
    losses: Callable[[torch.Tensor], torch.Tensor],
    windows: torch.Tensor,
    predictions: int,
    micro_batch: int,
    interrupt: Callable[[], object] = lambda: None,
    group: Group = ALONE,
) -> Validation:
    """Loss of a model on fixed windows, (count, ...) sequences as `losses` takes them.

    Args:
        losses: loss function, by sequence or by token.
        predictions: tokens predicted per sequence.
        micro_batch: sequences per forward pass; constant, so that compiled code sees one shape.
        interrupt: called before each pass; raises to stop the evaluation.
        group: processes that split the windows; each has the same number of passes and gets the same result.
    """
    count = len(windows)
    local_count = -(-count // group.count)
    begin = group.rank * local_count
    sums = []
    with torch.no_grad():
        for start in range(0, local_count, micro_batch):
            interrupt()
            rows = torch.arange(begin + start, begin + start + micro_batch) % count
            by_sequence = losses(windows[rows]).detach().view(micro_batch, -1).sum(1)
            sums.append(by_sequence[: local_count - start].double().cpu().numpy())
    per_token = group.gather(np.concatenate(sums))[:count] / predictions
    stderr = per_token.std(ddof=1) / math.sqrt(count) if count > 1 else 0.0
    return Validation(math.fsum(per_token) / count, float(stderr))
