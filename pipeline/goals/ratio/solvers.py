"""From fits to what a goal asks: the largest domain ratio, the ratio for few tokens, the model for so much compute."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.interpolate import PchipInterpolator

from fitting import Estimate, Fit, LawAverage, TradeOff, compute_optimal, limited_data, trade_off
from fitting.schedule import FORWARD
from pipeline.question.design import candidate_peaks, peak_of, with_peak
from pipeline.question.presets import models
from pipeline.question.schema import Question
from pipeline.study.artifacts import ModelCandidate
from pipeline.study.fits import spread
from pipeline.study.target import Target, find_target

LEVEL = 0.9
LONGEST = 20.0
"""How many times the domain's tokens a run may have, unless goal.most_tokens is given."""


@dataclass(frozen=True)
class AnsweringLaws:
    """Fitted laws, which of them answers for each corpus, and the points behind them."""

    question: Question
    """What is asked."""
    points: pd.DataFrame
    """Collected points of the domain that is asked about."""
    fits: Mapping[str, Mapping[str, Fit | LawAverage]]
    """Corpus -> law, or average, -> fit."""
    law: Mapping[str, str]
    """Corpus -> law, or average, that answers for it."""
    tested: pd.DataFrame
    """Predictions of held-out points."""

    @property
    def corpora(self) -> tuple[str, str]:
        """General, then domain."""
        return self.question.corpora.general, self.question.corpora.domain

    def fit(self, corpus: str) -> Fit | LawAverage:
        """The fit that answers for a corpus."""
        return self.fits[corpus][self.law[corpus]]

    def at_peak(self, peak: float) -> AnsweringLaws:
        """The same for a run with this peak learning rate alone."""
        design = replace(self.question.design, peaks=[1.0])
        return replace(self, question=replace(with_peak(self.question, peak), design=design))

    def spread(self, corpus: str, N: float, D: float) -> np.ndarray | None:
        """Log errors of that law's prediction for a run, by what it was missed by on held-out runs."""
        return spread(self.tested, corpus, self.fit(corpus), N, D)

    def columns(self, target: Target, corpus: str) -> dict[str, float]:
        """What that law reads at the end of a target's run, its ratio apart."""
        return target.columns(corpus, self.fit(corpus))


@dataclass(frozen=True)
class Solution:
    """An answer."""

    target: Target
    """The run that it is for."""
    domain_ratio: float | None
    """Domain ratio; None: there is none."""
    low: float | None
    high: float | None
    """Its 90% interval; of a ratio that was given, the ratio."""
    predicted: dict[str, tuple[float, float, float]]
    """Corpus -> loss, low, high at the end of that run, nats per token."""
    binding: str
    """What stopped it."""
    warnings: list[str]
    """A line each."""
    identified: bool = True
    """Whether the points say where the optimum is: False where its interval is all that was asked."""
    optimum: dict[str, Estimate] = field(default_factory=dict)
    """goal=compute: N and D, billions, of the best size, whether or not there is a model of it."""
    candidates: list[ModelCandidate] = field(default_factory=list)
    """goal=compute: what each model is predicted to do."""
    peak: float | None = None
    """Peak learning rate; None: that of the question."""


def within_tolerance(laws: AnsweringLaws) -> Solution:
    """Usage 1: the largest domain ratio at which the general loss stays within `goal.tolerance`.

    Of several peak learning rates in `design`, the one whose answer has the smallest domain loss.
    """
    peaks, domain = candidate_peaks(laws.question), laws.question.corpora.domain
    if peaks == [peak_of(laws.question, 1.0)]:
        return _at_one_peak(laws)
    answers = [replace(_at_one_peak(laws.at_peak(peak)), peak=peak) for peak in peaks]
    return min(answers, key=lambda answer: answer.predicted[domain][0] if answer.predicted else math.inf)


def _at_one_peak(laws: AnsweringLaws) -> Solution:
    target = find_target(laws.question, laws.points)
    answer = _trade_off(laws, target)
    predicted = {
        corpus: answer.predicted[kind] for kind, corpus in zip(("general", "domain"), laws.corpora) if answer.predicted
    }
    found = answer.domain_ratio, answer.low, answer.high
    wide = answer.low is not None and answer.low <= 0.0 and (answer.high or 0.0) >= 1.0
    return Solution(target, *found, predicted, answer.status.message, answer.warnings, not wide)


def of_few_tokens(laws: AnsweringLaws) -> Solution:
    """Usage 2: the ratio at which `goal.domain_tokens` of the domain, read once, give the least loss on it."""
    question, (general, domain) = laws.question, laws.corpora
    base, fit = find_target(question, laws.points), laws.fit(domain)
    assert question.goal.domain_tokens is not None
    tokens = question.goal.domain_tokens / 1e9
    most = (question.goal.most_tokens or LONGEST * question.goal.domain_tokens) / 1e9
    by_length = base.columns_by_length(domain, fit, tokens, most)
    limits = {"most_tokens": most, "level": LEVEL, "log_errors": laws.spread(domain, base.N, base.D)}
    answer = limited_data(fit, base.N, tokens, at=by_length, **limits)
    ratio, low, high = answer.values["domain_ratio"]
    target = base.lasting(limited_steps(question, ratio))
    predicted = {general: _loss(laws, target, general, ratio), domain: tuple(answer.predicted["domain"])}
    identified = not (low <= 1.01 * tokens / most and high >= 0.99)
    return Solution(target, ratio, low, high, predicted, answer.status.message, answer.warnings, identified)


