"""The interface of all methods that propose mixture weights, and what their proposals have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.goals.weights.artifacts import Proposal
from pipeline.goals.weights.mixtures import Measured, largest_weights, limit_weights
from pipeline.study.context import Context
from pipeline.study.folder import PlannedRun

Propose = Callable[[Context, Measured], list[Proposal]]


@dataclass(frozen=True)
class Method:
    """A way to find mixture weights."""

    runs: Callable[[Context, Measured], list[PlannedRun]]
    """The runs that it reads, as far as the measured losses determine them: a later round follows an earlier one."""
    propose: Propose
    """Its proposals, once all of `runs` are done."""
    count: Callable[[Context], tuple[int, int]]
    """(runs, tokens) of the whole search, later rounds included, known before training."""
    proposals: Callable[[Context], int] = lambda context: 1
    """Number of its proposals, known before training; each is confirmed."""


def proposal_of(method: str, weights: dict[str, float], runs: Sequence[PlannedRun], **fields: Any) -> Proposal:
    """A proposal with the names and tokens of the runs that it has read, each counted once."""
    once = {run.spec.hash: run for run in runs}.values()
    names, tokens = tuple(run.name for run in once), sum(run.spec.tokens for run in once)
    return Proposal(method, weights, runs=names, tokens=tokens, **fields)


def within_text(context: Context, free: Mapping[str, float]) -> tuple[dict[str, float], list[str]]:
    """Weights that the text of each domain allows at the target, and a line for each domain that it limits."""
    weights = limit_weights(free, largest_weights(context, context.question.weights.target))
    return weights, [
        f"{domain} is limited to {weights[domain]:.3f} by its text at the target; without the limit it is {weight:.3f}"
        for domain, weight in free.items()
        if weights[domain] < weight
    ]
