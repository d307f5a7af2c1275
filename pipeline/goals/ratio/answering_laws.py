"""Fitted laws that answer a question, what an answer is, and the best change of the mixture by them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pandas as pd

from fitting import Estimate, Fit, LawAverage, TradeOff, trade_off
from fitting.answers.mixture_change import TYPICAL_ERROR, mixture_change
from fitting.law_average import AVERAGE
from pipeline.question.design import candidate_peaks, peak_of, with_peak
from pipeline.question.phases import pieces
from pipeline.question.schema import Question
from pipeline.study.artifacts import ModelCandidate, Recommendation, RecommendedChange
from pipeline.study.collect import schedules
from pipeline.study.context import Context
from pipeline.study.fits import horizon_weights, refuse_other_points, with_average
from pipeline.study.folder import PlannedRun
from pipeline.study.target import Target, find_target
from training.schedule import learning_rates

TESTED = 50.0
"""Times as far as was fitted up to which errors of predictions were measured, docs/performance.md."""
CHANGE_LAW = "transfer-two-mixtures"
"""The law that knows runs of two mixtures."""
ONE_RATIO = "what the ratio does to the losses is not known"
"""What a warning says of an answer at another domain ratio than that of all runs for the fit."""


@dataclass(frozen=True)
class AnsweringLaws:
    """Fitted laws, which of them answers for each corpus, and the points behind them."""

    question: Question
    points: pd.DataFrame
    """Collected points of the domain that is asked about."""
    fits: Mapping[str, Mapping[str, Fit | LawAverage]]
    """Corpus -> law, or average, -> fit."""
    law: Mapping[str, str]
    """Corpus -> law, or average, that answers for it."""
    weights: dict[str, dict[str, float]] = field(default_factory=dict)
    """Corpus -> law -> weight in the average; empty where one law answers alone."""
    tested: pd.DataFrame = field(default_factory=pd.DataFrame)
    """Predictions of held-out points, by which laws are weighed."""

    @property
    def corpora(self) -> tuple[str, str]:
        """General, then domain."""
        return self.question.corpora.general, self.question.corpora.domain

    def fit(self, corpus: str) -> Fit | LawAverage:
        """The fit that answers for a corpus."""
        return self.fits[corpus][self.law[corpus]]

    def at(self, target: Target) -> AnsweringLaws:
        """The same with the laws that count at the horizon of a run, and their weights there."""
        if not any(self.weights.values()):
            return self
        alone = {
            corpus: {law: fit for law, fit in of.items() if isinstance(fit, Fit)} for corpus, of in self.fits.items()
        }
        weight = horizon_weights(alone, self.tested, target.N, target.D)
        return replace(self, fits=with_average(alone, weight, self.tested), weights=weight)

    def weights_at(self, ratio: float) -> dict[str, dict[str, float]]:
        """Corpus -> law -> its weight at a domain ratio: less below the ratios that it was fitted to, 0 far below."""
        sides = {corpus: 1 - ratio if corpus == self.corpora[0] else ratio for corpus in self.weights}
        fits = {corpus: self.fit(corpus) for corpus in self.weights}
        return {
            corpus: dict(zip(fit.fits, map(float, fit.weights_at(pd.DataFrame({"r": [sides[corpus]]}))[:, 0])))
            for corpus, fit in fits.items()
            if isinstance(fit, LawAverage)
        }

    def at_peak(self, peak: float) -> AnsweringLaws:
        """The same for a run with this peak learning rate alone."""
        design = replace(self.question.design, peaks=[1.0])
        return replace(self, question=replace(with_peak(self.question, peak), design=design))

    def distances(self, target: Target) -> Iterator[tuple[str, float]]:
        """How far a run is beyond the fitted ones, by tokens and by size: of what, and how many times."""
        ranges = self.fit(self.corpora[1]).ranges
        for column, value, what in (("D", target.D, "tokens"), ("N", target.N, "parameters")):
            low, high = ranges.get(column, (value, value))
            if not low * (1 - 1e-9) <= value <= high * (1 + 1e-9):
                end, times = ("most", value / high) if value > high else ("fewest", value / low)
                yield f"{end} {what}", times

    def untested(self, target: Target) -> str:
        """Why nothing is known of a run: it is farther than any whose errors were measured; empty: it is not."""
        furthest = max((times for _, times in self.distances(target)), default=1.0)
        if furthest <= TESTED * (1 + 1e-9):
            return ""
        far = f"{furthest:.3g} times as far as was fitted, and intervals were tested up to {TESTED:.0f} times"
        return f"not known: {far}; a longer run for the fit would tell"

    def loss(self, target: Target, corpus: str, ratio: float) -> tuple[float, float, float]:
        """Loss at the end of a run at a domain ratio, and the ends of its prediction interval, nats per token."""
        fit, r = self.at(target).fit(corpus), 1 - ratio if corpus == self.question.corpora.general else ratio
        frame = pd.DataFrame([{**target.columns(corpus, fit), "r": r}])
        low, high = fit.predict_interval(frame)
        return float(fit.predict(frame)[0]), float(low[0]), float(high[0])

    def trade_off(self, target: Target) -> TradeOff:
        """The largest domain ratio of a run at which the general loss stays within `goal.tolerance`."""
        (general, domain), laws = self.corpora, self.at(target)
        fits, tolerance = (laws.fit(general), laws.fit(domain)), self.question.goal.tolerance
        return trade_off(
            *fits, target.N, target.D, tolerance, target.before[general],
            general_at=target.columns(general, fits[0]), domain_at=target.columns(domain, fits[1]),
        )  # fmt: skip


@dataclass(frozen=True)
class Solution:
    """An answer."""

    target: Target
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
    identified: bool = True
    """Whether the points say where the optimum is: False where its interval is all that was asked."""
    optimum: dict[str, Estimate] = field(default_factory=dict)
    """goal=compute: N and D, billions, of the best size, whether or not there is a model of it."""
    candidates: list[ModelCandidate] = field(default_factory=list)
    """goal=compute: what each model is predicted to do."""
    peak: float | None = None
    """Peak learning rate; None: that of the question."""


def one_ratio(answer: Recommendation) -> str:
    """The warning that all runs for the fit are at one domain ratio, which is not the answer's; empty: they are not."""
    return next((line for line in answer.warnings if ONE_RATIO in line), "")


