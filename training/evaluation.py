"""Validation loss on fixed windows, with its standard error."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch


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
    micro_batch: int,
    interrupt: Callable[[], None],
) -> Validation:
    """Loss of a model on fixed windows.

    Args:
        losses: (n, T + 1) token ids -> (n,) summed loss of each sequence.
        windows: (count, T + 1) token ids.
        micro_batch: sequences a forward pass; every pass has this many, so that compiled code meets one shape.
        interrupt: called before each pass; raises to stop the evaluation.
    """
    count, predictions = len(windows), windows.shape[1] - 1
    sums = []
    with torch.no_grad():
        for start in range(0, count, micro_batch):
            interrupt()
            rows = torch.arange(start, start + micro_batch) % count
            sums.append(losses(windows[rows]).detach()[: count - start].double().cpu().numpy())
    per_token = np.concatenate(sums) / predictions
    return Validation(math.fsum(per_token) / count, float(per_token.std(ddof=1) / math.sqrt(count)))
