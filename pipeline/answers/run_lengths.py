"""Lengths of runs that a goal fixes by its tokens or by its FLOPs."""

from __future__ import annotations

import math

from pipeline.question.goal import tokens_per_step
from pipeline.question.schema import Question

LONGEST = 20.0
"""How many times the domain's tokens a run may have, unless goal.most_tokens is given."""


def limited_steps(question: Question, domain_ratio: float) -> int:
    """Steps of a run that reads `goal.domain_tokens` at a domain ratio, and no token twice."""
    assert question.goal.domain_tokens is not None
    return max(1, math.floor(question.goal.domain_tokens / (domain_ratio * tokens_per_step(question))))


def most_tokens(question: Question) -> float:
    """Tokens of the longest run that may be recommended."""
    assert question.goal.domain_tokens is not None
    return question.goal.most_tokens or LONGEST * question.goal.domain_tokens


def compute_steps(question: Question, N: float) -> int:
    """Steps of a run of `goal.flops` with N billions of non-embedding parameters: C = 6 N D."""
    assert question.goal.flops is not None
    return max(1, round(question.goal.flops / (6e9 * N * tokens_per_step(question))))
