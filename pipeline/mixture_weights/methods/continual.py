"""Shares of several target domains and of general text to continue on, with a limit on what general may lose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.mixture_weights.artifacts import Details, Proposal
from pipeline.mixture_weights.methods.ddo import taken
from pipeline.mixture_weights.proposal import Method
from pipeline.mixture_weights.random_mixtures import points_of, random_count, random_runs, searched
from pipeline.mixture_weights.setting import Measured, Setting, mixture_run, worth
from pipeline.mixture_weights.token_supply import largest_shares
from pipeline.study.folder import PlannedRun

if TYPE_CHECKING:
    import pandas as pd


def _runs(setting: Setting, measured: Measured) -> list[PlannedRun]:
    return random_runs(setting)


def _propose(setting: Setting, measured: Measured) -> list[Proposal]:
    """The mixture of least weighted loss whose loss on general is predicted to rise by goal.tolerance at most."""
    from fitting import PointsError, best_mixture
    from pipeline.mixture_weights.surrogates import LENGTH, SURROGATES, at_end, fitted, held_out, longer
    from pipeline.study.collect import schedules

    question, weights = setting.question, setting.question.weights
    runs = searched(setting, measured)
    points = points_of(measured, runs)
    rates = schedules(measured.study.read_plan())
    spec, target = runs[0].spec, mixture_run(setting, setting.base, weights.target, question.seed).spec
    from_step = {law: question.law[law].from_step for law in SURROGATES if law in question.law}
    tried = held_out(points, spec, rates, from_step, question.seed)
    law = best_surrogate(tried, longer=target.steps > spec.steps)

    own = {domain: points[points["corpus"] == domain] for domain in setting.domains}
    fits = {
        domain: fitted(law, part, rates, from_step.get(law, 0), question.bootstrap, question.seed)
        for domain, part in own.items()
    }
    stretched, unstretched = {}, []
    if law == "data-mixing" and target.steps != spec.steps:
        options = (from_step.get(LENGTH, 0), question.bootstrap, question.seed)
        try:
            stretched = {domain: longer(part, rates, spec, target, *options) for domain, part in own.items()}
        except PointsError as reason:
            unstretched = [f"weights and losses are those at {spec.steps} steps: {LENGTH}, for the length: {reason}"]
    general = question.corpora.general
    before = float(own[general]["loss_before"].mean())
    answer = best_mixture(
        fits,
        worth(question),
        limits={general: before * (1 + question.goal.tolerance)},
        high=largest_shares(setting, weights.target),
        at={domain: at_end(fits[domain], own[domain], target) for domain in setting.domains},
        longer=stretched,
        average=weights.average,
    )
    rise = answer.predicted[general].value / before - 1
    known = question.bootstrap > 0
    return [
        Proposal(
            method="continual",
            weights={domain: answer[domain] for domain in setting.domains},
            low={domain: answer.values[domain].low for domain in setting.domains} if known else {},
            high={domain: answer.values[domain].high for domain in setting.domains} if known else {},
            predicted={"mean": answer["mean"], **{name: one.value for name, one in answer.predicted.items()}},
            lines=(
                answer.binding,
                f"{general}: its loss is predicted to change by {rise:+.1%}; allowed: {question.goal.tolerance:+.1%}",
                *verdict(tried, law + (f", and {LENGTH} for the length" if stretched else "")),
                *unstretched,
                *answer.warnings,
            ),
            details=Details(
                numbers={
                    "surrogate": law,
                    "length": LENGTH if stretched else None,
                    "held_out": tried.astype(object).where(tried.notna(), None).to_dict("records"),
                    "general_before": before,
                    "tolerance": question.goal.tolerance,
                    "value": worth(question),
                    "fits": {name: {"params": one.params, "r2": one.metrics["r2"]} for name, one in fits.items()},
                    "intervals": {name: [one.low, one.high] for name, one in answer.predicted.items()} if known else {},
                }
            ),
            **taken(runs),
        )
    ]


def best_surrogate(tried: pd.DataFrame, longer: bool) -> str:
    """The law with the least mean error over the corpora, of those that could be fitted to all.

    Args:
        tried: as `surrogates.held_out` returns.
        longer: whether the answer is for longer runs: the later steps then count, else the mixtures alone.
    """
    errors = _errors(tried)["later" if longer else "mixtures"].dropna()
    if errors.empty:
        errors = _errors(tried)["mixtures"].dropna()
    if errors.empty:
        from fitting import PointsError

        raise PointsError(f"no law could be fitted to the random mixtures: {tried['reason'].iloc[0]}")
    return str(errors.idxmin())


def verdict(tried: pd.DataFrame, law: str) -> list[str]:
    """What was tried on mixtures that were held out, a line for each question and for what could not be fitted."""
    told = {"mixtures": "mixtures that were held out", "later": "their end, from the first two thirds of the steps"}
    lines = []
    for asked, errors in _errors(tried).items():
        known = errors.dropna().sort_values()
        named = ", ".join(f"{name} {error:.2%}" for name, error in known.items())
        lines.append(f"mean error on {told[str(asked)]}: {named or 'no law could be fitted'}")
    failed = tried[tried["reason"] != ""].drop_duplicates(["law", "asked"])
    lines += [f"{row.law} on {row.corpus} ({row.asked}): {row.reason}" for row in failed.itertuples()]
    return [f"answered by {law}", *lines]


def _errors(tried: pd.DataFrame) -> pd.DataFrame:
    """Law -> mean error over all corpora for each question, NaN where one could not be fitted."""
    return tried.pivot_table(
        index="law", columns="asked", values="error", aggfunc=lambda errors: errors.mean(skipna=False), dropna=False
    )[["mixtures", "later"]]


CONTINUAL = Method(_runs, _propose, random_count)
"""Needs as many mixtures as corpora, half as many again to hold out, and a few."""
