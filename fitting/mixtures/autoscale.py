"""AutoScale: the optimal tokens of each domain at a scale, from the optima at two other scales."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.optimize import root_scalar

from fitting.answers.answer import Status
from fitting.mixtures.ddo import DDO, held_status
from fitting.points import TAILS, PointsError

TAUS = np.sinh(np.linspace(-12.0, 12.0, 2401))
"""Positions on the path that bracket a target: dense near the two scales, up to eighty thousand steps away."""

Tokens = Mapping[str, float]
"""Domain -> tokens, in any one unit."""


@dataclass(frozen=True, eq=False)
class AutoScale:
    """The answer of `autoscale`, by domain.

    `tokens`: within the caps, summing to the target; `free`: without caps. `tau`: where on the path (0 at the smaller
    of the two scales, 1 at the larger), caps included. `low`, `high`: interval of the tokens, NaN unless both scales
    came with draws. `held`: domains that a cap holds, and `status` says where. `warnings`: one line each.
    """

    tokens: dict[str, float]
    free: dict[str, float]
    tau: float
    low: dict[str, float]
    high: dict[str, float]
    held: list[str]
    status: Status
    warnings: list[str]


def autoscale(
    first: Tokens | DDO,
    second: Tokens | DDO,
    target: float,
    *,
    offsets: Tokens | float = 0.0,
    caps: Tokens | None = None,
) -> AutoScale:
    """The optimal tokens of each domain at a total of `target`, from the optima at two other totals.

    At an optimum log(N_j + N0_j) is linear in the log of the common Lagrange multiplier, so that the optima
    lie on the path N_j(tau) = (N1_j + N0_j) ((N2_j + N0_j) / (N1_j + N0_j))^tau - N0_j; tau is the root of
    sum_j N_j(tau) = target. With N0 = 0 this is the paper's N3_j = N2_j^2 / N1_j at tau = 2, and every scale between.
    Caps have the same multiplier: a domain that reaches its cap stays there and the others continue.

    Parameters: `first`, `second`, optimal tokens of the same domains at two scales (or answers of `ddo`, whose draws
    then give intervals), `target`, all in one unit. `offsets`, N0 a domain: a_j times the base run's tokens
    of the domain, as `ddo` fits a_j; 0 for the paper's path. `caps`, tokens of a domain times the passes over them that
    one allows; domains without one are left out.

    Raises PointsError for tokens not above 0 where there is no offset, scales of equal size, domains that differ, a
    target that the path does not reach, caps that do not reach the target.

    Source: Kang et al. 2024, arXiv:2407.20177, theorem 1 and algorithm 2.

    >>> answer = autoscale({"a": 100, "b": 100}, {"a": 300, "b": 200}, 1300)
    >>> {domain: round(tokens, 6) for domain, tokens in answer.tokens.items()}
    {'a': 900.0, 'b': 400.0}
    """
    names, one, two = _two_scales(first, second)
    offset, cap = _a_domain(offsets, "offsets", names, 0.0), _a_domain(caps or {}, "caps", names, np.inf)
    if not (np.isfinite(target) and target > 0):
        raise PointsError(f"target = {target:g} must be above 0: the total of tokens at the scale asked for")
    for key, values in (("first", one), ("second", two)):
        bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)) | ~(values + offset > 0))
        if len(bad):
            need = "each domain needs some, or an offset above 0"
            raise PointsError(f"{key}: {names[bad[0]]} = {values[bad[0]]:g} tokens; {need}")
    if abs(two.sum() - one.sum()) <= 1e-6 * max(one.sum(), two.sum()):
        raise PointsError(f"first and second both sum to {one.sum():g}: two scales of different size are needed")
    if cap.sum() < target * (1 - 1e-12):
        more = "allow more passes or a smaller target"
        raise PointsError(f"caps sum to {cap.sum():g}, below target = {target:g}: {more}")
    if two.sum() < one.sum():
        first, second, one, two = second, first, two, one
    free, _ = _at(one, two, offset, np.full(len(one), np.inf), target)
    tokens, tau = _at(one, two, offset, cap, target)
    low = high = np.full(len(one), np.nan)
    if isinstance(first, DDO) and isinstance(second, DDO) and len(first.draws) and len(second.draws):
        # Both answers used the same random numbers, though their noise is independent.
        other, paths = np.random.default_rng(0).permutation(len(second.draws)), []
        for a, b in zip(first.draws, second.draws[other], strict=False):
            ends = np.maximum(a, 1e-12) * first.tokens.sum(), np.maximum(b, 1e-12) * second.tokens.sum()
            with contextlib.suppress(PointsError):  # A path without the target.
                paths.append(_at(*ends, offset, cap, target)[0])
        low, high = np.quantile(paths, TAILS, axis=0) if paths else (tokens, tokens)
        low, high = np.minimum(low, tokens), np.maximum(high, tokens)

    held = np.flatnonzero((tokens >= cap * (1 - 1e-12)) & (free > cap))
    lines = [f"{names[j]} is held at its cap of {cap[j]:.6g} tokens; free: {free[j]:.6g}" for j in held]

    def named(values: np.ndarray) -> dict[str, float]:
        return dict(zip(names, values.tolist(), strict=True))

    return AutoScale(
        tokens=named(tokens),
        free=named(free),
        low=named(low),
        high=named(high),
        tau=tau,
        held=[names[j] for j in held],
        status=held_status(lines, "nothing: no domain is at a cap"),
        warnings=_warnings((first, second), one, two, tokens, target, names),
    )


def _at(
    one: np.ndarray, two: np.ndarray, offset: np.ndarray, cap: np.ndarray, target: float
) -> tuple[np.ndarray, float]:
    """Tokens (m,) at the target and tau, for totals that rise from one to two."""
    start, growth = np.log(one + offset), np.log((two + offset) / (one + offset))

    def tokens(tau) -> np.ndarray:
        grown = np.exp(np.clip(start + np.multiply.outer(tau, growth), -700, 700))
        return np.clip(grown - offset, 0.0, cap)

    # Where a domain shrinks with scale the total has a least value on the way down, and there the path ends.
    totals = tokens(TAUS).sum(axis=1)
    least = int(np.argmin(totals[TAUS <= 1]))
    reached = np.flatnonzero(totals[least:] >= target * (1 - 1e-12))
    if totals[least] > target or not len(reached):
        reach = f"{totals[least]:.6g} to {totals[least:].max():.6g}"
        raise PointsError(f"target = {target:g}: the path through the two scales has totals from {reach} only")
    end = least + int(reached[0])
    below, above = TAUS[max(end - 1, least)], TAUS[end]
    if totals[max(end - 1, least)] < target < totals[end]:
        above = root_scalar(lambda t: tokens(t).sum() - target, bracket=(below, above), xtol=1e-14, rtol=1e-14).root
    return tokens(above), float(above)


def _two_scales(first: Tokens | DDO, second: Tokens | DDO) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    """The domains' names and the tokens (m,) at both scales."""
    first, second = (
        dict(zip(given.names, given.tokens.tolist(), strict=True)) if isinstance(given, DDO) else given
        for given in (first, second)
    )
    if differ := ", ".join(sorted(first.keys() ^ second.keys())):
        raise PointsError(f"first and second must have the same domains; only one of them has {differ}")
    names = tuple(first)
    one, two = (np.array([given[name] for name in names], dtype=float) for given in (first, second))
    return names, one, two


