"""Confirmation runs, which no fit has seen, the predictions of every law for them, and whether they confirm an answer.

A trade-off is CONFIRMED if the 90% interval of the measured loss increase at the recommended ratio holds the
tolerance, and NEARBY if the ratio at which the measured increase is the tolerance may lie in the 90% interval of the
predicted ratio. Limited data, compute and balance are CONFIRMED if the recommended place may be the optimum and another
place may not, and NEARBY if a place that may be the optimum lies in the 90% interval of the predicted one. Any other
answer is NOT_CONFIRMED, or UNDETERMINED with one seed and where every place may be the optimum.
"""

from __future__ import annotations

import itertools
import math
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction

import numpy as np
import pandas as pd

from fitting import Estimate
from fitting.answers.measured_optimum import around_optimum, crossing, mean_of_seeds
from pipeline.goals.ratio.answering_laws import ratio_of_run
from pipeline.plan.runs import continual_run
from pipeline.plan.token_supply import supply_problems
from pipeline.question.design import with_peak
from pipeline.question.messages import ConfigError
from pipeline.question.phases import pieces
from pipeline.question.schema import Question
from pipeline.study.artifacts import Confirmation, ConfirmationRow, Interval, MeasuredPlace, Outcome, Recommendation
from pipeline.study.collect import last_losses
from pipeline.study.context import Context
from pipeline.study.fits import horizon_weights, with_average
from pipeline.study.folder import IMPORTED, PlannedRun, Study, StudyError, import_words
from pipeline.study.number_format import percent
from pipeline.study.status import ended_points
from pipeline.study.target import find_target
from training.schedule import learning_rates

CONFIRMED, NEARBY = "confirmed", "confirmed within its interval"
NOT_CONFIRMED, UNDETERMINED = "not confirmed", "not determined"
SAME = 5e-4
"""Difference of two domain ratios up to which they are the same."""
NEAR = 0.02
"""Difference of two domain ratios up to which a run at one is held against the prediction for the other."""


@dataclass(frozen=True)
class Place:
    """A confirmation run without its seed."""

    model: str
    domain_ratio: float
    steps: int


def imported_runs(context: Context, recommendation: Recommendation, any_length: bool) -> list[PlannedRun]:
    """The confirmation runs that were trained elsewhere, those nearest to the recommended ratio first.

    `any_length`: also those of another model or length than the recommended run.

    Raises:
        StudyError: there are none, or one has other learning rates or another batch than the recommended run.
    """
    study = context.study
    question = with_peak(context.question, recommendation.peak_learning_rate)
    domain, target = question.corpora.domain, recommendation.target
    runs = [run for run in context.plan if run.role == "confirm"]
    runs = [run for run in runs if any_length or (run.model, run.spec.steps) == (target.model, target.steps)]
    assert recommendation.mixture is not None
    ratio = recommendation.mixture[domain]
    if not runs:
        parts = ["no run to confirm with", *_not_judged(context, runs), import_remedy(context, recommendation)]
        raise StudyError(f"{study.folder}: {'; '.join(parts)}")
    recommended = pieces(question.target_phase)
    for run in runs:
        spec = run.spec
        rates, asked = (learning_rates(schedule, spec.steps) for schedule in (spec.schedule, recommended))
        if not np.allclose(rates, asked, rtol=1e-6, atol=0.0):
            peaks = f"peak {max(rates):g}, recommended {max(asked):g}"
            raise StudyError(f"{run.name}: its learning rates are not those of the recommended run ({peaks})")
        if spec.tokens_per_step != question.tokens_per_step():
            tokens = f"{spec.tokens_per_step:,}, recommended {question.tokens_per_step():,}"
            raise StudyError(f"{run.name}: tokens_per_step={tokens}")
    return sorted(runs, key=lambda run: abs(float(Fraction(run.spec.mixture[domain])) - ratio))


def _not_judged(context: Context, judged: Sequence[PlannedRun]) -> Iterator[str]:
    """Which runs that were brought to confirm the answer are not compared with it, in words."""
    others = [run for run in context.plan if run.imported and run.role == "confirm" and run not in judged]
    if others:
        listed = ", ".join(f"{run.name} ({run.model}, {run.spec.steps:,} steps)" for run in others)
        yield f"not judged, of another model or length: {listed}"


