"""What a goal asks: what is wrong with its keys, how long its runs are, and where its answer lies."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pipeline.question.schema import Question

KINDS = ("trade-off", "limited-data", "compute", "weights")
REACH = 20.0
"""Of limited-data: how many times the domain's tokens a run may have, unless goal.most_tokens says otherwise."""

LEAST_FLOPS = 1e9
"""As `fitting.compute_optimal` has it, which would load scipy."""


def goal_problems(question: Question) -> Iterator[str]:
    """A line for each key of the goal, and of its confirmation, that has a value which cannot be."""
    goal, confirm = question.goal, question.confirm
    if goal.kind not in KINDS:
        yield f"goal.kind: {goal.kind!r}; allowed: {', '.join(KINDS)}"
    if not 0 < goal.tolerance < 10:
        yield f"goal.tolerance: {goal.tolerance}; allowed: above 0, 0.03 is 3%"
    if goal.domain_ratio is not None and not 0 < goal.domain_ratio <= 1:
        yield f"goal.domain_ratio: {goal.domain_ratio}; allowed: above 0, up to 1, or null: goal.tolerance decides"
    if goal.kind == "limited-data":
        yield from _limited_problems(question)
    if goal.kind == "compute":
        if not _above(goal.flops, LEAST_FLOPS - 1):
            given = f"goal.flops: {_shown(goal.flops)} with goal.kind=compute"
            yield f"{given}; allowed: {LEAST_FLOPS:g} or more, operations of the phase, like 5e19"
        if len({*question.ladder, question.model.name}) < 2:
            yield "goal.kind: 'compute' with one model; allowed: two or more, ladder=[...]"
    if confirm.tokens_factor <= 0:
        yield f"confirm.tokens_factor: {confirm.tokens_factor}; allowed: above 0"
    if confirm.seeds < 1:
        yield f"confirm.seeds: {confirm.seeds}; allowed: 1 or more"
    for distance in confirm.around:
        if not 0 < abs(distance) < 1:
            yield f"confirm.around: {distance}; allowed: distances of a share, between -1 and 1 and not 0"


def goal_folder(question: Question) -> str:
    """Folder of the goal's answer below that of its domain: a study may be asked several, which share runs and fits."""
    if question.goal.kind in ("trade-off", "weights"):
        return ""
    # Beside the folders of the domains, where there are several.
    return question.goal.kind if question.corpora.domains else f"answers/{question.goal.kind}"


def tokens_a_step(question: Question) -> int:
    """Tokens of a step of the continual phase."""
    phase = question.continual
    return phase.global_batch * (phase.sequence_length or question.sequence_length)


def limited_steps(question: Question, share: float) -> int:
    """Steps of a run that reads `goal.domain_tokens` at a share of the domain, and no token twice."""
    assert question.goal.domain_tokens is not None
    return max(1, math.floor(question.goal.domain_tokens / (share * tokens_a_step(question))))


def most_tokens(question: Question) -> float:
    """Tokens of the longest run that limited-data may ask for."""
    assert question.goal.domain_tokens is not None
    return question.goal.most_tokens or REACH * question.goal.domain_tokens


def compute_steps(question: Question, N: float) -> int:
    """Steps of a run of `goal.flops` with N billions of non-embedding parameters: C = 6 N D."""
    assert question.goal.flops is not None
    return max(1, round(question.goal.flops / (6e9 * N * tokens_a_step(question))))


def _limited_problems(question: Question) -> Iterator[str]:
    goal, least = question.goal, tokens_a_step(question)
    if not _above(goal.domain_tokens, least - 1):
        given = f"goal.domain_tokens: {_shown(goal.domain_tokens)} with goal.kind=limited-data"
        yield f"{given}; allowed: tokens of the domain to be read once, a step's {least:,} or more, like 5e9"
    elif goal.most_tokens is not None and not _above(goal.most_tokens, goal.domain_tokens):
        least_said = f"{goal.domain_tokens:g}, goal.domain_tokens"
        yield f"goal.most_tokens: {goal.most_tokens:g}; allowed: null, or above {least_said}"


def _above(value: float | None, least: float | None) -> bool:
    return value is not None and least is not None and least < value < math.inf


def _shown(value: float | None) -> str:
    return "null" if value is None else f"{value:g}"
