"""What is wrong with the random mixtures of a question, and with the values of its domains."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pipeline.question.schema import Question

READ_THEM = ("data-mixing", "regmix", "continual")
"""Methods that read random mixtures."""


def mixture_problems(question: Question) -> Iterator[str]:
    """A line for each mistake in weights.mixtures, concentration and value."""
    weights, domains = question.weights, list(question.corpora.sources)
    readers = [name for name in READ_THEM if name in weights.methods]
    if readers:
        ends = weights.concentration
        if len(ends) != 2 or not 0 < ends[0] <= ends[1]:
            yield f"weights.concentration: {ends}; allowed: two numbers above 0, the least and the greatest"
        least = {name: _least_mixtures(name, len(domains)) for name in readers}
        name = max(readers, key=lambda reader: least[reader])
        if 1 <= weights.mixtures < least[name]:
            allowed = f"{least[name]} or more for {name} on {len(domains)} domains"
            yield f"weights.mixtures: {weights.mixtures}; allowed: {allowed}"
    if "continual" in readers and weights.phase != "continual":
        yield f"weights.phase: {weights.phase!r} with continual among weights.methods; allowed: continual"
    for name, value in weights.value.items():
        if name not in domains:
            yield f"weights.value: {name!r} is no source; allowed: {', '.join(domains)}"
        elif not 0 <= value < math.inf:
            yield f"weights.value.{name}: {value}; allowed: 0 or more"
    if weights.value and not sum(weights.value.values()) > 0:
        yield f"weights.value: {weights.value}; allowed: one weight above 0"


def _least_mixtures(method: str, domains: int) -> int:
    """So many that a law with domains + 1 parameters, or trees with a few leaves, can be fitted."""
    parameters = domains + 1
    # Of continual a third is held out.
    return {"data-mixing": parameters + 1, "regmix": 10, "continual": -(-3 * (parameters + 1) // 2)}[method]