def import_remedy(context: Context, answer: Recommendation | None) -> str:
    """Which run would confirm the answer to runs made elsewhere, and how it comes here; empty: it is there.

    Empty too for a study that trains its own, and without an answer.
    """
    domain, mixture = context.question.corpora.domain, answer.mixture if answer else None
    if not answer or not mixture or not any(run.imported for run in context.plan):
        return ""
    asked = answer.target.model, answer.target.steps
    for run in (run for run in context.plan if run.role == "confirm"):
        ratio = float(Fraction(run.spec.mixture[domain]))
        if abs(ratio - mixture[domain]) < SAME and (run.model, run.spec.steps) == asked:
            return ""
    place = f"domain_ratio={mixture[domain]:.3f}, {answer.target.steps:,} steps"
    bring = shlex.join(["cptlaw", *import_words(context.question, f"{mixture[domain]:.3f}"), "role=confirm"])
    return f"train the recommended run ({place}), which cptlaw export {context.study.word} writes, then {bring}"


def ratios(question: Question, recommendation: Recommendation) -> list[float]:
    """The recommended domain ratio, and those around it: `confirm.around`, or one at `confirm.neighbour`."""
    assert recommendation.mixture is not None
    ratio, confirm = recommendation.mixture[question.corpora.domain], question.confirm
    distance = confirm.neighbour
    distances = confirm.around or ([-distance if ratio >= distance else distance] if distance else [])
    # Each once: a run that is there twice would count as two seeds.
    places = dict.fromkeys([ratio, *(round(ratio + distance, 3) for distance in distances)])
    return [place for place in places if 0 <= place <= 1]


def confirmation_runs(context: Context, asked: Sequence[Place], seen: Collection[str] = ()) -> list[PlannedRun]:
    """The runs of some places, over `confirm.seeds`: of the next seeds where a fit has seen one of these hashes."""
    question = context.question
    first = question.seed
    while True:
        runs = [
            continual_run(context, context.models[place.model], place.domain_ratio, place.steps, seed, "confirm")
            for seed in range(first, first + question.confirm.seeds)
            for place in asked
        ]
        if not any(run.spec.hash in seen for run in runs):
            break
        # All of them, so that seeds stay paired between the ratios.
        first += question.confirm.seeds
    if problems := list(supply_problems(runs, context)):
        raise ConfigError(problems)
    return runs


def why_another_seed(context: Context, runs: Sequence[PlannedRun]) -> Iterator[str]:
    """A line where the confirmation runs have another seed than the question, since the fit has read one of them."""
    _, domain = context.corpora
    fitted = {run.spec.hash for run in context.plan if run.role == "fit"}
    first = min((run.spec.seed for run in runs), default=0)
    for run, seed in itertools.product(runs, range(context.question.seed, first)):
        if replace(run.spec, seed=seed).hash in fitted:
            same = f"{percent(float(Fraction(run.spec.mixture[domain])))} {domain} for {run.spec.steps:,} steps"
            yield (
                f"{same} is among the runs for the fit, with seed {seed}: so the confirmation runs have seed {first}, "
                "another order of the text"
            )
            return


