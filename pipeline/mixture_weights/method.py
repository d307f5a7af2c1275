"""The interface of all methods that propose mixture weights, and what their proposals have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipeline.mixture_weights.artifacts import Proposal
from pipeline.mixture_weights.setting import Measured, Setting
from pipeline.study.folder import PlannedRun


@dataclass(frozen=True)
class Method:
    """A way to find mixture weights."""

    runs: Callable[[Setting, Measured], list[PlannedRun]]
    """The runs that it reads, as far as the measured losses determine them: a later round follows an earlier one."""
    propose: Callable[[Setting, Measured], list[Proposal]]
    """Its proposals, once all of `runs` are done."""
    count: Callable[[Setting], tuple[int, int]]
    """(runs, tokens) of the whole search, later rounds included, known before training."""
    proposals: Callable[[Setting], int] = lambda setting: 1
    """Number of its proposals, known before training; each is confirmed."""


def search_cost(runs: Sequence[PlannedRun]) -> tuple[tuple[str, ...], int]:
    """(names, tokens) of the runs that a proposal has read, each counted once."""
    once = {run.spec.hash: run for run in runs}.values()
    return tuple(run.name for run in once), sum(run.spec.tokens for run in once)
