"""Data mixing laws: an exponential of the weights for each domain's loss, fitted to random mixtures."""

from __future__ import annotations

import dataclasses

from pipeline.mixture_weights.artifacts import Proposal
from pipeline.mixture_weights.method import Method
from pipeline.mixture_weights.random_mixtures import (
    at_target,
    finished_mixtures,
    last_points,
    law_proposal,
    points_of,
    random_count,
    random_runs,
)
from pipeline.mixture_weights.setting import Measured, Setting, domain_values, largest_weights


def _propose(setting: Setting, measured: Measured) -> list[Proposal]:
    """The mixture that minimises the average of the fitted laws (Ye et al. 2024, arXiv:2403.16952)."""
    from fitting import best_mixture, fit

    question = setting.question
    runs = finished_mixtures(setting, measured)
    points = last_points(points_of(measured, runs))
    fits = {
        domain: fit(points[points["corpus"] == domain], "data-mixing", seed=0, bootstrap=question.bootstrap)
        for domain in setting.domains
    }
    high = largest_weights(setting, question.weights.target)
    answer = best_mixture(fits, domain_values(question), high=high, average=question.weights.average)
    numbers = {"steps": question.weights.scales[0]}
    proposal = law_proposal("data-mixing", setting, runs, fits, answer, [], numbers)
    return [dataclasses.replace(proposal, predicted=at_target(setting, proposal.predicted))]


DATA_MIXING = Method(lambda setting, measured: random_runs(setting), _propose, random_count)
"""Needs a few more mixtures than domains. Run length is no input: the weights are those of the search scale."""