def compare(
    context: Context,
    runs: list[PlannedRun],
    outcome: Callable[[Question, Recommendation, list[ConfirmationRow]], Outcome],
) -> Confirmation:
    """Every law's prediction for the end of each place beside the mean over its seeds; writes confirmation.json."""
    study, points = context.study, context.points
    recommendation = Recommendation.read(study)
    question = with_peak(context.question, recommendation.peak_learning_rate)
    by_place: dict[tuple, list[PlannedRun]] = {}
    for run in runs:
        # Runs of a place differ in their seed alone.
        by_place.setdefault((run.model, run.spec.steps, tuple(run.spec.mixture.items())), []).append(run)
    rows = []
    for place in by_place.values():
        place.sort(key=lambda run: run.spec.seed)
        run = place[0]
        target = find_target(question, points, run.model).lasting(run.spec.steps)
        weights = horizon_weights(context.fits, context.tested, target.N, target.D) if recommendation.weights else {}
        answering = with_average(context.fits, weights, context.tested)
        for corpus in (question.corpora.general, question.corpora.domain):
            ends = _ends(points, place, corpus, study)
            measured, bits = float(ends["loss"].mean()), float(ends["bits_per_byte"].mean())
            seen = {
                "before": target.before[corpus],
                "measured": measured,
                "seeds": [float(value) for value in ends["loss"]],
                "sd": float(np.std(ends["loss"], ddof=1)) if len(place) > 1 else None,
                "perplexity": math.exp(measured),
                "bits_per_byte": None if math.isnan(bits) else bits,
                "domain_ratio": float(ends["ratio"].iloc[0]),
            }
            for law, fit in answering[corpus].items():
                frame = pd.DataFrame([{**target.columns(corpus, fit), "r": ends["r"].iloc[0]}])
                sides = (fit.predict(frame), *fit.predict_interval(frame))
                predicted, low, high = (float(side[0]) for side in sides)
                rows.append(
                    ConfirmationRow(
                        run=run.name, model=run.model, N=target.N, D=target.D, steps=target.steps, corpus=corpus,
                        law=law, recommended=law == recommendation.law[corpus], predicted=predicted, low=low, high=high,
                        relative_error=predicted / measured - 1, inside=low <= measured <= high, **seen,
                    )
                )  # fmt: skip
    known = sum(ended_points(study, context.plan).values())
    judged = outcome(question, recommendation, rows)
    others = [*_other_run(context, runs[0], recommendation), *_not_counted(context, runs, judged, recommendation)]
    others += [f"N{line[1:]}." for line in _not_judged(context, runs)]
    judged = replace(judged, sentence=" ".join([judged.sentence, *others]))
    losses = last_losses(points, [run.name for run in runs])
    confirmation = Confirmation(0.9, rows, judged, known, recommendation.identity, losses)
    confirmation.write(study)
    return confirmation


def _other_run(context: Context, run: PlannedRun, answer: Recommendation) -> Iterator[str]:
    """That a run made elsewhere is not the recommended one, and what to do, a sentence."""
    if remedy := import_remedy(context, answer):
        domain = context.question.corpora.domain
        own = f"{percent(float(Fraction(run.spec.mixture[domain])))} {domain}, {run.spec.steps:,} steps"
        recommended = f"{percent((answer.mixture or {})[domain])} {domain}, {answer.target.steps:,} steps"
        yield f"This run is at {own}, the answer is {recommended}: {remedy}."


def _ends(points: pd.DataFrame, runs: Sequence[PlannedRun], corpus: str, study: Study) -> pd.DataFrame:
    """The last loss of each run on a corpus, in their order."""
    ends = []
    for run in runs:
        end = points[(points["run"] == run.name) & (points["corpus"] == corpus) & (points["step"] == run.spec.steps)]
        if end.empty:
            raise StudyError(f"{run.name}: has not ended; run cptlaw confirm {study.word}")
        ends.append(end.iloc[:1])
    return pd.concat(ends)


def _not_counted(
    context: Context, runs: Sequence[PlannedRun], outcome: Outcome, answer: Recommendation
) -> Iterator[str]:
    """What other runs at the recommended place, or nearly there, measured: a sentence, with the mean of all there.

    The predictions are judged by none of them: a fit may have read them, or they were for another answer.
    """
    domain, own, points = context.question.corpora.domain, runs[0], context.points
    weights = balance_weights(context.question) if outcome.goal == "balance" else {outcome.corpus: 1.0}
    ends = points[points["corpus"].isin(weights) & (points["step"] == own.spec.steps)]
    losses = (ends["loss"] * ends["corpus"].map(weights)).groupby(ends["run"]).sum()
    before = answer.loss_before[outcome.corpus] if outcome.loss_increase else 1.0
    shown = (lambda loss: f"{loss / before - 1:+.2%}") if outcome.loss_increase else (lambda loss: f"{loss:.4f}")

    def ratio_of(run: PlannedRun) -> float:
        return float(Fraction(run.spec.mixture.get(domain, "0")))

    def is_alike(run: PlannedRun) -> bool:
        """Whether it differs from the recommended run in seed and ratio alone."""
        return replace(run.spec, seed=own.spec.seed, mixture=own.spec.mixture).hash == own.spec.hash

    alike = [run for run in context.plan if run.name in losses and not run.variant and is_alike(run)]
    compared = {run.name for run in runs}
    others = [run for run in alike if run.name not in compared and abs(ratio_of(run) - ratio_of(own)) <= NEAR]
    if not others:
        return
    seen = [f"{shown(losses[run.name])} at {percent(ratio_of(run))} (seed {run.spec.seed})" for run in others]
    line = f"Not counted, since a fit has read them or they were for another answer: {', '.join(seen)}"
    there = [losses[run.name] for run in alike if run.spec.mixture == own.spec.mixture]
    if any(run.spec.mixture == own.spec.mixture for run in others):
        sd = float(np.std(there, ddof=1))
        noise = f"{100 * sd / before:.2f} points" if outcome.loss_increase else f"{sd:.4f}"
        mean = f"{shown(np.mean(there))} in the mean, standard deviation {noise}"
        line += f"; all {len(there)} runs at {percent(ratio_of(own))} together: {mean}"
    yield f"{line}."


