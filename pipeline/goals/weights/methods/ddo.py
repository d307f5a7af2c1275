"""Direct data optimization (DDO) at one scale, and AutoScale, which extrapolates the optima of two to the target.

A design is a base run, and runs that change the tokens of one domain each. The path to the target stays within the text
of each domain.
"""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from fitting import DDO, AutoScale, PointsError, autoscale, ddo
from fitting.answers.answer import estimate
from pipeline.goals.weights.artifacts import Coefficients, DesignFit, Details, PathPoint, Proposal
from pipeline.goals.weights.mixtures import Method, Search, limit_weights, proposal_of
from pipeline.study.folder import PlannedRun

SIGNIFICANT = 0.05
"""p value of the effect of the domains below which they differ."""
FAR = 0.02
"""Relative error of a factor, from rounding to whole steps, above which the proposal has a note."""
Optima = list[DDO] | list[dict[str, float]]
"""The fit, or domain -> optimal tokens, of the smaller and of the larger scale."""
Scales = Callable[[Search], list[int]]
"""The steps of the base runs that a method reads."""
Offsets = dict[str, float] | float
"""As `fitting.autoscale` takes them."""
_NO_EFFECT = (
    f"no path is extrapolated where p is {SIGNIFICANT:g} or more at a scale: the base weights are proposed; more "
    "seeds (weights.seeds), more steps (weights.scales) or more validation_windows would tell"
)
PATH = 25
"""Scales at which the report draws the weights."""


@dataclass(frozen=True)
class OneAtATimeDesign:
    """A one-at-a-time design: a base run, and runs that change the tokens of one domain, for every seed."""

    base: dict[str, Fraction]
    steps: int
    seeds: list[dict[tuple[str, Fraction], PlannedRun]]
    """A table a seed: (domain, factor) -> run; at factor 1 it is the base run for every domain."""

    @property
    def runs(self) -> list[PlannedRun]:
        """Each run once."""
        return list({run.spec.hash: run for table in self.seeds for run in table.values()}.values())

    @property
    def tokens(self) -> int:
        """Tokens of the base run."""
        return next(iter(self.seeds[0].values())).spec.tokens_per_step * self.steps


def factors_of(search: Search) -> list[Fraction]:
    """Multiples of a domain's base tokens, exact, rising."""
    return sorted(Fraction(factor) for factor in search.settings.factors)


def perturbed(
    base: Mapping[str, Fraction], domain: str, factor: Fraction, steps: int
) -> tuple[dict[str, Fraction], int]:
    """Weights and length of the run in which one domain has `factor` times its base tokens.

    Steps are whole; rounding changes the tokens of that domain only.

    >>> weights, steps = perturbed({"a": Fraction(1, 2), "b": Fraction(1, 2)}, "a", Fraction(3), 100)
    >>> str(weights["a"]), steps
    ('3/4', 200)
    """
    others = (1 - base[domain]) * steps
    length = max(round(others + factor * base[domain] * steps), math.floor(others) + 1)
    weights = {name: weight * steps / length for name, weight in base.items()}
    weights[domain] = 1 - others / length
    return weights, length


def one_at_a_time(search: Search, base: Mapping[str, Fraction], steps: int) -> OneAtATimeDesign:
    """The runs of one round: 1 + domains x (factors - 1) for every seed."""
    cells = {
        (domain, factor): (dict(base), steps) if factor == 1 else perturbed(base, domain, factor, steps)
        for domain in search.domains
        for factor in factors_of(search)
    }
    seeds = (search.question.seed + number for number in range(search.settings.seeds))
    tables = [{cell: search.run(*run, seed) for cell, run in cells.items()} for seed in seeds]
    return OneAtATimeDesign(dict(base), steps, tables)


