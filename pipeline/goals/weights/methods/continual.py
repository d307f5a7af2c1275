"""Weights of several target domains and of general text for CPT, with a limit on the general loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.goals.weights.artifacts import Proposal
from pipeline.goals.weights.method import Method
from pipeline.goals.weights.mixtures import (
    Measured,
    base_weights,
    domain_names,
    domain_values,
    largest_weights,
    mixture_run,
)
from pipeline.goals.weights.random_mixtures import (
    finished_mixtures,
    law_proposal,
    points_of,
    random_count,
    random_runs,
)
from pipeline.study.context import Context

if TYPE_CHECKING:
    import pandas as pd


def _propose(context: Context, measured: Measured) -> list[Proposal]:
    """The mixture of lowest average loss whose predicted loss increase on general is at most goal.tolerance."""
    from fitting import PointsError, best_mixture
    from pipeline.goals.weights.surrogates import LENGTH, SURROGATES, RandomRuns, end_columns
    from pipeline.study.collect import schedules

    question, weights, general = context.question, context.question.weights, context.question.corpora.general
    runs = finished_mixtures(context, measured)
    target = mixture_run(context, base_weights(context), weights.target, question.seed).spec
    from_step = {law: question.law[law].from_step for law in SURROGATES if law in question.law}
    rates = schedules(measured.study.read_plan())
    random = RandomRuns(points_of(measured, runs), runs[0].spec, rates, from_step, question.bootstrap, question.seed)
    errors = random.held_out_errors()
    law = best_surrogate(errors, longer=target.steps > random.spec.steps)

    points = {domain: random.on(domain) for domain in domain_names(context)}
    fits = {domain: random.fit(law, part) for domain, part in points.items()}
    lengths, notes = {}, []
    if law == "data-mixing" and target.steps != random.spec.steps:
        try:
            lengths = {domain: random.fit_length(part, target) for domain, part in points.items()}
        except PointsError as reason:
            notes = [f"weights and losses are those at {random.spec.steps} steps: {LENGTH}, for the length: {reason}"]
    before = float(points[general]["loss_before"].mean())
    answer = best_mixture(
        fits,
        domain_values(question),
        limits={general: before * (1 + question.goal.tolerance)},
        high=largest_weights(context, weights.target),
        at={domain: end_columns(fits[domain], points[domain], target) for domain in domain_names(context)},
        longer=lengths,
        average=weights.average,
    )
    increase = answer.predicted[general].value / before - 1
    losses = answer.predicted.items() if question.bootstrap > 0 else ()
    lines = [
        f"{general}: its loss is predicted to change by {increase:+.1%}; allowed: {question.goal.tolerance:+.1%}",
        *selection_notes(errors, law + (f", and {LENGTH} for the length" if lengths else "")),
        *notes,
    ]
    numbers = {
        "surrogate": law,
        "length": LENGTH if lengths else None,
        "held_out": errors.astype(object).where(errors.notna(), None).to_dict("records"),
        "general_before": before,
        "tolerance": question.goal.tolerance,
        "value": domain_values(question),
        "intervals": {name: [loss.low, loss.high] for name, loss in losses},
    }
    return [law_proposal("continual", context, runs, fits, answer, lines, numbers)]


def best_surrogate(errors: pd.DataFrame, longer: bool) -> str:
    """The law with the lowest mean of `RandomRuns.held_out_errors` over the corpora, of those that fit all of them.

    Where the target is longer than the runs, the error on later steps decides.

    Raises:
        PointsError: no law could be fitted.
    """
    means = _mean_errors(errors)
    for split in ["later", "mixtures"] if longer else ["mixtures"]:
        if not (fitted := means[split].dropna()).empty:
            return str(fitted.idxmin())
    from fitting import PointsError

    raise PointsError(f"no law could be fitted to the random mixtures: {errors['reason'].iloc[0]}")


def selection_notes(errors: pd.DataFrame, law: str) -> list[str]:
    """The chosen law, the mean held-out errors of all laws, and the reasons of those that could not be fitted."""
    names = {"mixtures": "held-out mixtures", "later": "their end, from the first two thirds of the steps"}
    lines = []
    for split, means in _mean_errors(errors).items():
        listed = ", ".join(f"{name} {error:.2%}" for name, error in means.dropna().sort_values().items())
        lines.append(f"mean error on {names[str(split)]}: {listed or 'no law could be fitted'}")
    failed = errors[errors["reason"] != ""].drop_duplicates(["law", "split"])
    lines += [f"{row.law} on {row.corpus} ({row.split}): {row.reason}" for row in failed.itertuples()]
    return [f"predicted by {law}", *lines]


def _mean_errors(errors: pd.DataFrame) -> pd.DataFrame:
    """Law -> mean error over the corpora on each split, NaN where a law could not be fitted."""
    return errors.pivot_table(
        index="law", columns="split", values="error", aggfunc=lambda values: values.mean(skipna=False), dropna=False
    )[["mixtures", "later"]]


CONTINUAL = Method(lambda context, measured: random_runs(context), _propose, random_count)
"""Needs one and a half times as many mixtures as corpora, and a few: every third is held out."""
