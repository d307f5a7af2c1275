"""How much evaluation a run can afford: `evaluation_budget` is the largest part of its FLOPs that evaluation takes."""

import dataclasses

import numpy as np

from pipeline.question.design import candidate_lengths
from pipeline.question.schema import Question
from training.evaluation_steps import EvaluationPolicy, evaluation_steps
from training.spec import RunSpec

MOST_WINDOWS, LEAST_WINDOWS = 96, 16
FEWEST = 10
"""Evaluations of the shortest run that the number of windows leaves room for."""


def affordable_windows(question: Question) -> int:
    """Validation windows per corpus with which the shortest continual run can be evaluated `FEWEST` times."""
    # No more than this is known of a design of kind auto before the goal is checked.
    chosen = question.design.kind != "grid" and not question.mixture.domain_ratio
    lengths = [part * question.target.steps for part in candidate_lengths(question) if chosen]
    steps = min(lengths, default=question.continual.steps)
    corpora = len(question.corpora.sources) if question.goal_kind.many_domains else 2
    sequences = _evaluated_sequences(steps * question.continual.global_batch, question.evaluation_budget)
    return int(np.clip(sequences / (corpora * FEWEST), LEAST_WINDOWS, MOST_WINDOWS))


def within_budget(spec: RunSpec, budget: float) -> RunSpec:
    """The run, evaluated at as many steps of its policy as `budget`, a part of its FLOPs, allows.

    First and last step always stay, and a list of steps (policy explicit) as it is. Those between are taken evenly from
    the policy's own: where it is dense, so is the result.
    """
    if spec.evaluation.policy == "explicit":
        return spec
    planned = evaluation_steps(spec.evaluation, spec.steps)
    affordable = _evaluated_sequences(spec.steps * spec.global_batch, budget)
    count = max(affordable / (spec.validation_windows * len(spec.corpora)), 2)
    if len(planned) <= count:
        return spec
    kept = np.round(np.linspace(0, len(planned) - 1, int(count))).astype(int)
    policy = EvaluationPolicy("explicit", steps=tuple(planned[number] for number in kept))
    return dataclasses.replace(spec, evaluation=policy)


def _evaluated_sequences(trained: float, budget: float) -> float:
    """Sequences that may be evaluated in a run that trains on so many; a forward pass is a third of a step."""
    return np.inf if budget >= 1 else 3 * trained * budget / (1 - budget)
