"""AutoScale: the optima of two scales extrapolated to the target, within the text of each domain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.goals.weights.artifacts import Details, PathPoint, Proposal
from pipeline.goals.weights.method import Method, proposal_of, within_text
from pipeline.goals.weights.methods import ddo
from pipeline.goals.weights.mixtures import (
    Measured,
    available_tokens,
    base_weights,
    domain_names,
    largest_weights,
    limit_weights,
    target_tokens,
)
from pipeline.study.context import Context
from pipeline.study.folder import PlannedRun

if TYPE_CHECKING:
    from fitting import DDO, AutoScale

Fits = tuple[Any, ...]
"""`fitting.DDO`, or tokens a domain, of the smaller and of the larger scale."""
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


def _runs(context: Context, measured: Measured) -> list[PlannedRun]:
    return [run for steps in _scales(context) for run in ddo.runs_of(context, measured, steps)]


def _count(context: Context) -> tuple[int, int]:
    counts = [ddo.count(context, steps) for steps in _scales(context)]
    return sum(runs for runs, _ in counts), sum(tokens for _, tokens in counts)


def _propose(context: Context, measured: Measured) -> list[Proposal]:
    rounds = [list(ddo.design_rounds(context, measured, steps)) for steps in _scales(context)]
    designs, fits = zip(*((design, fit) for of_scale in rounds for design, fit in of_scale[-1:] if fit is not None))
    of_scales = [
        f"at {design.steps} steps: {line}"
        for design, fit in zip(designs, fits)
        for line in _lines(context, design, fit)
    ]
    target = target_tokens(context)
    # A search with one seed cannot be tested, and is believed.
    if any(fit.p_value >= ddo.SIGNIFICANT for fit in fits):
        weights, limited = within_text(
            context, {domain: float(weight) for domain, weight in base_weights(context).items()}
        )
        details = Details(designs=[ddo.design_fit(context, measured, *one) for one in zip(designs, fits)])
        lines = (*of_scales, _NO_EFFECT, *limited)
        names = ("autoscale", "autoscale-offsets")
        return [proposal_of(name, weights, _runs(context, measured), lines=lines, details=details) for name in names]
    most = largest_weights(context, context.question.weights.target)
    limits = {domain: weight * target for domain, weight in most.items()}
    proposals = []
    for name, offsets in (("autoscale", 0.0), ("autoscale-offsets", _offsets(context, designs, fits))):
        answer, tokens, spread = _at(fits, target, offsets, limits)
        # `_lines` has the bounds, with the scale of each.
        warnings = [line for line in answer.warnings if "need not lie on the path" not in line]
        held = [answer.status.message] if answer.held else []
        known = not spread and bool(np.isfinite(_values(answer.low)).all())
        details = Details(
            designs=[ddo.design_fit(context, measured, design, fit) for design, fit in zip(designs, fits)],
            path=_path(context, fits, offsets, target),
            numbers={"target": target, "free": _shares(context, answer.free, target), "caps": limits},
        )
        low, high = (_shares(context, end, target) if known else {} for end in (answer.low, answer.high))
        lines = (*of_scales, *warnings, *held, *spread)
        weights = _shares(context, tokens, target)
        fields: dict[str, Any] = {"low": low, "high": high, "lines": lines, "details": details}
        # By the larger scale, from which the target is the shorter way.
        fields["predicted"] = ddo.predicted_at_target(context, fits[-1], weights)
        proposals.append(proposal_of(name, weights, _runs(context, measured), **fields))
    return proposals


def _lines(context: Context, design: ddo.OneAtATimeDesign, fit: DDO) -> list[str]:
    held = [f"{fit.status.message}; such an optimum need not lie on AutoScale's path"] if fit.held else []
    return [*ddo.effect(fit), *fit.warnings, *held, *ddo.missed_factors(context, design)]


def _offsets(context: Context, designs: tuple[ddo.OneAtATimeDesign, ...], fits: tuple[DDO, ...]) -> dict[str, float]:
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


def _path(context: Context, fits: Fits, offsets: Offsets, target: int) -> list[PathPoint]:
    """Weights from the smaller scale to twice the target, within the caps as long as they allow."""
    # Without bootstrap draws: a figure needs no intervals.
    optima = tuple(dict(zip(fit.names, fit.tokens.tolist())) for fit in fits)
    totals = np.geomspace(sum(fits[0].tokens), 2 * target, PATH)
    limits, rows = available_tokens(context), []
    for total in totals[totals < sum(limits.values())].tolist():
        answer, tokens, _ = _at(optima, total, offsets, limits)
        rows.append(PathPoint(total, _shares(context, tokens, total), _shares(context, answer.free, total)))
    return rows


def _at(
    fits: Fits, total: float, offsets: Offsets, limits: dict[str, float]
) -> tuple[AutoScale, np.ndarray, list[str]]:
    """The path at a total, the tokens there within the caps, and a line where the path had to be left for them."""
    from fitting import PointsError, autoscale

    try:
        answer = autoscale(fits[0], fits[1], total, offsets=offsets, caps=limits)
        return answer, _values(answer.tokens), []
    except PointsError:
        # All domains that grow are at their caps: the capped path never reaches the total.
        answer = autoscale(fits[0], fits[1], total, offsets=offsets)
    most = {domain: min(1.0, cap / total) for domain, cap in limits.items()}
    shares = limit_weights(dict(zip(limits, _values(answer.shares).tolist())), most)
    line = "the path within the caps ends before the target: the rest went to the other domains, by their weights"
    return answer, _values(shares) * total, [line]


def _shares(context: Context, tokens, total: float) -> dict[str, float]:
    return {domain: float(value / total) for domain, value in zip(domain_names(context), _values(tokens))}


def _values(tokens) -> np.ndarray:
    return np.array(list(tokens.values()) if isinstance(tokens, dict) else tokens, dtype=float)


AUTOSCALE = Method(_runs, _propose, _count, proposals=lambda context: 2)
"""Proposes the weights of the paper's path and of the path with offsets; the confirmation compares them."""