def balance_weights(question: Question) -> dict[str, float]:
    """Corpus -> weight of its loss in the sum that goal=balance makes least."""
    weight = question.goal.weight
    return {question.corpora.general: weight, question.corpora.domain: 1 - weight}


def tolerance_outcome(question: Question, recommendation: Recommendation, rows: list[ConfirmationRow]) -> Outcome:
    """Judge the ratio at which the general loss increases by the tolerance; rows of the recommended place go first."""
    outcome, deciding = _deciding(question, rows, question.corpora.general, "domain_ratio")
    answer, tolerance = deciding[outcome.at], question.goal.tolerance
    increases = _seeds_in_common(deciding) / answer.before - 1
    increase = mean_of_seeds(np.array(answer.seeds) / answer.before - 1)
    met = crossing(np.array([row.domain_ratio for row in deciding]), increases, tolerance)
    low, high = recommendation.low or 0.0, recommendation.high or 0.0
    verdict = NOT_CONFIRMED
    if outcome.seeds < 2:
        verdict = UNDETERMINED
    elif increase.low <= tolerance <= increase.high or (answer.domain_ratio == 1 and increase.high <= tolerance):
        verdict = CONFIRMED
    elif met is not None and np.fmin(met.low, met.value) <= high and low <= np.fmax(met.high, met.value):
        verdict = NEARBY
    where = f"At {percent(answer.domain_ratio)} {question.corpora.domain} the loss on {answer.corpus}"
    verb = "increased" if increase.value >= 0 else "changed"
    sd = 100 * float(np.std(answer.seeds, ddof=1)) / answer.before if len(answer.seeds) > 1 else None
    noise = "" if sd is None else f", the mean of seeds with a standard deviation of {sd:.2f} points"
    parts = [
        f"{where} {verb} by {increase.value:.2%}{_between(increase, '.2%')}{noise}",
        f"the tolerance is {100 * tolerance:.3g}%",
    ]
    if met is not None:
        measured = f"{ratio_of_run(met.value):.1%}{_between(met, '.1%')}"
        parts.append(f"on a line between these runs it is reached at {measured}, predicted {low:.1%} to {high:.1%}")
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
) -> Outcome:
    """Judge the place with the lowest loss, on the `axis` domain_ratio or N, by the 90% interval there.

    `corpus`: whose rows decide; None: the domain.
    """
    outcome, deciding = _deciding(question, rows, corpus or question.corpora.domain, axis)
    if len(deciding) == 1:
        return outcome
    measured = around_optimum(_seeds_in_common(deciding), outcome.at)
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
    by = "by one seed" if outcome.seeds == 1 else f"by {outcome.seeds} seeds"
    parts = [
        f"At the predicted {names[outcome.at]} the loss on {outcome.corpus} is {abs(difference.value):.4f} {side} the "
        f"lowest of the other runs, at {names[measured.other]}{_between(difference, '+.4f')}",
        *([f"a run's noise beside others of its seed is {measured.sd:.4f} (one SD)"] if outcome.seeds > 1 else []),
        f"the minimum may be at {among}" + (f", not at {others}" if others else f": {by} no place can be ruled out"),
    ]
    sd = None if np.isnan(measured.sd) else measured.sd
    numbers = {"difference": _interval(difference), "other": measured.other, "sd": sd}
    return replace(_judged(question, outcome, verdict, parts), among_best=list(measured.among_best), **numbers)


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
