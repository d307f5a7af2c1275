"""Direct data optimization at one scale: a base run, and runs around it in which one domain's tokens alone change."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from pipeline.mixture_weights.artifacts import Coefficients, DesignFit, Details, Proposal
from pipeline.mixture_weights.proposal import Method
from pipeline.mixture_weights.setting import Measured, Setting, average, mixture_run
from pipeline.mixture_weights.token_supply import largest_shares, within
from pipeline.study.folder import PlannedRun

if TYPE_CHECKING:
    from fitting import DDO

FAR = 0.02
"""Relative miss of a factor, for want of whole steps, from which it is said."""


@dataclass(frozen=True)
class Star:
    """A base run with the runs around it, for every seed."""

    base: dict[str, Fraction]
    """Weights of the base run."""
    steps: int
    """Of the base run."""
    seeds: list[dict[tuple[str, Fraction], PlannedRun]]
    """A table a seed: (domain, factor) -> run; at factor 1 it is the base run for every domain."""

    @property
    def runs(self) -> list[PlannedRun]:
        """Each run once."""
        return list({run.spec.hash: run for table in self.seeds for run in table.values()}.values())

    @property
    def tokens(self) -> int:
        """Of the base run."""
        return next(iter(self.seeds[0].values())).spec.tokens_per_step * self.steps


def factors_of(setting: Setting) -> list[Fraction]:
    """By what a domain's tokens are multiplied, exact, rising."""
    return sorted(Fraction(factor) for factor in setting.question.weights.factors)


def perturbed(
    base: Mapping[str, Fraction], domain: str, factor: Fraction, steps: int
) -> tuple[dict[str, Fraction], int]:
    """Weights and length of the run in which one domain has `factor` times its tokens and the others their own.

    Steps are whole: where the factor asks for a part of one, the domain takes or leaves it, never the others.

    >>> weights, steps = perturbed({"a": Fraction(1, 2), "b": Fraction(1, 2)}, "a", Fraction(3), 100)
    >>> str(weights["a"]), steps
    ('3/4', 200)
    """
    others = (1 - base[domain]) * steps
    length = max(round(others + factor * base[domain] * steps), math.floor(others) + 1)
    weights = {name: share * steps / length for name, share in base.items()}
    weights[domain] = 1 - others / length
    return weights, length


def star(setting: Setting, base: Mapping[str, Fraction], steps: int) -> Star:
    """The runs of one round: 1 + domains x (factors - 1) for every seed."""
    seeds = []
    for number in range(setting.question.weights.seeds):
        seed = setting.question.seed + number
        table = {}
        for domain in setting.domains:
            for factor in factors_of(setting):
                weights, length = (dict(base), steps) if factor == 1 else perturbed(base, domain, factor, steps)
                table[domain, factor] = mixture_run(setting, weights, length, seed)
        seeds.append(table)
    return Star(dict(base), steps, seeds)


def stars(setting: Setting, measured: Measured, steps: int) -> Iterator[tuple[Star, DDO | None]]:
    """The rounds at a scale, as far as they are known, each with its fit once all of its runs are done."""
    base = setting.base
    for number in range(setting.question.weights.rounds):
        now = star(setting, base, steps)
        if not all(measured.done(run) for run in now.runs):
            yield now, None
            return
        fit = fitted(setting, measured, now)
        yield now, fit
        if number + 1 < setting.question.weights.rounds:
            base = whole(dict(zip(fit.names, fit)), steps, factors_of(setting))


def fitted(setting: Setting, measured: Measured, now: Star) -> DDO:
    """The curves of the domains and the optimum at the base run's length, tokens as the unit."""
    factors = factors_of(setting)
    losses = tuple(
        tuple(
            tuple(average(setting, measured.losses(table[domain, factor])) for factor in factors)
            for domain in setting.domains
        )
        for table in now.seeds
    )
    shares = tuple(float(now.base[domain]) for domain in setting.domains)
    return _fitted(losses, tuple(map(float, factors)), shares, setting.domains, now.tokens)


@functools.lru_cache(maxsize=64)
def _fitted(
    losses: Sequence, factors: tuple[float, ...], shares: tuple[float, ...], names: tuple[str, ...], tokens: int
) -> DDO:
    # Kept, since several methods ask for the same round, and its draws take a tenth of a second.
    from fitting import ddo

    return ddo(losses if len(losses) > 1 else losses[0], factors, shares=shares, names=names, tokens=tokens)