def _a_domain(given: Tokens | float, key: str, names: tuple[str, ...], missing: float) -> np.ndarray:
    """A number a domain (m,), from those of some domains or one for all; none negative."""
    if not isinstance(given, Mapping):
        given = dict.fromkeys(names, given)
    if strange := [str(name) for name in given if name not in names]:
        raise PointsError(f"{key}: no domain is called {', '.join(strange)}; there are {', '.join(names)}")
    values = np.array([given.get(name, missing) for name in names], dtype=float)
    if not ((values >= 0) & (np.isfinite(values) | (missing == np.inf))).all():
        raise PointsError(f"{key} must be numbers of tokens, none negative, one a domain ({len(names)})")
    return values


def _warnings(given, one, two, tokens, target: float, names: tuple[str, ...]) -> list[str]:
    lines = []
    for total, side, beyond in ((two.sum(), "larger", target > two.sum()), (one.sum(), "smaller", target < one.sum())):
        if beyond and abs(target / total - 1) > 1e-9:
            far = f"{target / total:.3g} times the {side} scale ({total:.4g})"
            lines.append(f"target = {target:.4g} is {far}: extrapolated")
    shrinking = [names[j] for j in np.flatnonzero(two < one * (1 - 1e-9))]
    if shrinking:
        lines.append(f"{', '.join(shrinking)}: fewer tokens at the larger scale, where the theory expects growth")
    gone = [names[j] for j in np.flatnonzero(tokens <= 0)]
    lines += [f"{', '.join(gone)}: the path leaves it without tokens"] if gone else []
    # At a bound the multiplier does not determine the tokens.
    where = [answer.status.message for answer in given if isinstance(answer, DDO) and answer.held]
    empty = [names[j] for j in np.flatnonzero((one == 0) | (two == 0))]
    where += [f"{', '.join(empty)}: no tokens at one scale"] if empty else []
    return [*lines, *(f"{line}; such an optimum need not lie on the path" for line in where)]
