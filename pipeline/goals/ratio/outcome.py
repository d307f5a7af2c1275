"""Do confirmation runs at the predicted optimum and around it confirm it? Verdicts with the noise of their seeds.

Of the trade-off: CONFIRMED if the 90% interval of the measured loss increase at the recommended ratio holds the
tolerance; NEARBY if the ratio at which the measured increase is the tolerance may lie in the 90% interval of the
predicted ratio. Of limited-data and compute: CONFIRMED if the recommended place may be the optimum and another place
may not; NEARBY if a place that may be the optimum lies in the 90% interval of the predicted one. Else NOT_CONFIRMED;
UNDETERMINED with one seed, and where every place may be the optimum.
"""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from fitting import Estimate
from fitting.answers.measured_optimum import around_optimum, crossing, mean_of_seeds
from pipeline.question.schema import Question
from pipeline.study.artifacts import ConfirmationRow, Interval, MeasuredPlace, Outcome, Recommendation
from pipeline.study.number_format import percent

CONFIRMED, NEARBY = "confirmed", "confirmed within its interval"
NOT_CONFIRMED, UNDETERMINED = "not confirmed", "not determined"


def tolerance_outcome(question: Question, recommendation: Recommendation, rows: list[ConfirmationRow]) -> Outcome:
    """Judge the ratio at which the general loss increases by the tolerance; rows of the recommended place go first."""
    outcome, deciding = _deciding(question, rows, question.corpora.general, "domain_ratio")
    answer, tolerance = deciding[outcome.at], question.goal.tolerance
    increases = np.array([row.seeds for row in deciding]) / answer.before - 1
    increase = mean_of_seeds(increases[outcome.at])
    met = crossing(np.array([row.domain_ratio for row in deciding]), increases, tolerance)
    low, high = recommendation.low or 0.0, recommendation.high or 0.0
    verdict = NOT_CONFIRMED
    if outcome.seeds < 2:
        verdict = UNDETERMINED
    elif increase.low <= tolerance <= increase.high:
        verdict = CONFIRMED
    elif met is not None and met.low <= high and low <= met.high:
        verdict = NEARBY
    where = f"At {percent(answer.domain_ratio)} {question.corpora.domain} the loss on {answer.corpus}"
    verb = "increased" if increase.value >= 0 else "changed"
    parts = [
        f"{where} {verb} by {increase.value:.2%}{_between(increase, '.2%')}",
        f"the tolerance is {100 * tolerance:.3g}%",
    ]
    if met is not None:
        measured = f"{met.value:.1%}{_between(met, '.1%')}"
        parts.append(f"measured, it is reached at {measured}, predicted {low:.1%} to {high:.1%}")
    elif len(deciding) > 1:
        parts.append("no two neighbouring runs enclose it")
    else:
        parts.append("nothing was run beside this ratio: set confirm.around")
    judged = _judged(outcome, verdict, parts)
    return replace(judged, tolerance=tolerance, loss_increase=_interval(increase), crossing=met and _interval(met))


def minimum_outcome(
    question: Question, rows: list[ConfirmationRow], axis: str, interval: tuple[float | None, float | None]
) -> Outcome:
    """Judge the place with the lowest domain loss; rows of the recommended place come first.

    The places differ in the column `axis`, domain_ratio or N; the 90% interval is that of the optimum on this axis.
    """
    outcome, deciding = _deciding(question, rows, question.corpora.domain, axis)
    if len(deciding) == 1:
        return outcome
    measured = around_optimum(np.array([row.seeds for row in deciding]), outcome.at)
    low, high = interval[0] or 0.0, interval[1] or 0.0
    best = [row for row, among in zip(deciding, measured.among_best) if among]
    if len(best) == len(deciding):
        verdict = UNDETERMINED
    elif measured.among_best[outcome.at]:
        verdict = CONFIRMED
    else:
        verdict = NEARBY if any(low <= getattr(row, axis) <= high for row in best) else NOT_CONFIRMED
    names = [row.model if axis == "N" else percent(row.domain_ratio) for row in deciding]
    difference = measured.difference
    side = "above" if difference.value > 0 else "below"
    among, others = (
        ", ".join(name for name, may_be in zip(names, measured.among_best) if may_be == wanted)
        for wanted in (True, False)
    )
    parts = [
        f"At the predicted {names[outcome.at]} the loss on {outcome.corpus} is {abs(difference.value):.4f} {side} the "
        f"lowest of the others, at {names[measured.other]}{_between(difference, '+.4f')}",
        *([f"the standard deviation over seeds is {measured.sd:.4f}"] if outcome.seeds > 1 else []),
        f"the minimum may be at {among}, not at {others}" if others else "the minimum may be at any of these places",
    ]
    sd = None if np.isnan(measured.sd) else measured.sd
    numbers = {"difference": _interval(difference), "other": measured.other, "sd": sd}
    return replace(_judged(outcome, verdict, parts), among_best=list(measured.among_best), **numbers)


def _deciding(
    question: Question, rows: list[ConfirmationRow], corpus: str, axis: str
) -> tuple[Outcome, list[ConfirmationRow]]:
    """The outcome without its verdict, and the rows that decide on it: of one corpus, by its recommended law."""
    deciding = [row for row in rows if row.recommended and row.corpus == corpus]
    deciding.sort(key=lambda row: getattr(row, axis))
    at = next(number for number, row in enumerate(deciding) if row.run == rows[0].run)
    names = [field.name for field in fields(MeasuredPlace)]
    places = [MeasuredPlace(**{name: getattr(row, name) for name in names}) for row in deciding]
    undetermined = "Nothing was run beside the recommended place: set confirm.around."
    outcome = Outcome(question.goal.kind, corpus, len(deciding[at].seeds), at, places, UNDETERMINED, undetermined)
    return outcome, deciding


def _judged(outcome: Outcome, verdict: str, parts: list[str]) -> Outcome:
    noise = "One seed, so its noise is not known: confirm.seeds=3 gives intervals."
    seeds = f"{outcome.seeds} seeds." if outcome.seeds > 1 else noise
    return replace(outcome, verdict=verdict, sentence=f"{'; '.join(parts)}. {seeds}")


def _between(estimate: Estimate, form: str) -> str:
    return "" if np.isnan(estimate.low) else f" (90%: {estimate.low:{form}} to {estimate.high:{form}})"


def _interval(estimate: Estimate) -> Interval:
    return Interval(*(None if np.isnan(value) else float(value) for value in estimate))  # pyright: ignore
