"""Confirmation runs, which no fit has seen, and the predictions of every law for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fitting import Fit
from pipeline.plan.runs import continual_run, pretraining_run
from pipeline.plan.token_supply import supply_problems
from pipeline.question.messages import ConfigError
from pipeline.question.presets import models
from pipeline.question.schema import Question
from pipeline.study.artifacts import Confirmation, ConfirmationRow, Outcome, Recommendation
from pipeline.study.fits import log_errors, read_back_test
from pipeline.study.folder import PlannedRun, Study, StudyError
from pipeline.study.target import find_target, lasting, target_columns
from training.corpora.manifest import Manifest


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
    question: Question,
    study: Study,
    manifest: Manifest,
    precision: str,
    keys: Sequence[str],
    places: Callable[[Question, Recommendation], list[Place]],
) -> list[PlannedRun]:
    """The runs that confirm a recommendation, at the recommended place and around it.

    Args:
        question: the question.
        study: with the recommendation.
        manifest: the prepared corpora.
        precision: fp32 or bf16.
        keys: of the goal, in which question and recommendation must agree.
        places: of a question and a recommendation, the recommended one first.

    Raises:
        StudyError: there is no recommendation, or one of another question, or it found no answer.
        ConfigError: a corpus too short for these runs.
    """
    recommendation, path = Recommendation.read(study), Recommendation.path(study)
    for name in ("kind", *keys):
        answered, value = (getattr(goal, name) for goal in (recommendation.goal, question.goal))
        if answered != value:
            raise StudyError(f"{path}: of goal.{name}={answered}, not {value}; run cptlaw recommend again")
    if recommendation.mixture is None:
        raise StudyError(f"nothing to confirm: {recommendation.binding}; ask for a larger goal.tolerance")
    if question.corpora.domain not in recommendation.mixture:
        raise StudyError(f"{path}: of another question; run cptlaw recommend again")
    return confirmation_runs(question, places(question, recommendation), manifest, precision)


def ratios(question: Question, recommendation: Recommendation) -> list[float]:
    """The recommended domain ratio, and those around it: `confirm.around`, or one at `confirm.neighbour`."""
    assert recommendation.mixture is not None
    ratio, confirm = recommendation.mixture[question.corpora.domain], question.confirm
    if confirm.around:
        around = (round(ratio + distance, 3) for distance in confirm.around)
        return [ratio, *(other for other in dict.fromkeys(around) if 0 <= other <= 1)]
    distance = confirm.neighbour
    return [ratio, round(ratio - distance if ratio >= distance else ratio + distance, 3)] if distance else [ratio]


def confirmation_runs(
    question: Question, asked: Sequence[Place], manifest: Manifest, precision: str
) -> list[PlannedRun]:
    """The runs of some places, over `confirm.seeds`.

    Raises:
        ConfigError: a corpus too short for them.
    """
    ladder, target = models(question)
    known = {model.name: model for model in [*ladder, target]}
    pretraining = {
        name: pretraining_run(question, known[name], manifest, precision)
        for name in dict.fromkeys(place.model for place in asked)
        if not known[name].path
    }
    runs = [
        continual_run(
            question, known[place.model], place.domain_ratio, place.steps, question.seed + number, "confirm",
            pretraining, manifest, precision,
        )
        for number in range(question.confirm.seeds)
        for place in asked
    ]  # fmt: skip
    if problems := list(supply_problems(runs, manifest, question)):
        raise ConfigError(problems)
    return runs


def compare(
    study: Study,
    question: Question,
    runs: list[PlannedRun],
    points: pd.DataFrame,
    fits: dict[str, dict[str, Fit]],
    outcome: Callable[[Question, Recommendation, list[ConfirmationRow]], Outcome],
) -> Confirmation:
    """Every law's prediction for the end of each place beside the mean over its seeds; writes confirmation.json.

    Returns:
        What was written.

    Raises:
        StudyError: a confirmation run has not ended.
    """
    recommendation = Recommendation.read(study)
    tested = read_back_test(study)
    by_place: dict[tuple, list[PlannedRun]] = {}
    for run in runs:
        # Runs of a place differ in their seed alone.
        by_place.setdefault((run.model, run.spec.steps, tuple(run.spec.mixture.items())), []).append(run)
    rows = []
    for own in by_place.values():
        target = lasting(question, find_target(question, points, own[0].model), own[0].spec.steps)
        for corpus in (question.corpora.general, question.corpora.domain):
            measured = _ends(points, own, corpus)
            for law in question.law:
                fit = fits[corpus][law]
                frame = pd.DataFrame([{**target_columns(question, target, corpus, fit), "r": measured["r"].iloc[0]}])
                loss = float(fit.predict(frame)[0])
                interval = fit.predict_interval(frame, 0.9, log_errors(tested, law, corpus))
                low, high = (float(side[0]) for side in interval)
                found, bits = float(measured["loss"].mean()), float(measured["bits_per_byte"].mean())
                rows.append(
                    ConfirmationRow(
                        run=own[0].name,
                        model=own[0].model,
                        N=target.N,
                        D=target.D,
                        steps=target.steps,
                        domain_ratio=float(measured["ratio"].iloc[0]),
                        corpus=corpus,
                        law=law,
                        recommended=law == recommendation.law[corpus],
                        before=target.before[corpus],
                        predicted=loss,
                        low=low,
                        high=high,
                        measured=found,
                        seeds=[float(value) for value in measured["loss"]],
                        sd=float(np.std(measured["loss"], ddof=1)) if len(own) > 1 else None,
                        perplexity=math.exp(found),
                        bits_per_byte=None if math.isnan(bits) else bits,
                        relative_error=loss / found - 1,
                        inside=low <= found <= high,
                    )
                )
    confirmation = Confirmation(0.9, rows, outcome(question, recommendation, rows))
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
