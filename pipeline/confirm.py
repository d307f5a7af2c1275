"""The proof: runs that no fit has seen, and what each law said of them before."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from fitting import Fit
from pipeline.answer_file import read_recommendation
from pipeline.fits import log_errors, read_back_test
from pipeline.plan import confirmation_runs
from pipeline.recommend import find_target, target_columns
from pipeline.schema import Question
from pipeline.study import PlannedRun, Study, StudyError
from training.manifest import Manifest


def confirmation_plan(question: Question, study: Study, manifest: Manifest, precision: str) -> list[PlannedRun]:
    """The runs at the recommended domain share and at its neighbour.

    Raises:
        StudyError: there is no recommendation, or it found no share.
        ConfigError: a corpus too short for these runs.
    """
    recommendation = read_recommendation(study)
    if recommendation["mixture"] is None:
        raise StudyError(f"nothing to confirm: {recommendation['binding']}; ask for a larger goal.tolerance")
    if question.corpora.domain not in recommendation["mixture"]:
        path = study.folder / study.answer("recommendation.json")
        raise StudyError(f"{path}: of another question; run cptlaw recommend again")
    share = float(recommendation["mixture"][question.corpora.domain])
    shares = [share]
    if distance := question.confirm.neighbour:
        shares.append(round(share - distance if share >= distance else share + distance, 3))
    return confirmation_runs(question, shares, manifest, precision)


def add_to_plan(study: Study, runs: list[PlannedRun]) -> list[PlannedRun]:
    """Put runs behind those that are planned already; returns the whole plan."""
    plan = study.read_plan()
    known = {run.spec.hash for run in plan}
    plan = [*plan, *(run for run in runs if run.spec.hash not in known)]
    study.write_plan(plan)
    return plan


def compare(
    study: Study,
    question: Question,
    runs: list[PlannedRun],
    points: pd.DataFrame,
    fits: dict[str, dict[str, Fit]],
) -> list[dict[str, Any]]:
    """Every law's prediction for the end of each confirmation run beside the measurement; writes confirmation.json.

    Raises:
        StudyError: a confirmation run has not ended.
    """
    recommendation = read_recommendation(study)
    target = find_target(question, points)
    tested = read_back_test(study)
    rows = []
    for run in runs:
        for corpus in (question.corpora.general, question.corpora.domain):
            measured = points[
                (points["run"] == run.name) & (points["corpus"] == corpus) & (points["step"] == run.spec.steps)
            ]
            if measured.empty:
                raise StudyError(f"{run.name}: has not ended; run cptlaw confirm")
            for law in question.law:
                fit = fits[corpus][law]
                at = target_columns(question, target, corpus, fit)
                frame = pd.DataFrame([{**at, "r": measured["r"].iloc[0]}])
                loss = float(fit.predict(frame)[0])
                low, high = (
                    float(side[0]) for side in fit.predict_interval(frame, 0.9, log_errors(tested, law, corpus))
                )
                found, bits = float(measured["loss"].iloc[0]), float(measured["bits_per_byte"].iloc[0])
                rows.append(
                    {
                        "run": run.name,
                        "model": run.model,
                        "domain_share": float(measured["ratio"].iloc[0]),
                        "corpus": corpus,
                        "law": law,
                        "recommended": law == recommendation["law"][corpus],
                        "predicted": loss,
                        "low": low,
                        "high": high,
                        "measured": found,
                        "perplexity": math.exp(found),
                        "bits_per_byte": None if math.isnan(bits) else bits,
                        "relative_error": loss / found - 1,
                        "inside": low <= found <= high,
                    }
                )
    study.write_json(study.answer("confirmation.json"), {"level": 0.9, "confirmations": rows})
    return rows
