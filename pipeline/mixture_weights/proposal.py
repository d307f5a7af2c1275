"""What a method answers, and the one interface that all of them have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pipeline.mixture_weights.setting import Measured, Setting
from pipeline.study.folder import PlannedRun


@dataclass(frozen=True)
class Proposal:
    """Weights that a method proposes for the target scale, and what it took to find them."""

    method: str
    """Name in METHODS, or of the given weights."""
    weights: dict[str, float]
    """Domain -> share of the training tokens, sum 1."""
    low: dict[str, float] = field(default_factory=dict)
    """Domain -> lower end of the 90% interval; empty where the method has none."""
    high: dict[str, float] = field(default_factory=dict)
    """Domain -> upper end."""
    predicted: dict[str, float] = field(default_factory=dict)
    """"mean" or a domain -> predicted loss at the weights, nats a token, where the method predicts one."""
    runs: tuple[str, ...] = ()
    """Names of the runs that it read."""
    tokens: int = 0
    """Tokens that these runs trained on."""
    lines: tuple[str, ...] = ()
    """What binds, what is flat, how far it extrapolates; one line each."""
    details: dict[str, Any] = field(default_factory=dict)
    """Numbers for the report: coefficients, optima at other scales; plain JSON."""


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
