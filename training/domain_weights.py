"""Domain weights of group DRO: their update from excess losses, and their log.

Xie et al. 2023, "DoReMi" (arXiv 2305.10429), algorithm 1, after Sagawa et al. 2020 (arXiv 1911.08731). Plain numbers;
`training.group_dro` applies them to a model.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import numpy as np

from training.durable import read_lines_whole
from training.spec import Reweighting

PATH = "domain_weights.jsonl"
"""File in the run's folder with a line per logged step: step, weights, mean (of the weights so far), excess."""
_MOST_LOGGED = 200


class LoggedWeights(TypedDict):
    """A line of the log: domain -> number, each."""

    step: int
    weights: dict[str, float]
    mean: dict[str, float]
    excess: dict[str, float | None]


@dataclass(frozen=True)
class DomainWeights:
    """Domain weights after a step: arrays (m,) of float64, in the order of the sorted names."""

    now: np.ndarray
    """alpha, sum 1."""
    total: np.ndarray
    """Sum of alpha over the steps so far; divided by their number it is the result."""
    excess: np.ndarray
    """Latest excess loss, nats per token; NaN for a domain that has not been read yet."""


def equal_weights(domains: int) -> DomainWeights:
    """The weights before the first step."""
    return DomainWeights(np.full(domains, 1 / domains), np.zeros(domains), np.full(domains, np.nan))


def excess_losses(excess: np.ndarray, domains: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Excess loss of each domain in a step, nats per token.

    A domain with no sequence in the step keeps its latest value, as in the authors' code.

    Args:
        excess: (n,) mean over a sequence's tokens of max(loss - loss of the reference, 0), nats.
        domains: (n,) index of each sequence's domain.
        known: (m,) excess of the last step, NaN where there is none.

    Returns:
        Array (m,); NaN for a domain that was never read.

    >>> excess_losses(np.array([0.5, 0.25, 1.0]), np.array([0, 0, 2]), np.array([9.0, 0.125, np.nan]))
    array([0.375, 0.125, 1.   ])
    """
    counts = np.bincount(domains, minlength=len(known))
    sums = np.bincount(domains, excess, minlength=len(known))
    return np.where(counts > 0, sums / np.maximum(counts, 1), known)


def updated(weights: DomainWeights, excess: np.ndarray, reweighting: Reweighting) -> DomainWeights:
    """The weights after the next step: alpha exp(eta excess), normalised, mixed with equal weights.

    A domain that was never read counts with the mean excess of the others.

    >>> up = updated(equal_weights(2), np.array([np.log(3.0), 0.0]), Reweighting("", step_size=1.0, smoothing=0.0))
    >>> [round(float(weight), 9) for weight in up.now]
    [0.75, 0.25]
    """
    known = np.where(np.isnan(excess), np.nanmean(excess), excess)
    # Only differences count: relative to the largest no power overflows.
    scaled = weights.now * np.exp(reweighting.step_size * (known - known.max()))
    now = (1 - reweighting.smoothing) * scaled / scaled.sum() + reweighting.smoothing / len(scaled)
    return DomainWeights(now, weights.total + now, excess)


def logged_steps(steps: int) -> range:
    """Steps after which the weights are logged: at most 200, evenly spaced, including the last.

    >>> list(logged_steps(3)), list(logged_steps(500))[:2], list(logged_steps(500))[-1]
    ([1, 2, 3], [2, 5], 500)
    """
    spacing = -(-steps // _MOST_LOGGED)
    return range((steps - 1) % spacing + 1, steps + 1, spacing)


def as_line(step: int, names: Sequence[str], weights: DomainWeights) -> str:
    """A line of the log; an unknown excess is null."""

    def named(values: np.ndarray) -> dict[str, float | None]:
        return {name: None if np.isnan(value) else float(value) for name, value in zip(names, values, strict=True)}

    parts = {"weights": weights.now, "mean": weights.total / step, "excess": weights.excess}
    return json.dumps({"step": step, **{part: named(values) for part, values in parts.items()}}) + "\n"


def read_path(folder: Path) -> list[LoggedWeights]:
    """The log of a run's domain weights; of a finished run the last line's mean is the result.

    Raises:
        FileNotFoundError: the run has no reweighting, or has not started.
    """
    return read_lines_whole(folder / PATH)