# Several methods ask for one round, and its bootstrap takes a tenth of a second.
@functools.lru_cache(maxsize=8)
def design_rounds(search: Search, steps: int) -> list[tuple[OneAtATimeDesign, DDO | None]]:
    """The rounds at a scale, each with its fit; the first one with open runs is the last, without a fit."""
    base, rounds = search.base, []
    for _ in range(search.settings.rounds):
        design = one_at_a_time(search, base, steps)
        if not all(search.is_done(run) for run in design.runs):
            return [*rounds, (design, None)]
        fit = fit_design(search, design)
        rounds.append((design, fit))
        base = whole_step_weights(dict(zip(fit.names, fit.weights.tolist())), steps, factors_of(search))
    return rounds


def fit_design(search: Search, design: OneAtATimeDesign) -> DDO:
    """Fit the curves of the domains, with the optimum at the length of the base run."""
    losses = [*zip(*(_losses(search, design, domain) for domain in search.domains))]
    weights = [float(design.base[domain]) for domain in search.domains]
    seeds = losses if len(losses) > 1 else losses[0]
    return ddo(seeds, factors_of(search), base_weights=weights, names=search.domains, tokens=design.tokens)


def _losses(search: Search, design: OneAtATimeDesign, domain: str) -> list[list[float]]:
    """The average loss of the runs that change a domain's tokens, a list over the factors for each seed."""
    return [
        [search.average(search.losses(table[domain, factor])) for factor in factors_of(search)]
        for table in design.seeds
    ]


def whole_step_weights(weights: Mapping[str, float], steps: int, factors: list[Fraction]) -> dict[str, Fraction]:
    """Weights near the given ones for which every multiple of a domain's tokens is a whole number of steps.

    >>> weights = whole_step_weights({"a": 0.303, "b": 0.697}, 9, [Fraction(1, 3), Fraction(3)])
    >>> str(weights["a"]), str(weights["b"])
    ('1/3', '2/3')
    """
    changes = [factor - 1 for factor in factors if factor != 1]
    unit = Fraction(math.lcm(*(c.denominator for c in changes)), math.gcd(*(c.numerator for c in changes)))
    # Where the length is no multiple of the unit, the largest domain gets the rest.
    units = math.floor(steps / unit)
    counts = {name: max(1, math.floor(weight * units)) for name, weight in weights.items()}
    rests = sorted(weights, key=lambda name: counts[name] - weights[name] * units)
    for name in rests[: max(0, units - sum(counts.values()))]:
        counts[name] += 1
    exact = {name: count * unit / steps for name, count in counts.items()}
    largest = max(exact, key=lambda name: exact[name])
    exact[largest] += 1 - sum(exact.values())
    return exact


def effect(fit: DDO) -> list[str]:
    """How sure it is that the domains differ in what their tokens are worth, a line; none with one seed."""
    if math.isnan(fit.p_value):
        return []
    verb = "tell" if fit.p_value < SIGNIFICANT else "cannot tell"
    return [f"the losses {verb} the domains apart by what their tokens are worth (F-test: p = {fit.p_value:.2g})"]


def missed_factors(search: Search, design: OneAtATimeDesign) -> list[str]:
    """A line for each factor that rounding to whole steps has changed."""
    lines = []
    for (domain, factor), run in design.seeds[0].items():
        real = Fraction(run.spec.mixture[domain]) * run.spec.steps / (design.base[domain] * design.steps)
        if abs(real / factor - 1) > FAR:
            lines.append(f"{domain}: {float(real):.3f} times its tokens instead of {factor}, because steps are whole")
    return lines


def design_fit(search: Search, design: OneAtATimeDesign, fit: DDO) -> DesignFit:
    """A round as the report reads it."""
    points = {domain: _losses(search, design, domain) for domain in search.domains}
    return DesignFit(
        steps=design.steps,
        tokens=design.tokens,
        base={domain: float(weight) for domain, weight in design.base.items()},
        factors=[float(factor) for factor in factors_of(search)],
        points=points,
        base_value=fit.base,
        predicted=fit.predicted.value,
        coefficients={str(domain): Coefficients(*row) for domain, row in fit.coefficients[["a", "b", "c"]].T.items()},
        weights=dict(zip(fit.names, fit.weights.tolist())),
        flat=fit.flat,
    )


