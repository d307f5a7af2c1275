"""Data mixing laws: an exponential of the shares for each domain's loss, fitted to random mixtures."""

from __future__ import annotations

from pipeline.mixture_weights.artifacts import Details, Proposal
from pipeline.mixture_weights.methods.ddo import taken
from pipeline.mixture_weights.proposal import Method
from pipeline.mixture_weights.random_mixtures import at_the_end, points_of, random_count, random_runs, searched
from pipeline.mixture_weights.setting import Measured, Setting, worth
from pipeline.mixture_weights.token_supply import largest_shares
from pipeline.study.folder import PlannedRun


def _runs(setting: Setting, measured: Measured) -> list[PlannedRun]:
    return random_runs(setting)


def _propose(setting: Setting, measured: Measured) -> list[Proposal]:
    """The mixture at which the mean of the fitted laws is least (Ye et al. 2024, arXiv:2403.16952)."""
    from fitting import best_mixture, fit

    question, domains = setting.question, setting.domains
    runs = searched(setting, measured)
    points = at_the_end(points_of(measured, runs))
    fits = {
        domain: fit(points[points["corpus"] == domain], "data-mixing", seed=0, bootstrap=question.bootstrap)
        for domain in domains
    }
    high = largest_shares(setting, question.weights.target)
    answer = best_mixture(fits, worth(question), high=high, average=question.weights.average)
    fitted = {name: {"params": one.params, "r2": one.metrics["r2"]} for name, one in fits.items()}
    return [
        Proposal(
            method="data-mixing",
            weights={domain: answer[domain] for domain in domains},
            low={domain: answer.values[domain].low for domain in domains} if question.bootstrap else {},
            high={domain: answer.values[domain].high for domain in domains} if question.bootstrap else {},
            predicted={"mean": answer["mean"], **{name: one.value for name, one in answer.predicted.items()}},
            lines=(answer.binding, *answer.warnings),
            details=Details(numbers={"fits": fitted, "steps": question.weights.scales[0]}),
            **taken(runs),
        )
    ]


DATA_MIXING = Method(_runs, _propose, random_count)
"""Needs as many mixtures as domains and a few; knows nothing of length: weights are those of the search scale."""