def of_compute(laws: AnsweringLaws) -> Solution:
    """Usage 3: the model with the least domain loss after a continual phase of `goal.flops`, and the best size.

    Between models the loss before, and the ratio where it is not given, are monotone cubics in log N.
    """
    question, (general, domain) = laws.question, laws.corpora
    goal = question.goal
    assert goal.flops is not None
    ladder, own = models(question)
    names = dict.fromkeys(model.name for model in [*ladder, own])
    measured = sorted((find_target(question, laws.points, name) for name in names), key=lambda target: target.N)
    step = question.tokens_per_step()
    # C = 6 N D, N in billions.
    targets = [target.lasting(max(1, round(goal.flops / (6e9 * target.N * step)))) for target in measured]
    ratios = [_ratio(laws, target) for target in targets]
    if any(ratio is None for ratio, *_ in ratios):
        short = ", ".join(target.model for target, (ratio, *_) in zip(targets, ratios) if ratio is None)
        binding = f"no domain ratio keeps the loss of {short} on {general} within the tolerance; give goal.domain_ratio"
        return Solution(targets[0], None, None, None, {}, binding, [])
    losses = [_loss(laws, target, domain, float(ratio or 0)) for target, (ratio, *_) in zip(targets, ratios)]
    best = int(np.argmin([loss for loss, *_ in losses]))
    answer = compute_optimal(
        laws.fit(domain), goal.flops, at=_by_size(laws, targets, [float(ratio or 0) for ratio, *_ in ratios]),
        sizes=(targets[0].N, targets[-1].N), level=LEVEL,
        log_errors=laws.spread(domain, targets[best].N, targets[best].D),
    )  # fmt: skip
    target, (ratio, low, high) = targets[best], ratios[best]
    size = answer.values["N"]
    rows = [
        ModelCandidate(target.model, target.N, target.D, target.steps, float(ratio or 0), *loss)
        for target, (ratio, *_), loss in zip(targets, ratios, losses)
    ]
    predicted = {general: _loss(laws, target, general, float(ratio or 0)), domain: losses[best]}
    identified = not (size.low <= 1.01 * targets[0].N and size.high >= 0.99 * targets[-1].N)
    optimum = {name: answer.values[name] for name in ("N", "D")}
    return Solution(
        target, ratio, low, high, predicted, answer.status.message, answer.warnings, identified, optimum, rows
    )


def limited_steps(question: Question, domain_ratio: float) -> int:
    """Steps of a run that reads `goal.domain_tokens` at a domain ratio, and no token twice."""
    assert question.goal.domain_tokens is not None
    return max(1, math.floor(question.goal.domain_tokens / (domain_ratio * question.tokens_per_step())))


Solve = Callable[[AnsweringLaws], Solution]
"""A goal's `solve`."""


def _trade_off(laws: AnsweringLaws, target: Target) -> TradeOff:
    general, domain = laws.corpora
    given: dict[str, Any] = {}
    for role, corpus in (("general", general), ("domain", domain)):
        columns = laws.columns(target, corpus)
        given[f"{role}_at"] = {name: value for name, value in columns.items() if name not in ("N", "D")}
        given[f"{role}_errors"] = laws.spread(corpus, target.N, target.D)
    fits, tolerance = (laws.fit(general), laws.fit(domain)), laws.question.goal.tolerance
    return trade_off(*fits, target.N, target.D, tolerance, target.before[general], **given)


def _ratio(laws: AnsweringLaws, target: Target) -> tuple[float | None, float | None, float | None]:
    given = laws.question.goal.domain_ratio
    if given is not None:
        return given, given, given
    answer = _trade_off(laws, target)
    return answer.domain_ratio, answer.low, answer.high


def _loss(laws: AnsweringLaws, target: Target, corpus: str, ratio: float) -> tuple[float, float, float]:
    r = 1 - ratio if corpus == laws.question.corpora.general else ratio
    frame, fit = pd.DataFrame([{**laws.columns(target, corpus), "r": r}]), laws.fit(corpus)
    low, high = fit.predict_interval(frame, LEVEL, laws.spread(corpus, target.N, target.D))
    return float(fit.predict(frame)[0]), float(low[0]), float(high[0])


def _by_size(
    laws: AnsweringLaws, targets: Sequence[Target], ratios: Sequence[float]
) -> Callable[[np.ndarray, np.ndarray], dict[str, np.ndarray]]:
    domain = laws.question.corpora.domain
    least, most = sorted((targets[0].D, targets[-1].D))
    by_length = targets[-1].columns_by_length(domain, laws.fit(domain), least, most)
    sizes = np.log([target.N for target in targets])
    own = pd.DataFrame([laws.columns(target, domain) for target in targets])
    of_a_run = ("N", "D", *FORWARD, "s2", "s2_square")
    own = own[[name for name in own if str(name).split(".")[-1] not in of_a_run]]
    own["r"] = ratios
    between = PchipInterpolator(sizes, own.to_numpy(float))

    def at(N: np.ndarray, D: np.ndarray) -> dict[str, np.ndarray]:
        known = between(np.clip(np.log(N), sizes[0], sizes[-1]))
        return {**by_length(D), **dict(zip(map(str, own.columns), known.T))}

    return at
