"""Confirmation runs, which no fit has seen, and the predictions of every law for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pandas as pd

from pipeline.plan.runs import continual_run
from pipeline.plan.token_supply import supply_problems
from pipeline.question.design import with_peak
from pipeline.question.messages import ConfigError
from pipeline.question.phases import pieces
from pipeline.question.schema import Question
from pipeline.study.artifacts import Confirmation, ConfirmationRow, Outcome, Recommendation
from pipeline.study.context import Context
from pipeline.study.fits import spread, with_average
from pipeline.study.folder import PlannedRun, StudyError
from pipeline.study.point_counts import ended_points
from pipeline.study.target import find_target
from training.schedule import learning_rates


@dataclass(frozen=True)
class Place:
    """A confirmation run without its seed."""

    model: str
    """Name of the model."""
    domain_ratio: float
    """Ratio of the domain."""
    steps: int
    """Length of its continual phase."""


def confirmation_plan(
    context: Context, keys: Sequence[str], places: Callable[[Question, Recommendation], list[Place]]
) -> list[PlannedRun]:
    """The runs that confirm a recommendation, at the recommended place and around it.

    `places` gives the recommended place first; `keys` as in `answer_to`.

    Raises:
        StudyError: as `answer_to`.
        ConfigError: a corpus too short for these runs.
    """
    recommendation = answer_to(context, keys)
    fitted = {run.spec.hash for run in context.plan if run.role == "fit"}
    context = context.asking(with_peak(context.question, recommendation.peak_learning_rate))
    return confirmation_runs(context, places(context.question, recommendation), fitted)


def answer_to(context: Context, keys: Sequence[str]) -> Recommendation:
    """The recommendation of a study, which answers the same question in `keys` of the goal.

    Raises:
        StudyError: there is no recommendation, or one of another question, or it found no answer.
    """
    question, study = context.question, context.study
    recommendation, path = Recommendation.read(study), Recommendation.path(study)
    changed = {}
    for name in ("kind", *keys):
        answered, value = (getattr(goal, name) for goal in (recommendation.goal, question.goal))
        if answered != value:
            changed[f"goal.{name}"] = (answered, value)
    if changed:
        own, other = (" ".join(f"{key}={pair[side]}" for key, pair in changed.items()) for side in (0, 1))
        raise StudyError(
            f"{path}: answers {own}, but {other} is asked; give {own} to confirm that answer, or run cptlaw recommend "
            f"{study.folder} {other} before"
        )
    averaged = list(dict.fromkeys(law for of_law in recommendation.weights.values() for law in of_law))
    if absent := [law for law in averaged if law not in question.law]:
        raise StudyError(
            f"{path}: the average of {', '.join(averaged)} answers, but {', '.join(absent)} is not among the laws of "
            f"this command; give law=[{','.join(averaged)}] to it, or run cptlaw recommend {study.folder} before"
        )
    if recommendation.mixture is None:
        raise StudyError(f"nothing to confirm: {recommendation.binding}; change the goal, and run cptlaw recommend")
    if question.corpora.domain not in recommendation.mixture:
        raise StudyError(f"{path}: of another question; run cptlaw recommend again")
    return recommendation


def imported_runs(context: Context, keys: Sequence[str]) -> list[PlannedRun]:
    """The confirmation runs that were trained elsewhere, those nearest to the recommended ratio first.

    Raises:
        StudyError: as `answer_to`; there are none; or one has other learning rates, or another batch, than the
            recommended run, so that nothing is predicted for it.
    """
    recommendation, study = answer_to(context, keys), context.study
    question = with_peak(context.question, recommendation.peak_learning_rate)
    domain, runs = question.corpora.domain, [run for run in context.plan if run.role == "confirm"]
    assert recommendation.mixture is not None
    ratio = recommendation.mixture[domain]
    if not runs:
        raise StudyError(
            f"{study.folder}: no run to confirm with; cptlaw export {study.folder} writes the recommended one for your "
            f"trainer (domain_ratio={ratio:.3f}); then cptlaw import LOG name={study.folder.name} role=confirm ..."
        )
    wanted = pieces(question.continual)
    for run in runs:
        spec = run.spec
        rates, asked = (learning_rates(schedule, spec.steps) for schedule in (spec.schedule, wanted))
        if not np.allclose(rates, asked, rtol=1e-6, atol=0.0):
            peaks = f"peak {max(rates):g}, recommended {max(asked):g}"
            raise StudyError(f"{run.name}: its learning rates are not those of the recommended run ({peaks})")
        if spec.tokens_per_step != question.tokens_per_step():
            tokens = f"{spec.tokens_per_step:,}, recommended {question.tokens_per_step():,}"
            raise StudyError(f"{run.name}: tokens_per_step={tokens}")
    return sorted(runs, key=lambda run: abs(float(Fraction(run.spec.mixture[domain])) - ratio))


def ratios(question: Question, recommendation: Recommendation) -> list[float]:
    """The recommended domain ratio, and those around it: `confirm.around`, or one at `confirm.neighbour`."""
    assert recommendation.mixture is not None
    ratio, confirm = recommendation.mixture[question.corpora.domain], question.confirm
    if confirm.around:
        around = (round(ratio + distance, 3) for distance in confirm.around)
        return [ratio, *(other for other in dict.fromkeys(around) if 0 <= other <= 1)]
    distance = confirm.neighbour
    return [ratio, round(ratio - distance if ratio >= distance else ratio + distance, 3)] if distance else [ratio]


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


def compare(
    context: Context,
    runs: list[PlannedRun],
    outcome: Callable[[Question, Recommendation, list[ConfirmationRow]], Outcome],
) -> Confirmation:
    """Every law's prediction for the end of each place beside the mean over its seeds; writes confirmation.json."""
    study, points, tested = context.study, context.points, context.tested
    recommendation = Recommendation.read(study)
    question = with_peak(context.question, recommendation.peak_learning_rate)
    answering = with_average(context.fits, recommendation.weights)
    by_place: dict[tuple, list[PlannedRun]] = {}
    for run in runs:
        # Runs of a place differ in their seed alone.
        by_place.setdefault((run.model, run.spec.steps, tuple(run.spec.mixture.items())), []).append(run)
    rows = []
    for place in by_place.values():
        run = place[0]
        target = find_target(question, points, run.model).lasting(run.spec.steps)
        for corpus in (question.corpora.general, question.corpora.domain):
            ends = _ends(points, place, corpus)
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
                interval = fit.predict_interval(frame, 0.9, spread(tested, corpus, fit, target.N, target.D))
                predicted, low, high = (float(side[0]) for side in (fit.predict(frame), *interval))
                rows.append(
                    ConfirmationRow(
                        run=run.name, model=run.model, N=target.N, D=target.D, steps=target.steps, corpus=corpus,
                        law=law, recommended=law == recommendation.law[corpus], predicted=predicted, low=low, high=high,
                        relative_error=predicted / measured - 1, inside=low <= measured <= high, **seen,
                    )
                )  # fmt: skip
    known = sum(ended_points(study, context.plan).values())
    confirmation = Confirmation(0.9, rows, outcome(question, recommendation, rows), points=known)
    confirmation.write(study)
    return confirmation


def _ends(points: pd.DataFrame, runs: Sequence[PlannedRun], corpus: str) -> pd.DataFrame:
    """The last loss of each run on a corpus, in their order."""
    ends = []
    for run in runs:
        end = points[(points["run"] == run.name) & (points["corpus"] == corpus) & (points["step"] == run.spec.steps)]
        if end.empty:
            raise StudyError(f"{run.name}: has not ended; run cptlaw confirm")
        ends.append(end.iloc[:1])
    return pd.concat(ends)
