"""What confirmation runs of another ratio or tolerance measured of the run that an answer is for."""

import contextlib
import math
from typing import NamedTuple

from fitting import PointsError
from pipeline.goals.ratio.answering_laws import answering_laws, ratio_of_run
from pipeline.goals.ratio.confirm import NEAR, SAME
from pipeline.study.artifacts import Confirmation, PredictedLoss, Recommendation
from pipeline.study.collect import last_losses
from pipeline.study.context import Context
from pipeline.study.folder import StudyError
from pipeline.study.number_format import domain_ratio_of, percent, signed
from pipeline.study.target import find_target

READ = "which the fit has read"
"""Said of confirmation runs that cptlaw refine has made runs for the fit."""
_MOST = 3
"""Measured places that are named."""


class _Place(NamedTuple):
    """What the runs at a domain ratio measured on general, nats per token."""

    domain_ratio: float
    loss: float
    run: str
    peak: float | None


def measured_beside(context: Context, answer: Recommendation, confirmation: Confirmation) -> tuple[str, str]:
    """What runs like the answer's measured on general, in words, and that one at nearly its ratio contradicts it.

    Those of `confirmation` go before others of the study. Both may be empty.
    """
    domain, general = context.question.corpora.domain, context.question.corpora.general
    places = _places(context, answer, confirmation) if answer.goal.kind == "trade-off" else []
    if not places:
        return "", ""
    ratio, before, nearest = (answer.mixture or {})[domain], answer.loss_before[general], places[0]
    own, contradicted = answer.peak_learning_rate, ""
    elsewhere = own is not None and nearest.peak is not None and not math.isclose(nearest.peak, own, rel_tol=0.01)
    if not elsewhere and abs(nearest.domain_ratio - ratio) <= NEAR:
        at, loss = _predicted_near(context, answer, nearest.domain_ratio)
        measured, low, high = (signed(loss / before - 1) for loss in (nearest.loss, loss.low, loss.high))
        if not loss.low <= nearest.loss <= loss.high:
            contradicted = (
                f"the {domain_ratio_of(domain)} is not known yet: a run at {percent(nearest.domain_ratio)} changed the "
                f"loss on {general} by {measured}, where {low} to {high} is predicted at {percent(at)} {domain}"
            )
        crossing, tolerance = confirmation.outcome.crossing, confirmation.outcome.tolerance
        if contradicted and crossing and tolerance == answer.goal.tolerance:
            contradicted += f"; the runs reach {100 * answer.goal.tolerance:.3g}% at about "
            contradicted += percent(ratio_of_run(crossing.value))
    seen = [f"{signed(place.loss / before - 1)} at {percent(place.domain_ratio)}" for place in sorted(places)]
    at_it = not elsewhere and abs(nearest.domain_ratio - ratio) < SAME
    fitted = {run.name for run in context.plan if run.role == "fit"}
    counts, read = "", [percent(place.domain_ratio) for place in sorted(places) if place.run in fitted]
    if read:
        counts = f", of which the fit has read {'that' if len(read) == 1 else 'those'} at {' and '.join(read)}"
    if len(read) == len(places):
        counts = f", {READ}{': cptlaw confirm trains others, of another seed' if at_it else ''}"
    elif at_it and nearest.run not in fitted:
        own = f"; cptlaw confirm compares that at {percent(nearest.domain_ratio)} with this answer"
        counts += own if read else ", which cptlaw confirm compares with this answer"
    at = f" at a peak of {nearest.peak:g}" if elsewhere else ""
    listed = " and ".join(filter(None, [", ".join(seen[:-1]), seen[-1]]))
    return f"; runs measured {listed} {domain} on {general}{at}{counts}", contradicted


def _places(context: Context, answer: Recommendation, confirmation: Confirmation) -> list[_Place]:
    """Where runs of the answer's model and length, and of one peak, were measured; the nearest to its ratio first."""
    domain, general = context.question.corpora.domain, context.question.corpora.general
    asked = (answer.target.model, answer.target.steps)
    rows = [row for row in confirmation.confirmations if row.recommended and row.corpus == general]
    peaks = {run.name: run.peak for run in context.plan}
    places = [
        _Place(row.domain_ratio, row.measured, row.run, peaks.get(row.run))
        for row in rows
        if (row.model, row.steps) == asked
    ]
    runs = [run for run in context.plan if run.role != "pretrain" and (run.model, run.spec.steps) == asked]
    runs = [run for run in runs if not (run.variant or run.spec.initial.moments) and context.study.state(run) == "done"]
    losses = last_losses(context.points, [run.name for run in runs]) if runs else {}
    # Those that a fit has read go last.
    for run in sorted(runs, key=lambda run: run.role == "fit"):
        ratio = run.ratio_of(domain)
        if general in losses.get(run.name, {}) and all(abs(place.domain_ratio - ratio) >= SAME for place in places):
            places.append(_Place(ratio, losses[run.name][general], run.name, run.peak))
    places.sort(key=lambda place: abs(place.domain_ratio - (answer.mixture or {})[domain]))
    # None: the run is not planned any more.
    return [place for place in places if place.peak in (None, places[0].peak) or places[0].peak is None][:_MOST]


def _predicted_near(context: Context, answer: Recommendation, ratio: float) -> tuple[float, PredictedLoss]:
    """A ratio, and the general loss predicted at it: that of a run near the answer, or without fits the answer's."""
    general, domain = context.question.corpora.general, context.question.corpora.domain
    with contextlib.suppress(StudyError, PointsError):
        laws = answering_laws(context)
        laws = laws.at_peak(answer.peak_learning_rate) if answer.peak_learning_rate else laws
        return ratio, PredictedLoss(*laws.loss(find_target(laws.question, laws.points), general, ratio))
    return (answer.mixture or {})[domain], answer.predicted[general]
