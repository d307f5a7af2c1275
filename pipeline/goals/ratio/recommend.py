"""From fits to an answer: which law to trust, which mixture, which losses to expect."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from fitting import Fit, PointsError
from fitting.fitted import BY_PRIOR
from fitting.law_average import AVERAGE
from fitting.uncertainty.misfit import extrapolation
from pipeline.goals.ratio.mixture_changes import LAW, change_lines, mixture_changes
from pipeline.goals.ratio.solvers import AnsweringLaws, Solve
from pipeline.question.design import peak_of, with_peak
from pipeline.question.phases import pieces
from pipeline.question.schema import Question
from pipeline.study.artifacts import HeldOutError, Interval, LawAnswer, PredictedLoss, Recommendation, RecommendedRun
from pipeline.study.collect import schedules
from pipeline.study.context import Context
from pipeline.study.fits import weights, with_average
from pipeline.study.folder import PlannedRun
from pipeline.study.target import find_target
from training.schedule import learning_rates


def recommend(context: Context, solve: Solve) -> Recommendation:
    """Answer the question's goal and write recommendation.json.

    Each corpus is answered for by the average of the laws, weighted by their errors on held-out points; by the first
    law where nothing could be held out.

    Raises:
        StudyError: the loss before the continual phase of a model that is asked about was not measured.
        PointsError: the laws that answer cannot be asked this.
    """
    question, points, fits = context.question, context.points, context.fits
    general, domain = context.corpora
    unfitted = [name for name in question.law if name not in fits[general]]
    question = with_tried_peaks(question.with_laws(fits), context.plan)
    tested = context.tested
    target = find_target(question, points)
    kinds = {
        corpus: extrapolation(next(iter(of_law.values())).ranges, target.N, target.D) for corpus, of_law in fits.items()
    }
    weight = {corpus: weights(tested, corpus, kind) for corpus, kind in kinds.items()} if len(question.law) > 1 else {}
    errors = tested.assign(error=tested["relative_error"].abs()).groupby(["corpus", "split", "law"])["error"]
    errors = errors.agg(mean_error="mean", max_error="max", points="size")
    corpora = (general, domain)
    law = {corpus: AVERAGE if weight.get(corpus) else next(iter(question.law)) for corpus in corpora}
    answer = solve(laws := AnsweringLaws(question, points, with_average(fits, weight), law, tested))
    at_answer = laws if answer.peak is None else laws.at_peak(answer.peak)
    alone = {name: _alone(replace(at_answer, law=dict.fromkeys(law, name)), solve) for name in question.law}
    run = answer.target
    warnings = _by_corpus(answer.warnings, {"general": general, "domain": domain, "fit": domain})
    if not answer.identified:
        warnings.insert(0, "the points do not say where the optimum is: its interval is all that was asked")
    if unfitted:
        warnings.append(f"{', '.join(unfitted)}: left out, cptlaw fit says why")
    if tested.empty:
        warnings.append("no law could be tested on held-out runs; the first one was taken")
    for corpus in corpora:
        if weight.get(corpus) and (left := [name for name in question.law if name not in weight[corpus]]):
            warnings.append(
                f"{', '.join(left)} on {corpus}: not in the average, since no run could be held out of them"
            )
        for name in weight.get(corpus) or [law[corpus]]:
            if lines := _not_identified(fits[corpus][name]):
                warnings.append(f"{name} on {corpus}: {lines} (docs/laws.md)")
    changes = mixture_changes(at_answer) if question.goal.change_at and LAW in question.law else []
    if question.goal.change_at and LAW not in question.law:
        warnings.append(f"goal.change_at: not answered, since {LAW} could not be fitted")
    warnings += change_lines(question, changes)
    # Down, so that the mixture that is run stays within the tolerance.
    ratio = None if answer.domain_ratio is None else math.floor(answer.domain_ratio * 1000) / 1000
    recommendation = Recommendation(
        goal=question.goal,
        law=law,
        weights=weight,
        target=RecommendedRun(run.model, run.N, run.D, run.steps),
        loss_before=run.before,
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
        answers=alone,
        peak_learning_rate=answer.peak,
        fit_points={corpus: {name: fit.n_points for name, fit in of_law.items()} for corpus, of_law in fits.items()},
        changes=changes,
    )
    recommendation.write(context.study)
    return recommendation


def _not_identified(fit: Fit) -> str:
    """The parameters that the points leave open, and those of them that the prior decides; empty: none."""
    left = [name for name, known in fit.identified.items() if not known]
    by_prior = [name for name in left if fit.prior_shares.get(name, 0.0) >= BY_PRIOR]
    return "; ".join(
        f"{words}: {', '.join(names)}"
        for words, names in (("not identified", left), ("of these decided by the prior", by_prior))
        if names
    )


def with_tried_peaks(question: Question, plan: Sequence[PlannedRun]) -> Question:
    """The question with those of `design.peaks` that one of the longest runs for the fit has.

    The laws extrapolate badly in peak and length at once (docs/negative-results.md). Without a run of the target's
    model the runs of all models count; without any run the question stays as it is.
    """
    schedule_of, runs = schedules(plan), [run for run in plan if run.role == "fit"]
    of_target = [run for run in runs if run.model == question.model.name]
    rates = [schedule_of[run.name].rates for run in of_target or runs]
    steps = max(map(len, rates), default=0)
    peaks = [float(curve.max()) for curve in rates if len(curve) == steps]

    def has_run(factor: float) -> bool:
        phase = with_peak(question, peak_of(question, factor)).continual
        peak = float(learning_rates(pieces(phase), steps).max())
        return any(math.isclose(peak, of_run) for of_run in peaks)

    factors = [factor for factor in question.design.peaks if runs and has_run(factor)]
    return replace(question, design=replace(question.design, peaks=factors)) if factors else question


def _alone(laws: AnsweringLaws, solve: Solve) -> LawAnswer:
    """What one law answers for both corpora, or why it cannot."""
    try:
        answer = solve(laws)
    except PointsError as error:
        return LawAnswer(None, None, None, str(error), None)
    return LawAnswer(answer.domain_ratio, answer.low, answer.high, answer.binding, answer.target.model)


def _by_corpus(warnings: list[str], names: dict[str, str]) -> list[str]:
    """The fitter's warnings with the corpora's own names, and one line where both laws are warned of the same."""
    merged: dict[str, list[str]] = {}
    for warning in warnings:
        kind, _, rest = warning.partition(": ")
        merged.setdefault(rest, []).append(names.get(kind, kind))
    return [f"{', '.join(corpora)}: {rest}" for rest, corpora in merged.items()]
