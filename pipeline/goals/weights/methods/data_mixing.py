"""Data mixing laws: an exponential of the weights for each domain's loss, fitted to random mixtures."""

from __future__ import annotations

import dataclasses

from fitting import best_mixture, fit
from pipeline.goals.weights.artifacts import Proposal
from pipeline.goals.weights.mixtures import domain_names, domain_values, largest_weights
from pipeline.goals.weights.random_mixtures import (
    RandomMethod,
    at_target,
    finished_mixtures,
    last_points,
    law_proposal,
    points_of,
)
from pipeline.study.context import Context


def _propose(context: Context) -> list[Proposal]:
    """The mixture that minimises the average of the fitted laws (Ye et al. 2024, arXiv:2403.16952)."""
    question, runs = context.question, finished_mixtures(context)
    points = last_points(points_of(context, runs))
    fits = {
        domain: fit(points[points["corpus"] == domain], "data-mixing", seed=0, bootstrap=question.bootstrap)
        for domain in domain_names(context)
    }
    high = largest_weights(context, question.weights.target)
    answer = best_mixture(fits, domain_values(question), high=high, average=question.weights.average)
    numbers = {"steps": question.weights.scales[0]}
    proposal = law_proposal("data-mixing", context, runs, fits, answer, [], numbers)
    return [dataclasses.replace(proposal, predicted=at_target(context, proposal.predicted))]


DATA_MIXING = RandomMethod(_propose)
"""Needs a few more mixtures than domains. Run length is no input: the weights are those of the search scale."""
