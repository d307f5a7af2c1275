"""The proof: runs that no fit has seen, and what each law said of them before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fitting import Fit
from pipeline.answers.limited_data import limited_steps
from pipeline.answers.outcome import outcome_of
from pipeline.plan.runs import continual_run, pretraining_run
from pipeline.plan.token_supply import supply_problems
from pipeline.question.messages import ConfigError
from pipeline.question.presets import models
from pipeline.question.schema import Question
from pipeline.study.artifacts import Confirmation, ConfirmationRow, Recommendation
from pipeline.study.fits import log_errors, read_back_test
from pipeline.study.folder import PlannedRun, Study, StudyError
from pipeline.study.target import find_target, lasting, target_columns
from training.corpora.manifest import Manifest

GIVEN = {"limited-data": ("domain_tokens",), "compute": ("flops", "domain_ratio")}
"""goal.kind -> keys that its confirmation must have in common with its recommendation."""


@dataclass(frozen=True)
class Place:
    """What is run to prove an answer, over `confirm.seeds`."""

    model: str
    """Name of the model."""
    share: float
    """Share of the domain."""
    steps: int
    """Length."""


def confirmation_plan(question: Question, study: Study, manifest: Manifest, precision: str) -> list[PlannedRun]:
    """The runs at the answer and around it: of compute every model, else the shares of `confirm.around`.

    Raises:
        StudyError: there is no recommendation, or one of another question, or it found no answer.
        ConfigError: a corpus too short for these runs.
    """
    recommendation, path = Recommendation.read(study), Recommendation.path(study)
    for name in ("kind", *GIVEN.get(question.goal.kind, ())):
        answered, value = (getattr(goal, name) for goal in (recommendation.goal, question.goal))
        if answered != value:
            raise StudyError(f"{path}: of goal.{name}={answered}, not {value}; run cptlaw recommend again")
    if recommendation.mixture is None:
        raise StudyError(f"nothing to confirm: {recommendation.binding}; ask for a larger goal.tolerance")
    if question.corpora.domain not in recommendation.mixture:
        raise StudyError(f"{path}: of another question; run cptlaw recommend again")
    return confirmation_runs(question, places(question, recommendation), manifest, precision)


def places(question: Question, recommendation: Recommendation) -> list[Place]:
    """What is run: the answer first."""
    assert recommendation.mixture is not None
    target, share = recommendation.target, recommendation.mixture[question.corpora.domain]
    if question.goal.kind == "compute":
        rows = [Place(row.model, round(row.domain_ratio, 3), row.steps) for row in recommendation.candidates]
        return sorted(rows, key=lambda place: place.model != target.model)
    shares = [share, *_around(question, share)]
    if question.goal.kind == "limited-data":
        return [Place(target.model, own, limited_steps(question, own)) for own in shares if own > 0]
    steps = round(question.continual.steps * question.confirm.tokens_factor)
    return [Place(target.model, own, steps) for own in shares]


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
            question, known[place.model], place.share, place.steps, question.seed + number, "confirm", pretraining,
            manifest, precision,
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
    confirmation = Confirmation(0.9, rows, outcome_of(question, recommendation, rows))
    confirmation.write(study)
    return confirmation


def _around(question: Question, share: float) -> list[float]:
    confirm = question.confirm
    if confirm.around:
        found = (round(share + distance, 3) for distance in confirm.around)
        return [own for own in dict.fromkeys(found) if 0 <= own <= 1]
    distance = confirm.neighbour
    return [round(share - distance if share >= distance else share + distance, 3)] if distance else []


def _ends(points: pd.DataFrame, runs: Sequence[PlannedRun], corpus: str) -> pd.DataFrame:
    """The last loss of each run on a corpus, in their order."""
    ends = []
    for run in runs:
        end = points[(points["run"] == run.name) & (points["corpus"] == corpus) & (points["step"] == run.spec.steps)]
        if end.empty:
            raise StudyError(f"{run.name}: has not ended; run cptlaw confirm")
        ends.append(end.iloc[:1])
    return pd.concat(ends)
