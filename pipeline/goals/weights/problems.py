"""Mistakes in a question about mixture weights, found before training."""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from importlib.util import find_spec

from pipeline.goals.weights.methods.registry import METHODS
from pipeline.question.messages import nearest
from pipeline.question.phases import pieces
from pipeline.question.schema import PhaseConfig, Question
from training.keys import MOST_STEPS
from training.schedule import learning_rates

SUM_MISS = 1e-3
"""How far a sum of weights may differ from 1; the largest weight takes the difference."""


def weights_problems(question: Question) -> Iterator[str]:
    """A line for each mistake in the section `weights` and in what it needs of the others."""
    weights, domains = question.weights, list(question.corpora.sources)
    if not weights.methods:
        yield f"weights.methods: empty; allowed: {', '.join(METHODS)}"
    for name in sorted({*weights.methods} - {*METHODS}):
        yield f"weights.methods: {name!r}; allowed: {', '.join(METHODS)}{nearest(name, METHODS)}"
    if "regmix" in weights.methods and find_spec("sklearn") is None:
        yield "weights.methods: regmix needs scikit-learn; pip install -e '.[regmix]'"
    if weights.phase not in ("pretrain", "continual"):
        return
    if weights.base:
        yield from _weight_problems("weights.base", weights.base, domains)
    for name, given in weights.given.items():
        yield from _weight_problems(f"weights.given.{name}", given, domains)
        if name in METHODS:
            yield f"weights.given.{name}: also the name of a method; allowed: another name"
    if "given" in weights.methods and not weights.given:
        yield "weights.given: empty, and weights.methods has given; give weights.given.NAME='{domain: weight}'"
    yield from _factor_problems(weights.factors)
    if not weights.scales or min(weights.scales) < 1 or sorted(set(weights.scales)) != weights.scales:
        yield f"weights.scales: {weights.scales}; allowed: rising numbers of steps"
    elif "autoscale" in weights.methods and len(weights.scales) < 2:
        yield f"weights.scales: {weights.scales}; allowed: two or more for autoscale"
    if weights.passes > 1 and not question.allow_repeats:
        yield f"weights.passes: {weights.passes} with allow_repeats=false; allowed: 1, or allow_repeats=true"
    yield from _mixture_problems(question)
    if question.ladder:
        yield f"ladder: {question.ladder} with goal.kind=weights; allowed: [], the search trains the model itself"
    yield from _length_problems(question)


def _weight_problems(key: str, weights: Mapping[str, float], domains: list[str]) -> Iterator[str]:
    for name in (name for name in weights if name not in domains):
        yield f"{key}: {name!r} is no source; allowed: {', '.join(domains)}{nearest(name, domains)}"
    if missing := [name for name in domains if name not in weights]:
        yield f"{key}: has no weight of {', '.join(missing)}; allowed: one for every source"
    elif abs((total := sum(weights.values())) - 1) > SUM_MISS:
        yield f"{key}: its weights sum to {total:.6g}; allowed: 1"


def _factor_problems(factors: list[str]) -> Iterator[str]:
    values = []
    for factor in factors:
        try:
            values.append(Fraction(factor))
        except (ValueError, ZeroDivisionError):
            yield f"weights.factors: {factor!r}; allowed: numbers above 0, like 1/3"
            return
    if len(set(values)) < 3 or len(set(values)) < len(values) or 1 not in values or min(values) <= 0:
        yield f"weights.factors: [{', '.join(factors)}]; allowed: three or more different ones above 0, 1 among them"


def _length_problems(question: Question) -> Iterator[str]:
    """Settings that count steps must hold for runs shorter and longer than the base run."""
    weights = question.weights
    phase: PhaseConfig = getattr(question, weights.phase)
    lengths = [min([*weights.scales, weights.target]), max([*weights.scales, weights.target])]
    if min(lengths) < 1 or max(lengths) > MOST_STEPS:
        return
    for steps in lengths:
        try:
            learning_rates(pieces(phase), steps)
        except ValueError as error:
            yield f"{weights.phase}.{error} (in a run of {steps} steps)"
    for part in ("evaluation", "checkpoints"):
        if getattr(phase, part).policy == "explicit" and getattr(phase, part).steps:
            yield f"{weights.phase}.{part}.steps: given, while runs are of many lengths; allowed: another policy"
    if phase.branches:
        yield f"{weights.phase}.branches: given with goal.kind=weights; allowed: []"


def _mixture_problems(question: Question) -> Iterator[str]:
    """A line for each mistake in weights.mixtures, concentration and value."""
    weights, domains = question.weights, list(question.corpora.sources)
    # A law has domains + 1 parameters, trees a few leaves; of continual a third of the mixtures is held out.
    needed = {"data-mixing": len(domains) + 2, "regmix": 10, "continual": -(-3 * (len(domains) + 2) // 2)}
    readers = [name for name in needed if name in weights.methods]
    if readers:
        ends = weights.concentration
        if len(ends) != 2 or ends[0] > ends[1]:
            yield f"weights.concentration: {ends}; allowed: two numbers above 0, the lower first"
        name = max(readers, key=lambda reader: needed[reader])
        if 1 <= weights.mixtures < needed[name]:
            allowed = f"{needed[name]} or more for {name} on {len(domains)} domains"
            yield f"weights.mixtures: {weights.mixtures}; allowed: {allowed}"
    if "continual" in readers and weights.phase != "continual":
        yield f"weights.phase: {weights.phase!r} with continual among weights.methods; allowed: continual"
    for name in weights.value:
        if name not in domains:
            yield f"weights.value: {name!r} is no source; allowed: {', '.join(domains)}"
    if weights.value and not sum(weights.value.values()) > 0:
        yield f"weights.value: {weights.value}; allowed: one weight above 0"
