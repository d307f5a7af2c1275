"""What a method for mixture weights is, and what it starts from: the domains, their text, and a run at any mixture."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import pandas as pd

from pipeline.goals.weights.artifacts import Proposal
from pipeline.plan.runs import mixture_spec, pretraining_runs
from pipeline.question.schema import PhaseConfig
from pipeline.study.collect import read_points
from pipeline.study.context import Context
from pipeline.study.folder import PlannedRun


class Search:
    """The search for mixture weights that a question asks for; `context.once(Search)` keeps what it has read."""

    def __init__(self, context: Context) -> None:
        self.context, self.study, self.question = context, context.study, context.question
        self.settings = context.question.weights
        """The section weights of the question."""
        self.domains = tuple(context.question.corpora.sources)
        """Names of the corpora, in the question's order."""
        self.phase: PhaseConfig = getattr(context.question, self.settings.phase)
        """The phase whose mixture is searched."""
        self.sequence_length = self.phase.sequence_length or context.question.sequence_length
        self.tokens_per_step = self.phase.global_batch * self.sequence_length
        self.target_tokens = self.settings.target * self.tokens_per_step
        """Tokens of a run of weights.target steps."""

    @cached_property
    def base(self) -> dict[str, Fraction]:
        """Weights of the base run, exact, sum 1."""
        return exact_weights(self.settings.base or dict.fromkeys(self.domains, Fraction(1, len(self.domains))))

    @cached_property
    def pretraining(self) -> PlannedRun | None:
        """Pre-training run that all mixtures start from; None: they start from scratch, or from a directory."""
        model = self.question.model
        scratch = self.settings.phase != "continual" or model.path
        return None if scratch else self.context.once(pretraining_runs)[model.name]

    @cached_property
    def values(self) -> dict[str, float]:
        """Domain -> weight of its loss in the average, sum 1: weights.value, or equal; continual limits general's."""
        left_out = self.question.corpora.general if "continual" in self.settings.methods else None
        given = self.settings.value or {name: float(name != left_out) for name in self.domains}
        return {name: given.get(name, 0.0) / sum(given.values()) for name in self.domains}

    def average(self, losses: Mapping[str, float]) -> float:
        """The minimised average of the losses of all domains: mean loss, or mean perplexity."""
        exp = math.exp if self.settings.average == "perplexity" else float
        return sum(value * exp(losses[domain]) for domain, value in self.values.items() if value)

    @cached_property
    def points(self) -> pd.DataFrame | None:
        """The collected points; None: none are collected."""
        return read_points(self.study) if (self.study.folder / "points.parquet").exists() else None

    @cached_property
    def _rows(self) -> dict[Any, dict[Any, float]]:
        """(run, step), in their order -> corpus -> loss."""
        if self.points is None:
            return {}
        return self.points.pivot(index=["run", "step"], columns="corpus", values="loss").to_dict("index")

    def is_done(self, run: PlannedRun) -> bool:
        """Whether a run has ended and its last losses are collected."""
        return (run.name, run.spec.steps) in self._rows and self.study.state(run) == "done"

    def losses(self, run: PlannedRun, step: int | None = None) -> dict[str, float]:
        """Corpus -> loss of a run that is done, nats per token, at a step (None: the last)."""
        return self._rows[run.name, run.spec.steps if step is None else step]

    def curve(self, run: PlannedRun) -> dict[int, dict[str, float]]:
        """Step -> corpus -> loss, in the order of the steps."""
        return {step: losses for (name, step), losses in self._rows.items() if name == run.name}

    def run(self, weights: Mapping[str, Fraction], steps: int, seed: int, role: str = "fit") -> PlannedRun:
        """The run of the searched phase at exact weights that sum to 1; the same for every method that asks for it."""
        phase = dataclasses.replace(self.phase, steps=steps, branches=[])
        spec, start = mixture_spec(self.context, phase, weights, seed)
        # From the spec alone: the name must not depend on the method that asks first.
        largest = max(weights, key=lambda domain: weights[domain])
        mixed = "equal" if len(set(weights.values())) == 1 else f"{largest}{round(100 * weights[largest])}"
        slug = f"{spec.phase}-{self.question.model.name}-{mixed}-{steps}-seed{seed}"
        return PlannedRun(f"{slug}-{spec.hash[:8]}", role, self.question.model.name, start, spec)

    @cached_property
    def available_tokens(self) -> dict[str, float]:
        """Domain -> tokens that a run may read of it: the prepared ones, weights.passes times."""
        length, corpora = self.sequence_length, self.context.manifest.corpora
        whole = {domain: (corpora[domain].tokens["train"] - 1) // length * length for domain in self.domains}
        return {domain: self.settings.passes * tokens for domain, tokens in whole.items()}

    def largest_weights(self, steps: int) -> dict[str, float]:
        """Domain -> the largest weight, at most 1, for which it has the text of a run of `steps`."""
        tokens = steps * self.tokens_per_step
        # Weights are rounded before they are run, and the largest takes the rounding error.
        return {
            domain: 1.0 if have >= tokens else max(0.0, math.floor(1000 * have / tokens - 0.5) / 1000)
            for domain, have in self.available_tokens.items()
        }

    def within_text(self, free: Mapping[str, float]) -> tuple[dict[str, float], list[str]]:
        """Weights that the text of each domain allows at the target, and a line for each domain that it limits."""
        weights = limit_weights(free, self.largest_weights(self.settings.target))
        limited = "is limited to {:.3f} by its text at the target; without the limit it is {:.3f}"
        return weights, [
            f"{domain} {limited.format(weights[domain], weight)}"
            for domain, weight in free.items()
            if weights[domain] < weight
        ]


@dataclass(frozen=True)
class Method:
    """A way to find mixture weights."""

    propose: Callable[[Search], list[Proposal]]
    """Its proposals, once all of `runs` are done."""
    runs: Callable[[Search], list[PlannedRun]] = lambda search: []
    """The runs that it reads, as far as the measured losses determine them: a later round follows an earlier one."""
    count: Callable[[Search], tuple[int, int]] = lambda search: (0, 0)
    """(runs, tokens) of the whole search, later rounds included, known before training."""
    proposals: Callable[[Search], int] = lambda search: 1
    """Number of its proposals, known before training; each is confirmed."""


def proposal_of(method: str, weights: dict[str, float], runs: Sequence[PlannedRun], **fields: Any) -> Proposal:
    """A proposal with the names and tokens of the runs that it has read, each counted once."""
    once = {run.spec.hash: run for run in runs}.values()
    names, tokens = tuple(run.name for run in once), sum(run.spec.tokens for run in once)
    return Proposal(method, weights, runs=names, tokens=tokens, **fields)


def exact_weights(weights: Mapping[str, float | Fraction]) -> dict[str, Fraction]:
    """Weights as exact fractions that sum to 1; the largest weight takes the rounding error of the others.

    A float within 1e-12 of a short fraction becomes that fraction, so that equal weights stay equal.

    >>> [str(weight) for weight in exact_weights({"a": 0.33333, "b": 0.66667}).values()]
    ['3333/10000', '6667/10000']
    >>> [str(weight) for weight in exact_weights({"a": 1 / 3, "b": 2 / 3}).values()]
    ['1/3', '2/3']
    """
    exact = {name: _exact(weight) for name, weight in weights.items()}
    largest = max(exact, key=lambda name: exact[name])
    exact[largest] += 1 - sum(exact.values())
    return exact


def _exact(weight: float | Fraction) -> Fraction:
    if isinstance(weight, Fraction):
        return weight
    short = Fraction(weight).limit_denominator(1000)
    return short if abs(short - Fraction(weight)) < Fraction(1, 10**12) else Fraction(round(weight * 10_000), 10_000)


def limit_weights(weights: Mapping[str, float], limits: Mapping[str, float]) -> dict[str, float]:
    """Weights of which none is above its limit; the other domains get the rest, in proportion to their weights.

    Limits that sum to less than 1 are ignored, because no weights satisfy them. Where all others are 0, their limits
    count in place of their weights.

    >>> limit_weights({"a": 0.5, "b": 0.3, "c": 0.2}, {"a": 0.25, "b": 0.4, "c": 1.0})
    {'a': 0.25, 'b': 0.4, 'c': 0.35}
    >>> limit_weights({"a": 1.0, "b": 0.0, "c": 0.0}, {"a": 0.5, "b": 0.25, "c": 0.75})
    {'a': 0.5, 'b': 0.125, 'c': 0.375}
    """
    held: dict[str, float] = {}
    while sum(limits.values()) >= 1:
        free = {domain: weight for domain, weight in weights.items() if domain not in held}
        free = free if any(free.values()) else {domain: limits[domain] for domain in free}
        scale = (1 - sum(held.values())) / (sum(free.values()) or 1.0)
        over = {domain: limits[domain] for domain, weight in free.items() if weight * scale > limits[domain]}
        if not over:
            # Untouched where nothing is held: no sum is exactly 1.
            known = free if not held else held | {domain: weight * scale for domain, weight in free.items()}
            return {domain: known[domain] for domain in weights}
        held |= over
    return dict(weights)