def whole(weights: Mapping[str, float], steps: int, factors: list[Fraction]) -> dict[str, Fraction]:
    """Weights near the given ones at which every factor times a domain's tokens makes a whole number of steps.

    >>> {name: str(share) for name, share in whole({"a": 0.303, "b": 0.697}, 9, [Fraction(1, 3), Fraction(3)]).items()}
    {'a': '1/3', 'b': '2/3'}
    """
    changes = [factor - 1 for factor in factors if factor != 1]
    unit = Fraction(math.lcm(*(c.denominator for c in changes)), math.gcd(*(c.numerator for c in changes)))
    # A length without whole units leaves the rest to the largest domain.
    units = math.floor(steps / unit)
    counts = {name: max(1, math.floor(share * units)) for name, share in weights.items()}
    rests = sorted(weights, key=lambda name: counts[name] - weights[name] * units)
    for name in rests[: max(0, units - sum(counts.values()))]:
        counts[name] += 1
    shares = {name: count * unit / steps for name, count in counts.items()}
    largest = max(shares, key=lambda name: shares[name])
    shares[largest] += 1 - sum(shares.values())
    return shares


def missed_factors(setting: Setting, now: Star) -> list[str]:
    """Lines on factors that whole steps have moved."""
    lines = []
    for (domain, factor), run in now.seeds[0].items():
        real = Fraction(run.spec.mixture[domain]) * run.spec.steps / (now.base[domain] * now.steps)
        if abs(real / factor - 1) > FAR:
            lines.append(f"{domain}: {float(real):.3f} times its tokens was run where {factor} was meant (whole steps)")
    return lines


def described(setting: Setting, measured: Measured, now: Star, fit: DDO) -> DesignFit:
    """A round for the report."""
    factors = factors_of(setting)
    points = {
        domain: [
            [average(setting, measured.losses(table[domain, factor])) for factor in factors] for table in now.seeds
        ]
        for domain in setting.domains
    }
    return DesignFit(
        steps=now.steps,
        tokens=now.tokens,
        base={domain: float(share) for domain, share in now.base.items()},
        factors=[float(factor) for factor in factors],
        points=points,
        base_value=fit.base,
        predicted=fit.predicted.value,
        coefficients={str(domain): Coefficients(*row) for domain, row in fit.coefficients[["a", "b", "c"]].T.items()},
        weights=dict(zip(fit.names, map(float, fit))),
        flat=fit.flat,
    )


def count(setting: Setting, steps: int) -> tuple[int, int]:
    """(runs, tokens) of all rounds at a scale; the sum over the domains does not depend on their weights."""
    weights, m = setting.question.weights, len(setting.domains)
    other = [factor for factor in factors_of(setting) if factor != 1]
    length = steps * (1 + sum(m + factor - 1 for factor in other))
    phase = setting.phase
    a_step = phase.global_batch * (phase.sequence_length or setting.question.sequence_length)
    rounds = weights.rounds * weights.seeds
    return rounds * (1 + m * len(other)), round(rounds * length * a_step)


def taken(runs: list[PlannedRun]) -> dict[str, Any]:
    """Fields `runs` and `tokens` of a proposal that has read these runs."""
    once = {run.spec.hash: run for run in runs}.values()
    return {"runs": tuple(run.name for run in once), "tokens": sum(run.spec.tokens for run in once)}


def _runs(setting: Setting, measured: Measured) -> list[PlannedRun]:
    steps = setting.question.weights.scales[0]
    return [run for now, _ in stars(setting, measured, steps) for run in now.runs]


def _propose(setting: Setting, measured: Measured) -> list[Proposal]:
    rounds = list(stars(setting, measured, setting.question.weights.scales[0]))
    now, fit = rounds[-1]
    assert fit is not None
    known = len(fit.draws) > 0
    free = dict(zip(fit.names, map(float, fit)))
    weights = within(free, largest_shares(setting, setting.question.weights.target))
    lines = [*fit.warnings, *missed_factors(setting, now)]
    if fit.held:
        lines.append(fit.binding)
    lines += [
        f"{domain} is held at {weights[domain]:.3f}, for which there is text at the target; its optimum is {share:.3f}"
        for domain, share in free.items()
        if weights[domain] < share
    ]
    proposal = Proposal(
        method="ddo",
        weights=weights,
        low=dict(zip(fit.names, map(float, fit.low))) if known else {},
        high=dict(zip(fit.names, map(float, fit.high))) if known else {},
        lines=tuple(lines),
        details=Details(designs=[described(setting, measured, one, made) for one, made in rounds if made]),
        **taken([run for one, _ in rounds for run in one.runs]),
    )
    return [proposal]


def _count(setting: Setting) -> tuple[int, int]:
    return count(setting, setting.question.weights.scales[0])


DDO_METHOD = Method(_runs, _propose, _count)
"""The optimum at the first of weights.scales, taken for the target too."""
