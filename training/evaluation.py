"""Validation loss on fixed windows, with its standard error."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from training.devices.group import ALONE, Group


@dataclass(frozen=True)
class Validation:
    """A loss on one corpus."""

    loss: float
    """Mean cross-entropy, nats a token."""
    stderr: float
    """Standard error of the loss over sequences, nats a token; the windows stay the same, so differences between
    steps and runs are known better than this."""


def evaluate(
    losses: Callable[[torch.Tensor], torch.Tensor],
    windows: torch.Tensor,
    predictions: int,
    micro_batch: int,
    interrupt: Callable[[], None],
    group: Group = ALONE,
) -> Validation:
    """Loss of a model on fixed windows.

    Args:
        losses: some of the windows -> (n,) summed loss of each sequence, or (n, T) losses by token.
        windows: (count, ...) sequences, as the losses take them.
        predictions: tokens predicted in each.
        micro_batch: sequences a forward pass; every pass has this many, so that compiled code meets one shape.
        interrupt: called before each pass; raises to stop the evaluation.
        group: processes that share the windows; each has the same number of passes and gets the same result.
    """
    count = len(windows)
    share = -(-count // group.count)
    begin = group.rank * share
    sums = []
    with torch.no_grad():
        for start in range(0, share, micro_batch):
            interrupt()
            rows = torch.arange(begin + start, begin + start + micro_batch) % count
            by_sequence = losses(windows[rows]).detach().view(micro_batch, -1).sum(1)
            sums.append(by_sequence[: share - start].double().cpu().numpy())
    per_token = group.in_order(np.concatenate(sums))[:count] / predictions
    return Validation(math.fsum(per_token) / count, float(per_token.std(ddof=1) / math.sqrt(count)))
