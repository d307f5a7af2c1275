"""The weights of a run's domains as numbers: how an excess loss moves them, and where they are written down.

Xie et al. 2023, "DoReMi" (arXiv 2305.10429), algorithm 1, after Sagawa et al. 2020 (arXiv 1911.08731). Plain numbers:
what a model has to do with them is in `training.group_dro`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from training.durable import read_lines_whole
from training.spec import Reweighting

PATH = "domain_weights.jsonl"
"""File in the run's folder: a line for each noted step, with step, weights, mean (of the weights so far), excess."""
_NOTED = 200


@dataclass(frozen=True)
class DomainWeights:
    """Where the weights are after a step. Each an array (m,) of float64, in the order of the sorted names."""

    now: np.ndarray
    """alpha, sum 1."""
    total: np.ndarray
    """Sum of alpha over the steps so far; over their number it is the answer."""
    excess: np.ndarray
    """Last known excess loss, nats a token; NaN for a domain that has not been read yet."""


def equal_weights(domains: int) -> DomainWeights:
    """The weights before the first step."""
    return DomainWeights(np.full(domains, 1 / domains), np.zeros(domains), np.full(domains, np.nan))


def excess_losses(behind: np.ndarray, domains: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Excess loss of each domain in a step, nats a token.

    A domain with no sequence in the step keeps what is last known of it, as in the authors' code; one that was never
    read counts as the mean of the others.

    Args:
        behind: (n,) mean over a sequence's tokens of max(loss - loss of the reference, 0), nats.
        domains: (n,) place of each sequence's domain.
        known: (m,) excess of the last step, NaN where there is none.

    Returns:
        Array (m,); NaN still for what was never read.

    >>> excess_losses(np.array([0.5, 0.25, 1.0]), np.array([0, 0, 2]), np.array([9.0, 0.125, np.nan]))
    array([0.375, 0.125, 1.   ])
    """
    counts = np.bincount(domains, minlength=len(known))
    sums = np.bincount(domains, behind, minlength=len(known))
    return np.where(counts > 0, sums / np.maximum(counts, 1), known)


def moved(weights: DomainWeights, excess: np.ndarray, reweighting: Reweighting) -> DomainWeights:
    """The weights one step on: alpha exp(eta excess), over its sum, mixed with equal weights.

    >>> up = moved(equal_weights(2), np.array([np.log(3.0), 0.0]), Reweighting("", step_size=1.0, smoothing=0.0))
    >>> [round(float(weight), 9) for weight in up.now]
    [0.75, 0.25]
    """
    seen = np.where(np.isnan(excess), np.nanmean(excess), excess)
    # Only differences count: without the largest no power overflows.
    raised = weights.now * np.exp(reweighting.step_size * (seen - seen.max()))
    now = (1 - reweighting.smoothing) * raised / raised.sum() + reweighting.smoothing / len(raised)
    return DomainWeights(now, weights.total + now, excess)


def noted_steps(steps: int) -> range:
    """Steps after which the weights are written down: 200 at most, evenly apart, the last among them.

    >>> list(noted_steps(3)), list(noted_steps(500))[:2], list(noted_steps(500))[-1]
    ([1, 2, 3], [2, 5], 500)
    """
    apart = -(-steps // _NOTED)
    return range((steps - 1) % apart + 1, steps + 1, apart)


def as_line(step: int, names: Sequence[str], weights: DomainWeights) -> str:
    """A line of the file; an excess that is not known yet is null."""

    def named(values: np.ndarray) -> dict[str, float | None]:
        return {name: None if np.isnan(value) else float(value) for name, value in zip(names, values, strict=True)}

    parts = {"weights": weights.now, "mean": weights.total / step, "excess": weights.excess}
    return json.dumps({"step": step, **{part: named(values) for part, values in parts.items()}}) + "\n"


def read_path(folder: Path) -> list[dict[str, Any]]:
    """What a run has written down; of one that is done the last line's mean is the answer.

    Raises:
        FileNotFoundError: its weights do not move, or it has not begun.
    """
    return read_lines_whole(folder / PATH)
