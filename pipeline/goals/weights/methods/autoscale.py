"""AutoScale: the optima of two scales extrapolated to the target, within the text of each domain."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from fitting import DDO, AutoScale, PointsError, autoscale
from pipeline.goals.weights.artifacts import Details, PathPoint, Proposal
from pipeline.goals.weights.methods import ddo
from pipeline.goals.weights.mixtures import (
    Method,
    available_tokens,
    base_weights,
    domain_names,
    largest_weights,
    limit_weights,
    proposal_of,
    target_tokens,
    within_text,
)
from pipeline.study.context import Context
from pipeline.study.folder import PlannedRun

Optima = list[DDO] | list[dict[str, float]]
"""Of the smaller and of the larger scale: the fit, or domain -> optimal tokens."""
Offsets = dict[str, float] | float
"""As `fitting.autoscale` takes them."""
_NO_EFFECT = (
    f"no path is extrapolated where p is {ddo.SIGNIFICANT:g} or more at a scale: the base weights are proposed; more "
    "seeds (weights.seeds), more steps (weights.scales) or more validation_windows would tell"
)
PATH = 25
"""Scales at which the report draws the weights."""


def _scales(context: Context) -> tuple[int, int]:
    scales = context.question.weights.scales
    return scales[0], scales[-1]


def _runs(context: Context) -> list[PlannedRun]:
    return [run for steps in _scales(context) for run in ddo.runs_of(context, steps)]


def _count(context: Context) -> tuple[int, int]:
    counts = [ddo.count(context, steps) for steps in _scales(context)]
    return sum(runs for runs, _ in counts), sum(tokens for _, tokens in counts)


def _propose(context: Context) -> list[Proposal]:
    rounds = [[*ddo.design_rounds(context, steps)][-1] for steps in _scales(context)]
    designs, fits = [design for design, _ in rounds], [fit for _, fit in rounds if fit is not None]
    of_designs = [ddo.design_fit(context, *one) for one in zip(designs, fits)]
    of_scales = [
        f"at {design.steps} steps: {line}"
        for design, fit in zip(designs, fits)
        for line in _lines(context, design, fit)
    ]
    runs, target = _runs(context), target_tokens(context)
    # A search with one seed cannot be tested, and is believed.
    if any(fit.p_value >= ddo.SIGNIFICANT for fit in fits):
        weights, limited = within_text(context, {name: float(weight) for name, weight in base_weights(context).items()})
        lines, details = (*of_scales, _NO_EFFECT, *limited), Details(designs=of_designs)
        names = ("autoscale", "autoscale-offsets")
        return [proposal_of(name, weights, runs, lines=lines, details=details) for name in names]
    most = largest_weights(context, context.question.weights.target)
    limits = {domain: weight * target for domain, weight in most.items()}
    proposals = []
    for name, offsets in (("autoscale", 0.0), ("autoscale-offsets", _offsets(context, designs, fits))):
        answer, tokens, left_path = _at(fits, target, offsets, limits)
        # `_lines` has the bounds, with the scale of each.
        warnings = [line for line in answer.warnings if "need not lie on the path" not in line]
        held = [answer.status.message] if answer.held else []
        known = not left_path and bool(np.isfinite(_values(answer.low)).all())
        low, high = (_shares(context, end, target) if known else {} for end in (answer.low, answer.high))
        weights = _shares(context, tokens, target)
        details = Details(
            designs=of_designs,
            path=_path(context, fits, offsets, target),
            numbers={"target": target, "free": _shares(context, answer.free, target), "caps": limits},
        )
        # By the larger scale, from which the target is the shorter way.
        predicted = ddo.predicted_at_target(context, fits[-1], weights)
        lines = (*of_scales, *warnings, *held, *left_path)
        proposals.append(
            proposal_of(name, weights, runs, low=low, high=high, predicted=predicted, lines=lines, details=details)
        )
    return proposals


def _lines(context: Context, design: ddo.OneAtATimeDesign, fit: DDO) -> list[str]:
    held = [f"{fit.status.message}; such an optimum need not lie on AutoScale's path"] if fit.held else []
    return [*ddo.effect(fit), *fit.warnings, *held, *ddo.missed_factors(context, design)]


def _offsets(context: Context, designs: list[ddo.OneAtATimeDesign], fits: list[DDO]) -> dict[str, float]:
    """Domain -> tokens of its own that the other domains replace: a_j of the curves, geometric mean of the two scales.

    0 for a flat domain, whose curve has no a_j.
    """
    offsets = {}
    for domain in domain_names(context):
        tokens = [
            fit.coefficients["a"].to_dict()[domain] * float(design.base[domain]) * design.tokens
            for design, fit in zip(designs, fits)
        ]
        offsets[domain] = 0.0 if any(domain in fit.flat for fit in fits) else float(np.sqrt(np.prod(tokens)))
    return offsets


def _path(context: Context, fits: list[DDO], offsets: Offsets, target: int) -> list[PathPoint]:
    """Weights from the smaller scale to twice the target, within the caps as long as they allow."""
    # Without bootstrap draws: a figure needs no intervals.
    optima = [dict(zip(fit.names, fit.tokens.tolist())) for fit in fits]
    totals = np.geomspace(sum(fits[0].tokens), 2 * target, PATH)
    limits, rows = available_tokens(context), []
    for total in totals[totals < sum(limits.values())].tolist():
        answer, tokens, _ = _at(optima, total, offsets, limits)
        rows.append(PathPoint(total, _shares(context, tokens, total), _shares(context, answer.free, total)))
    return rows


def _at(
    optima: Optima, total: float, offsets: Offsets, limits: dict[str, float]
) -> tuple[AutoScale, np.ndarray, list[str]]:
    """The path at a total, the tokens there within the caps, and a line where the path had to be left for them."""
    try:
        answer = autoscale(*optima, total, offsets=offsets, caps=limits)
        return answer, _values(answer.tokens), []
    except PointsError:
        # All domains that grow are at their caps: the capped path never reaches the total.
        answer = autoscale(*optima, total, offsets=offsets)
    most = {domain: min(1.0, cap / total) for domain, cap in limits.items()}
    shares = limit_weights(dict(zip(limits, _values(answer.shares).tolist())), most)
    line = "the path within the caps ends before the target: the rest went to the other domains, by their weights"
    return answer, _values(shares) * total, [line]


def _shares(context: Context, tokens: Mapping[str, float] | ArrayLike, total: float) -> dict[str, float]:
    return {domain: float(value / total) for domain, value in zip(domain_names(context), _values(tokens))}


def _values(tokens: Mapping[str, float] | ArrayLike) -> np.ndarray:
    return np.array(list(tokens.values()) if isinstance(tokens, Mapping) else tokens, dtype=float)


AUTOSCALE = Method(_propose, _runs, _count, proposals=lambda context: 2)
"""Proposes the weights of the paper's path and of the path with offsets; the confirmation compares them."""