def ratio_of_run(domain_ratio: float) -> float:
    """An answer as it is run: down to thousandths, so that the mixture stays within the tolerance.

    >>> ratio_of_run(0.4996), ratio_of_run(0.57), ratio_of_run(0.39999999999999997)
    (0.499, 0.57, 0.4)
    """
    # A crossing at .4 may come out as .39999999999999997.
    return math.floor(1000 * domain_ratio + 1e-9) / 1000


def at_best_peak(
    laws: AnsweringLaws, solve: Callable[[AnsweringLaws], Solution], loss: Callable[[Solution], float]
) -> Solution:
    """The answer at the peak learning rate of `design` with the least loss."""
    peaks = candidate_peaks(laws.question)
    if peaks == [peak_of(laws.question, 1.0)]:
        return solve(laws)
    return min((replace(solve(laws.at_peak(peak)), peak=peak) for peak in peaks), key=loss)


def mixture_changes(laws: AnsweringLaws, target: Target) -> list[RecommendedChange]:
    """The best change at each of `goal.change_at`, by fits of `CHANGE_LAW`; none where no mixture is tolerated."""
    question, (general, domain) = laws.question, laws.corpora
    of_general, of_domain = (laws.fits[corpus][CHANGE_LAW] for corpus in laws.corpora)
    assert isinstance(of_general, Fit)
    assert isinstance(of_domain, Fit)
    changes = []
    for at in question.goal.change_at:
        summed_rate = float(target.rates[: round(at * target.steps)].sum())
        answer = mixture_change(
            of_general, of_domain, summed_rate, question.goal.tolerance, target.before[general],
            general_at=target.columns(general, of_general),
            domain_at=target.columns(domain, of_domain),
        )  # fmt: skip
        if answer is not None:
            predicted = {general: answer.general, domain: answer.domain}
            better = answer.difference < -TYPICAL_ERROR
            changes.append(RecommendedChange(at, answer.before, answer.after, predicted, answer.difference, better))
    return changes


def change_lines(question: Question, changes: list[RecommendedChange]) -> Iterator[str]:
    """What the changes come to: one mixture, or the run that tests the best of those that are better."""
    if not changes:
        return
    domain, best = question.corpora.domain, min(changes, key=lambda change: change.difference)
    error = f"such differences are missed by {TYPICAL_ERROR:g} nats"
    if not best.better:
        least = f"{-best.difference:.3f} nats at most" if best.before != best.after else "none"
        yield f"keep one mixture: a change lowers the loss on {domain} by {least}; {error} (docs/training.md)"
        return
    words = (
        f"ladder=[{question.model.name}] target.steps={question.target.steps} continual.part=1 "
        f"'mixture.domain_ratio=[{best.before:.3f}]' "
        f"'continual.phases=[{{share: {best.at:g}}}, {{domain_ratio: {best.after:.3f}}}]'"
    )
    yield (
        f"a change after {best.at:.0%} of the steps, from {best.before:.3f} to {best.after:.3f} {domain}, may lower "
        f"its loss by {-best.difference:.3f} nats; {error}; to test it, train a study of its own with {words}"
    )


def answering_laws(context: Context) -> AnsweringLaws:
    """The average of the laws of each corpus by held-out errors, or the first law where nothing could be held out."""
    points, fits = context.points, context.fits
    refuse_other_points(context.study, context.points_digest)
    question = with_tried_peaks(context.question.with_laws(fits), context.plan)
    target, tested = find_target(question, points), context.tested
    weight = horizon_weights(fits, tested, target.N, target.D) if len(question.law) > 1 else {}
    first = next(law for law in question.law if law not in context.laws_without_peaks)
    law = {corpus: AVERAGE if weight.get(corpus) else first for corpus in context.corpora}
    averaged = with_average(fits, weight, tested)
    return AnsweringLaws(question, points, averaged, law, weight, tested)


def with_tried_peaks(question: Question, plan: Sequence[PlannedRun]) -> Question:
    """The question with those of `design.peaks` that one of the longest runs for the fit has.

    The laws extrapolate badly in peak and length at once (docs/negative-results.md). Runs of the target's model count
    before those of others.
    """
    schedule_of, runs = schedules(plan), [run for run in plan if run.role == "fit"]
    of_target = [run for run in runs if run.model == question.model.name]
    rates = [schedule_of[run.name].rates for run in of_target or runs]
    steps = max(map(len, rates), default=0)
    peaks = [float(curve.max()) for curve in rates if len(curve) == steps]

    def has_run(factor: float) -> bool:
        phase = with_peak(question, peak_of(question, factor)).target_phase
        peak = float(learning_rates(pieces(phase), steps).max())
        return any(math.isclose(peak, of_run) for of_run in peaks)

    factors = [factor for factor in question.design.peaks if runs and has_run(factor)]
    return replace(question, design=replace(question.design, peaks=factors)) if factors else question
