"""AutoScale: the optima of two scales continued to the target, within what there is of each domain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.mixture_weights.artifacts import Details, PathPoint, Proposal
from pipeline.mixture_weights.methods import ddo
from pipeline.mixture_weights.proposal import Method
from pipeline.mixture_weights.setting import Measured, Setting
from pipeline.mixture_weights.token_supply import caps, largest_shares, target_tokens, within
from pipeline.study.folder import PlannedRun

if TYPE_CHECKING:
    from fitting import DDO, AutoScale

Fits = tuple[Any, ...]
"""`fitting.DDO`, or tokens a domain, of the smaller and of the larger scale."""
Offsets = dict[str, float] | float
"""As `fitting.autoscale` takes them."""
PATH = 25
"""Places at which the report draws weights against scale."""


def _scales(setting: Setting) -> tuple[int, int]:
    scales = setting.question.weights.scales
    return scales[0], scales[-1]


def _runs(setting: Setting, measured: Measured) -> list[PlannedRun]:
    return [run for steps in _scales(setting) for now, _ in ddo.stars(setting, measured, steps) for run in now.runs]


def _count(setting: Setting) -> tuple[int, int]:
    counts = [ddo.count(setting, steps) for steps in _scales(setting)]
    return sum(runs for runs, _ in counts), sum(tokens for _, tokens in counts)


def _propose(setting: Setting, measured: Measured) -> list[Proposal]:

    rounds = [list(ddo.stars(setting, measured, steps)) for steps in _scales(setting)]
    stars, fits = zip(*((now, fit) for of_scale in rounds for now, fit in of_scale[-1:] if fit is not None))
    read = ddo.taken([run for of_scale in rounds for now, _ in of_scale for run in now.runs])
    lines = [f"at {now.steps} steps: {line}" for now, fit in zip(stars, fits) for line in _lines(setting, now, fit)]
    target = target_tokens(setting)
    most = largest_shares(setting, setting.question.weights.target)
    limits = {domain: share * target for domain, share in most.items()}
    proposals = []
    for name, offsets in (("autoscale", 0.0), ("autoscale-offsets", _offsets(setting, stars, fits))):
        answer, tokens, spread = _at(fits, target, offsets, limits)
        # Those on a bound are said above, with the scale.
        own = [line for line in answer.warnings if "need not lie on the path" not in line]
        held = [answer.binding] if answer.held else []
        known = not spread and bool(np.isfinite(_values(answer.low)).all())
        proposals.append(
            Proposal(
                method=name,
                weights=_shares(setting, tokens, target),
                low=_shares(setting, answer.low, target) if known else {},
                high=_shares(setting, answer.high, target) if known else {},
                lines=(*lines, *own, *held, *spread),
                details=Details(
                    designs=[ddo.described(setting, measured, now, fit) for now, fit in zip(stars, fits)],
                    path=_path(setting, fits, offsets, target),
                    numbers={"target": target, "free": _shares(setting, answer.free, target), "caps": limits},
                ),
                **read,
            )
        )
    return proposals


def _lines(setting: Setting, now: ddo.Star, fit: DDO) -> list[str]:
    held = [f"{fit.binding}; such an optimum need not lie on AutoScale's path"] if fit.held else []
    return [*fit.warnings, *held, *ddo.missed_factors(setting, now)]


def _offsets(setting: Setting, stars: tuple[ddo.Star, ...], fits: tuple[DDO, ...]) -> dict[str, float]:
    """Tokens of each domain that the others are worth to it: a_j of the curves, between the two scales.

    Of a flat domain, whose curve has none, 0.
    """
    found = {}
    for domain in setting.domains:
        worth = [
            fit.coefficients["a"].to_dict()[domain] * float(now.base[domain]) * now.tokens
            for now, fit in zip(stars, fits)
        ]
        found[domain] = 0.0 if any(domain in fit.flat for fit in fits) else float(np.sqrt(np.prod(worth)))
    return found


def _path(setting: Setting, fits: Fits, offsets: Offsets, target: int) -> list[PathPoint]:
    """Weights from the smaller scale to twice the target, within the caps as long as they allow."""
    # Without their draws: a picture needs no intervals.
    optima = tuple(dict(zip(fit.names, fit.tokens.tolist())) for fit in fits)
    totals = np.geomspace(sum(fits[0].tokens), 2 * target, PATH)
    limits, rows = caps(setting), []
    for total in totals[totals < sum(limits.values())].tolist():
        answer, tokens, _ = _at(optima, total, offsets, limits)
        rows.append(PathPoint(total, _shares(setting, tokens, total), _shares(setting, answer.free, total)))
    return rows


def _at(
    fits: Fits, total: float, offsets: Offsets, limits: dict[str, float]
) -> tuple[AutoScale, np.ndarray, list[str]]:
    """The path at a total, the tokens there within the caps, and what had to be done for them."""
    from fitting import PointsError, autoscale

    try:
        answer = autoscale(fits[0], fits[1], total, offsets=offsets, caps=limits)
        return answer, _values(answer.tokens), []
    except PointsError:
        # What grows is at its caps and the rest shrinks: the capped path never has the total.
        answer = autoscale(fits[0], fits[1], total, offsets=offsets)
    most = {domain: min(1.0, cap / total) for domain, cap in limits.items()}
    shares = within(dict(zip(limits, _values(answer.shares).tolist())), most)
    line = "the path within the caps ends before the target: what is over was given to the others, by their weights"
    return answer, _values(shares) * total, [line]


def _shares(setting: Setting, tokens, total: float) -> dict[str, float]:
    return {domain: float(value / total) for domain, value in zip(setting.domains, _values(tokens))}


def _values(tokens) -> np.ndarray:
    return np.array(list(tokens.values()) if isinstance(tokens, dict) else tokens, dtype=float)


AUTOSCALE = Method(_runs, _propose, _count, proposals=lambda setting: 2)
"""The paper's path, and that with offsets: the confirmation judges between them."""
