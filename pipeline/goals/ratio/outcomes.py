"""Whether confirmation runs confirm an answer.

A trade-off is CONFIRMED if the 90% interval of the measured loss increase at the recommended ratio holds the
tolerance, and NEARBY if the ratio at which the measured increase is the tolerance may lie in the 90% interval of the
predicted ratio. Limited data, compute and balance are CONFIRMED if the recommended place may be the optimum and another
place may not, and NEARBY if a place that may be the optimum lies in the 90% interval of the predicted one. Any other
answer is NOT_CONFIRMED, or UNDETERMINED with one seed and where every place may be the optimum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from types import MappingProxyType

import numpy as np

from fitting import Estimate
from fitting.answers.measured_optimum import around_optimum, crossing, mean_of_seeds
from pipeline.goals.ratio.answering_laws import ratio_of_run
from pipeline.question.schema import Question
from pipeline.study.artifacts import ConfirmationRow, Interval, MeasuredPlace, Outcome, Recommendation
from pipeline.study.folder import IMPORTED
from pipeline.study.number_format import percent

CONFIRMED, NEARBY = "confirmed", "confirmed within its interval"
NOT_CONFIRMED, UNDETERMINED = "not confirmed", "not determined"
Rows = list[ConfirmationRow]
Others = Mapping[float, float]
"""Domain ratio -> loss that decides, of the runs of a study that are like those that confirm, and none of them."""
NO_RUNS: Others = MappingProxyType({})


def balance_weights(question: Question) -> dict[str, float]:
    """Corpus -> weight of its loss in the sum that goal=balance makes least."""
    weight = question.goal.weight
    return {question.corpora.general: weight, question.corpora.domain: 1 - weight}


def tolerance_outcome(question: Question, recommendation: Recommendation, rows: Rows, others: Others) -> Outcome:
    """Judge the ratio at which the general loss increases by the tolerance; rows of the recommended place go first.

    `others` count beside one seed alone, of which no verdict is given: several are compared each with itself.
    """
    outcome, deciding = _deciding(question, rows, question.corpora.general, "domain_ratio")
    answer, tolerance = deciding[outcome.at], question.goal.tolerance
    places, increases = [row.domain_ratio for row in deciding], _seeds_in_common(deciding) / answer.before - 1
    increase = mean_of_seeds(np.array(answer.seeds) / answer.before - 1)
    met = crossing(np.array(places), increases, tolerance)
    low, high = recommendation.low or 0.0, recommendation.high or 0.0
    verdict = NOT_CONFIRMED
    if outcome.seeds < 2:
        verdict = UNDETERMINED
    elif increase.low <= tolerance <= increase.high or (answer.domain_ratio == 1 and increase.high <= tolerance):
        verdict = CONFIRMED
    elif met is not None and np.fmin(met.low, met.value) <= high and low <= np.fmax(met.high, met.value):
        verdict = NEARBY
    line = "these runs"
    if outcome.seeds == 1:
        curve = {ratio: loss / answer.before - 1 for ratio, loss in others.items()} | dict(zip(places, increases[:, 0]))
        ratios = sorted(curve)
        met = crossing(np.array(ratios), np.array([[curve[ratio]] for ratio in ratios]), tolerance) or met
        beside = [max(r for r in ratios if r <= met.value), min(r for r in ratios if r >= met.value)] if met else []
        if any(ratio in others for ratio in beside):
            ends = " and ".join(percent(ratio) for ratio in dict.fromkeys(beside))
            line = (
                f"the nearest of these runs and others of the study, at {ends}, whether or not the fit has read them,"
            )
    where = f"At {percent(answer.domain_ratio)} {question.corpora.domain} the loss on {answer.corpus}"
    verb = "increased" if increase.value >= 0 else "changed"
    sd = 100 * float(np.std(answer.seeds, ddof=1)) / answer.before if len(answer.seeds) > 1 else None
    noise = "" if sd is None else f", the mean of seeds with a standard deviation of {sd:.2f} points"
    parts = [
        f"{where} {verb} by {increase.value:z.2%}{_between(increase, 'z.2%')}{noise}",
        f"the tolerance is {100 * tolerance:.3g}%",
    ]
    if met is not None:
        measured = f"{ratio_of_run(met.value):.1%}{_between(met, '.1%')}"
        parts.append(f"on a line between {line} it is reached at {measured}, predicted {low:.1%} to {high:.1%}")
    elif len(deciding) > 1:
        parts.append(_not_enclosed(increases > tolerance))
    else:
        parts.append(f"nothing was run beside this ratio: {_more(question, 'set confirm.around', 'beside it')}")
    judged = _judged(question, outcome, verdict, parts)
    return replace(judged, tolerance=tolerance, loss_increase=_interval(increase), crossing=met and _interval(met))


def _not_enclosed(above: np.ndarray) -> str:
    """Why no ratio at which the tolerance is reached was measured. `above`: (places, seeds)."""
    if not above.any():
        return "no confirmation run exceeded it"
    return "every confirmation run exceeded it" if above.all() else "the runs do not show at which ratio it is reached"


def minimum_outcome(
    question: Question,
    rows: list[ConfirmationRow],
    axis: str,
    interval: tuple[float | None, float | None],
    corpus: str | None = None,
    others: Others = NO_RUNS,
) -> Outcome:
    """Judge the place with the lowest loss, on the `axis` domain_ratio or N, by the 90% interval there.

    `corpus`: whose rows decide; None: the domain. `others` count beside one seed alone, as for a tolerance.
    """
    outcome, deciding = _deciding(question, rows, corpus or question.corpora.domain, axis)
    others = others if outcome.seeds == 1 else NO_RUNS
    if len(deciding) + len(others) == 1:
        return outcome
    losses = np.array([*_seeds_in_common(deciding).tolist(), *([loss] for loss in others.values())])
    measured = around_optimum(losses, outcome.at)
    low, high = interval[0] or 0.0, interval[1] or 0.0
    best = [row for row, among in zip(deciding, measured.among_best) if among]
    if len(best) == len(deciding):
        verdict = UNDETERMINED
    elif measured.among_best[outcome.at]:
        verdict = CONFIRMED
    else:
        verdict = NEARBY if any(low <= getattr(row, axis) <= high for row in best) else NOT_CONFIRMED
    names = [row.model if axis == "N" else percent(row.domain_ratio) for row in deciding] + [*map(percent, others)]
    difference = measured.difference
    side = "above" if difference.value > 0 else "below"
    order = np.argsort([*(getattr(row, axis) for row in deciding), *others])
    among, ruled_out = (
        ", ".join(names[place] for place in order if measured.among_best[place] == wanted) for wanted in (True, False)
    )
    by = "by one seed" if outcome.seeds == 1 else f"by {outcome.seeds} seeds"
    parts = [
        f"At the predicted {names[outcome.at]} the loss on {outcome.corpus} is {abs(difference.value):.4f} {side} the "
        f"lowest of the other runs{', others of the study among them' * bool(others)}, at {names[measured.other]}"
        f"{_between(difference, '+.4f')}",
        *([f"a run's noise beside others of its seed is {measured.sd:.4f} (one SD)"] if outcome.seeds > 1 else []),
        f"the minimum may be at {among}"
        + (f", not at {ruled_out}" if ruled_out else f": {by} no place can be ruled out"),
    ]
    sd, count = None if np.isnan(measured.sd) else measured.sd, len(deciding)
    numbers = {"difference": _interval(difference), "sd": sd, "among_best": list(measured.among_best[:count])}
    numbers |= (
        {"other": measured.other} if measured.other < count else {"other_ratio": [*others][measured.other - count]}
    )
    return replace(_judged(question, outcome, verdict, parts), **numbers)


def _deciding(
    question: Question, rows: list[ConfirmationRow], corpus: str, axis: str
) -> tuple[Outcome, list[ConfirmationRow]]:
    """The outcome without its verdict, and the rows that decide on it: of one corpus, by its recommended law."""
    deciding = [row for row in rows if row.recommended and row.corpus == corpus]
    deciding.sort(key=lambda row: getattr(row, axis))
    at = next(number for number, row in enumerate(deciding) if row.run == rows[0].run)
    names = [field.name for field in fields(MeasuredPlace)]
    places = [MeasuredPlace(**{name: getattr(row, name) for name in names}) for row in deciding]
    undetermined = (
        f"Nothing was run beside the recommended place: {_more(question, 'set confirm.around', 'beside it')}."
    )
    outcome = Outcome(question.goal.kind, corpus, len(deciding[at].seeds), at, places, UNDETERMINED, undetermined)
    return outcome, deciding


def _seeds_in_common(rows: Sequence[ConfirmationRow]) -> np.ndarray:
    """The losses (places, seeds) of as many seeds as every place has, the first ones, since seeds are paired."""
    least = min(len(row.seeds) for row in rows)
    return np.array([row.seeds[:least] for row in rows])


def _more(question: Question, key: str, runs: str) -> str:
    """How more confirmation runs come about: by a key, or imported where none are trained."""
    return f"import runs {runs} with role=confirm" if question.model.path == IMPORTED else key


def _judged(question: Question, outcome: Outcome, verdict: str, parts: list[str]) -> Outcome:
    noise = (
        f"One seed, so its noise is not known: {_more(question, 'confirm.seeds=3 gives intervals', 'of other seeds')}."
    )
    seeds = f"{outcome.seeds} seeds." if outcome.seeds > 1 else noise
    return replace(outcome, verdict=verdict, sentence=f"{'; '.join(parts)}. {seeds}")


def _between(estimate: Estimate, form: str) -> str:
    return "" if np.isnan(estimate.low) else f" (90%: {estimate.low:{form}} to {estimate.high:{form}})"


def _interval(estimate: Estimate) -> Interval:
    return Interval(*(None if np.isnan(value) else float(value) for value in estimate))  # pyright: ignore