def _scale(search: Search) -> list[int]:
    """That of DDO."""
    return search.settings.scales[:1]


def _scales(search: Search) -> list[int]:
    """Those of AutoScale."""
    scales = search.settings.scales
    return [scales[0], scales[-1]]


def _count(scales: Scales, search: Search) -> tuple[int, int]:
    """(runs, tokens) of all rounds at some scales, which do not depend on the weights."""
    weights, m = search.settings, len(search.domains)
    other = [factor for factor in factors_of(search) if factor != 1]
    length, rounds = 1 + sum(m + factor - 1 for factor in other), weights.rounds * weights.seeds
    tokens = sum(round(rounds * steps * length * search.tokens_per_step) for steps in scales(search))
    return len(scales(search)) * rounds * (1 + m * len(other)), tokens


def _runs(scales: Scales, search: Search) -> list[PlannedRun]:
    """The runs of the rounds at some scales, as far as they are known."""
    return [run for steps in scales(search) for design, _ in design_rounds(search, steps) for run in design.runs]


def _propose(search: Search) -> list[Proposal]:
    rounds = design_rounds(search, *_scale(search))
    design, fit = rounds[-1]
    assert fit is not None
    weights, limited = search.within_text(dict(zip(fit.names, fit.weights.tolist())))
    # Within the text, as the weights are.
    drawn = [search.within_text(dict(zip(fit.names, draw)))[0] for draw in fit.draws.tolist()]
    ends = {name: estimate(weight, np.array([one[name] for one in drawn])) for name, weight in weights.items()}
    low, high = ({name: end[side] for name, end in ends.items()} if drawn else {} for side in (1, 2))
    binding = [fit.status.message] if fit.held else []
    lines = (*effect(fit), *fit.warnings, *missed_factors(search, design), *binding, *limited)
    details = Details(designs=[design_fit(search, one, made) for one, made in rounds if made])
    runs, predicted = _runs(_scale, search), predicted_at_target(search, fit, weights)
    return [proposal_of("ddo", weights, runs, low=low, high=high, predicted=predicted, lines=lines, details=details)]


def predicted_at_target(search: Search, fit: DDO, weights: Mapping[str, float]) -> dict[str, float]:
    """The mean loss at the target by the curves of a scale, as `Proposal.predicted`; empty where they give none."""
    if search.settings.average != "loss":
        return {}
    target = search.target_tokens
    loss = fit.loss_at([weights[name] * target for name in fit.names])
    return {"mean": loss} if math.isfinite(loss) else {}


DDO_METHOD = Method(_propose, functools.partial(_runs, _scale), functools.partial(_count, _scale))
"""Proposes the optimum at the first of weights.scales for the target."""


