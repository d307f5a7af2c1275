"""From fits to an answer: which law to trust, which mixture, which losses to expect."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd

from fitting import Fit, PointsError
from pipeline.answers.solvers import Asked, Solve
from pipeline.question.schema import Question
from pipeline.study.artifacts import HeldOutError, Interval, LawAnswer, PredictedLoss, Recommendation, RecommendedRun
from pipeline.study.fits import read_back_test
from pipeline.study.folder import Study


def recommend(
    study: Study, question: Question, points: pd.DataFrame, fits: dict[str, dict[str, Fit]], solve: Solve
) -> Recommendation:
    """Answer the question's goal and write recommendation.json.

    Each corpus is answered for by the law that predicts its held-out points best.

    Raises:
        StudyError: the loss before the continual phase of a model that is asked about was not measured.
        PointsError: the laws that answer cannot be asked this.
    """
    general, domain = question.corpora.general, question.corpora.domain
    tested = read_back_test(study)
    scores = score(tested)
    errors = tested.assign(error=tested["relative_error"].abs()).groupby(["corpus", "split", "law"])["error"]
    errors = errors.agg(mean_error="mean", max_error="max", points="size")
    corpora = (general, domain)
    law = {corpus: min(question.law, key=lambda name: scores.get(corpus, {}).get(name, math.inf)) for corpus in corpora}
    answer = solve(asked := Asked(question, points, fits, law, tested))
    alone = {name: _alone(replace(asked, law=dict.fromkeys(law, name)), solve) for name in question.law}
    target = answer.target
    warnings = _by_corpus(answer.warnings, {"general": general, "domain": domain, "fit": domain})
    if not answer.identified:
        warnings.insert(0, "the points do not say where the optimum is: its interval is all that was asked")
    if not scores:
        warnings.append("no law could be tested on held-out runs; the first one was taken")
    for corpus in corpora:
        unknown = [name for name, known in fits[corpus][law[corpus]].identified.items() if not known]
        if unknown:
            warnings.append(f"{law[corpus]} on {corpus}: the points do not fix {', '.join(unknown)}")
    # Down, so that the mixture that is run stays within the tolerance.
    ratio = None if answer.domain_ratio is None else math.floor(answer.domain_ratio * 1000) / 1000
    recommendation = Recommendation(
        goal=question.goal,
        law=law,
        target=RecommendedRun(target.model, target.N, target.D, target.steps),
        loss_before=target.before,
        mixture=None if ratio is None else {general: round(1 - ratio, 3), domain: ratio},
        low=answer.low,
        high=answer.high,
        predicted={corpus: PredictedLoss(*answer.predicted[corpus]) for corpus in corpora if answer.predicted},
        binding=answer.binding,
        identified=answer.identified,
        optimum={name: Interval(*estimate) for name, estimate in answer.optimum.items()},
        candidates=answer.candidates,
        warnings=warnings,
        held_out=[HeldOutError(**row) for row in errors.reset_index().to_dict("records")],  # pyright: ignore
        held_out_error=scores,
        answers=alone,
    )
    recommendation.write(study)
    return recommendation


def _alone(asked: Asked, solve: Solve) -> LawAnswer:
    """What one law answers for both corpora, or why it cannot."""
    try:
        answer = solve(asked)
    except PointsError as error:
        return LawAnswer(None, None, None, str(error), None)
    return LawAnswer(answer.domain_ratio, answer.low, answer.high, answer.binding, answer.target.model)


def score(tested: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Corpus -> law -> mean relative error on held-out points.

    Of a larger model for longer where all laws could be asked that, since it is what a recommendation asks and what its
    interval is made of (`pipeline.study.fits.spread`); otherwise over the splits, each with the same weight.
    """
    if tested.empty:
        return {}
    error = tested.assign(error=tested["relative_error"].abs())
    scores = {}
    for corpus, own in error.groupby("corpus"):
        cells = own.groupby(["law", "split"])["error"].mean().unstack("law")
        # A split that one law could not be fitted for says nothing about which is better.
        shared = cells.dropna()
        cells = shared if len(shared) else cells
        means = cells[cells.index == "size-and-tokens"].mean() if "size-and-tokens" in cells.index else cells.mean()
        scores[str(corpus)] = {str(law): float(value) for law, value in means.items() if np.isfinite(value)}
    return scores


def _by_corpus(warnings: list[str], names: dict[str, str]) -> list[str]:
    """The fitter's warnings with the corpora's own names, and one line where both laws are warned of the same."""
    merged: dict[str, list[str]] = {}
    for warning in warnings:
        kind, _, rest = warning.partition(": ")
        merged.setdefault(rest, []).append(names.get(kind, kind))
    return [f"{', '.join(corpora)}: {rest}" for rest, corpora in merged.items()]
