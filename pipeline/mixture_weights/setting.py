"""What all methods share: the domains, the phase that is trained, and a run at any mixture of the domains."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import pandas as pd

from pipeline.question.schema import PhaseConfig, Question
from pipeline.study.folder import PlannedRun, Study
from training.corpora.manifest import Manifest


@dataclass(frozen=True)
class Setting:
    """A question about weights, with what its runs need to be named."""

    question: Question
    manifest: Manifest
    precision: str
    pretraining: PlannedRun | None
    """Run that the mixtures continue from; None: they start from scratch, or from a directory."""

    @property
    def domains(self) -> tuple[str, ...]:
        """Names of the corpora, in the question's order."""
        return tuple(self.question.corpora.sources)

    @property
    def phase(self) -> PhaseConfig:
        """The phase in which weights are sought."""
        return getattr(self.question, self.question.weights.phase)

    @property
    def base(self) -> dict[str, Fraction]:
        """Weights of the base run, exact, sum 1."""
        given = self.question.weights.base
        if not given:
            return {domain: Fraction(1, len(self.domains)) for domain in self.domains}
        return exact_shares(given)


@dataclass(frozen=True)
class Measured:
    """What is known of the runs of a study so far."""

    study: Study
    points: pd.DataFrame | None
    """The collected points; None before there are any."""

    def done(self, run: PlannedRun) -> bool:
        """Whether a run has ended and its last losses are collected."""
        return (run.name, run.spec.steps) in self._rows and self.study.state(run) == "done"

    def losses(self, run: PlannedRun) -> dict[str, float]:
        """Corpus -> loss at the end of a run that is done, nats a token."""
        return self._rows[run.name, run.spec.steps]

    def losses_before(self, run: PlannedRun) -> dict[str, float]:
        """Corpus -> loss before the first step of a run that is done, nats a token."""
        return self._rows[run.name, 0]

    def curve(self, run: PlannedRun) -> dict[int, dict[str, float]]:
        """Step -> corpus -> loss, rising, as far as the run was evaluated."""
        return {step: losses for (name, step), losses in self._rows.items() if name == run.name}

    @functools.cached_property
    def _rows(self) -> dict[tuple[str, int], dict[str, float]]:
        rows: dict[tuple[str, int], dict[str, float]] = {}
        if self.points is not None:
            shown = self.points.sort_values("step", kind="stable")
            for name, step, corpus, loss in shown[["run", "step", "corpus", "loss"]].itertuples(index=False):
                rows.setdefault((name, int(step)), {})[corpus] = float(loss)
        return rows

    def folder(self, run: PlannedRun) -> Path:
        """Where the run wrote what it knows beside its losses."""
        return self.study.runs / run.name


def worth(question: Question) -> dict[str, float]:
    """Domain -> weight of its loss in the average that is made small, sum 1: weights.value, else the same for all.

    With continual among the methods general is left out: its loss has a limit instead.
    """
    left_out = question.corpora.general if "continual" in question.weights.methods else None
    given = question.weights.value or {name: float(name != left_out) for name in question.corpora.sources}
    return {name: given.get(name, 0.0) / sum(given.values()) for name in question.corpora.sources}


def average(setting: Setting, losses: Mapping[str, float]) -> float:
    """What is made small, from a loss a domain: the mean of the losses, or that of the perplexities."""
    exp = setting.question.weights.average == "perplexity"
    return sum(
        share * (math.exp(losses[domain]) if exp else losses[domain])
        for domain, share in worth(setting.question).items()
        if share
    )


def exact_shares(weights: Mapping[str, float | Fraction], digits: int = 4) -> dict[str, Fraction]:
    """Weights as exact fractions that sum to 1; floats are rounded, the largest takes what rounding left.

    Floats that stand for a short fraction are taken for it, so that equal weights stay equal.

    >>> [str(share) for share in exact_shares({"a": 0.33333, "b": 0.66667}).values()]
    ['3333/10000', '6667/10000']
    >>> [str(share) for share in exact_shares({"a": 1 / 3, "b": 2 / 3}).values()]
    ['1/3', '2/3']
    """
    shares = {name: _exact(weight, 10**digits) for name, weight in weights.items()}
    largest = max(shares, key=lambda name: shares[name])
    shares[largest] += 1 - sum(shares.values())
    return shares


def _exact(weight: float | Fraction, parts: int) -> Fraction:
    if isinstance(weight, Fraction):
        return weight
    short = Fraction(weight).limit_denominator(1000)
    return short if abs(short - Fraction(weight)) < Fraction(1, 10**12) else Fraction(round(weight * parts), parts)


def mixture_run(
    setting: Setting, shares: Mapping[str, Fraction], steps: int, seed: int, role: str = "fit"
) -> PlannedRun:
    """The run of the setting's phase at these shares, for so many steps; equal ones have one name whoever asks.

    Args:
        setting: the question.
        shares: domain -> share of the training tokens, exact, sum 1.
        steps: optimizer steps.
        seed: of weights and order.
        role: fit or confirm.
    """
    from pipeline.plan.runs import mixture_spec

    question = setting.question
    phase = dataclasses.replace(setting.phase, steps=steps, branches=[])
    spec, start = mixture_spec(question, phase, shares, seed, setting.manifest, setting.precision, setting.pretraining)
    # From the spec alone: a folder's name must not depend on which method asked first.
    most = max(shares, key=lambda domain: shares[domain])
    mixed = "equal" if len(set(shares.values())) == 1 else f"{most}{round(100 * shares[most])}"
    slug = f"{spec.phase}-{question.model.name}-{mixed}-{steps}-seed{seed}"
    return PlannedRun(f"{slug}-{spec.hash[:8]}", role, question.model.name, start, spec)