def _propose_path(search: Search) -> list[Proposal]:
    rounds = [design_rounds(search, steps)[-1] for steps in _scales(search)]
    designs, fits = [design for design, _ in rounds], [fit for _, fit in rounds if fit is not None]
    of_designs = [design_fit(search, *one) for one in zip(designs, fits)]
    of_scales = [
        f"at {design.steps} steps: {line}"
        for design, fit in zip(designs, fits)
        for line in _path_lines(search, design, fit)
    ]
    runs, target = _runs(_scales, search), search.target_tokens
    # A search with one seed cannot be tested, and is believed.
    if any(fit.p_value >= SIGNIFICANT for fit in fits):
        weights, limited = search.within_text({name: float(weight) for name, weight in search.base.items()})
        lines, details = (*of_scales, _NO_EFFECT, *limited), Details(designs=of_designs)
        names = ("autoscale", "autoscale-offsets")
        return [proposal_of(name, weights, runs, lines=lines, details=details) for name in names]
    most = search.largest_weights(search.settings.target)
    limits = {domain: weight * target for domain, weight in most.items()}
    proposals = []
    for name, offsets in (("autoscale", 0.0), ("autoscale-offsets", _offsets(search, designs, fits))):
        answer, tokens, left_path = _at(fits, target, offsets, limits)
        # `_path_lines` has the bounds, with the scale of each.
        warnings = [line for line in answer.warnings if "need not lie on the path" not in line]
        held = [answer.status.message] if answer.held else []
        known = not left_path and all(map(math.isfinite, answer.low.values()))
        low, high = (_weights(end, target) if known else {} for end in (answer.low, answer.high))
        weights = _weights(tokens, target)
        details = Details(
            designs=of_designs,
            path=_path(search, fits, offsets, target),
            numbers={"target": target, "free": _weights(answer.free, target), "caps": limits},
        )
        # By the larger scale, from which the target is the shorter way.
        predicted = predicted_at_target(search, fits[-1], weights)
        lines = (*of_scales, *warnings, *held, *left_path)
        proposals.append(
            proposal_of(name, weights, runs, low=low, high=high, predicted=predicted, lines=lines, details=details)
        )
    return proposals


def _path_lines(search: Search, design: OneAtATimeDesign, fit: DDO) -> list[str]:
    held = [f"{fit.status.message}; such an optimum need not lie on AutoScale's path"] if fit.held else []
    return [*effect(fit), *fit.warnings, *held, *missed_factors(search, design)]


def _offsets(search: Search, designs: list[OneAtATimeDesign], fits: list[DDO]) -> dict[str, float]:
    """Domain -> tokens that the others replace: a_j of the curves, geometric mean of the scales; 0 if it is flat."""
    offsets = {}
    for domain in search.domains:
        tokens = [
            fit.coefficients["a"].to_dict()[domain] * float(design.base[domain]) * design.tokens
            for design, fit in zip(designs, fits)
        ]
        offsets[domain] = 0.0 if any(domain in fit.flat for fit in fits) else float(np.sqrt(np.prod(tokens)))
    return offsets


def _path(search: Search, fits: list[DDO], offsets: Offsets, target: int) -> list[PathPoint]:
    """Weights from the smaller scale to twice the target, within the caps as long as they allow."""
    # Without bootstrap draws: a figure needs no intervals.
    optima = [dict(zip(fit.names, fit.tokens.tolist())) for fit in fits]
    totals = np.geomspace(sum(fits[0].tokens), 2 * target, PATH)
    limits, rows = search.available_tokens, []
    for total in totals[totals < sum(limits.values())].tolist():
        answer, tokens, _ = _at(optima, total, offsets, limits)
        rows.append(PathPoint(total, _weights(tokens, total), _weights(answer.free, total)))
    return rows


def _at(
    optima: Optima, total: float, offsets: Offsets, limits: dict[str, float]
) -> tuple[AutoScale, dict[str, float], list[str]]:
    """The path at a total, the tokens there within the caps, and a line where the path had to be left for them."""
    try:
        answer = autoscale(optima[0], optima[1], total, offsets=offsets, caps=limits)
        return answer, answer.tokens, []
    except PointsError:
        # All domains that grow are at their caps: the capped path never reaches the total.
        answer = autoscale(optima[0], optima[1], total, offsets=offsets)
    most = {domain: min(1.0, cap / total) for domain, cap in limits.items()}
    weights = limit_weights(_weights(answer.tokens, total), most)
    line = "the path within the caps ends before the target: the rest went to the other domains, by their weights"
    return answer, {domain: weight * total for domain, weight in weights.items()}, [line]


def _weights(tokens: Mapping[str, float], total: float) -> dict[str, float]:
    return {domain: count / total for domain, count in tokens.items()}


AUTOSCALE = Method(
    _propose_path, functools.partial(_runs, _scales), functools.partial(_count, _scales), proposals=lambda search: 2
)
"""Proposes the weights of the paper's path and of the path with offsets; the confirmation compares them."""
