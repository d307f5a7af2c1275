"""The interface of all methods that propose weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pipeline.mixture_weights.artifacts import Proposal
from pipeline.mixture_weights.setting import Measured, Setting
from pipeline.study.folder import PlannedRun


@dataclass(frozen=True)
class Method:
    """A way to find weights."""

    runs: Callable[[Setting, Measured], list[PlannedRun]]
    """Every run that it reads, as far as can be told from what is measured: later rounds follow earlier ones."""
    propose: Callable[[Setting, Measured], list[Proposal]]
    """Its proposals, once all of `runs` are done."""
    count: Callable[[Setting], tuple[int, int]]
    """(runs, tokens) that it will take in all, later rounds included, known before anything is run."""
    proposals: Callable[[Setting], int] = lambda setting: 1
    """How many weights it proposes, known before anything is run: each is confirmed."""
