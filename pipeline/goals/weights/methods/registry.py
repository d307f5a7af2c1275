"""The methods that propose mixture weights, by name: a line for each, and those that need no runs."""

from pipeline.goals.weights.artifacts import Proposal
from pipeline.goals.weights.methods.continual import CONTINUAL
from pipeline.goals.weights.methods.ddo import AUTOSCALE, DDO_METHOD
from pipeline.goals.weights.methods.doremi import DOREMI
from pipeline.goals.weights.methods.random_mixtures import DATA_MIXING, REGMIX
from pipeline.goals.weights.mixtures import Method, Search


def _uniform(search: Search) -> list[Proposal]:
    return [Proposal("uniform", {domain: 1 / len(search.domains) for domain in search.domains})]


def _given(search: Search) -> list[Proposal]:
    given = search.settings.given
    return [Proposal(name, {domain: of.get(domain, 0.0) for domain in search.domains}) for name, of in given.items()]


METHODS: dict[str, Method] = {
    "uniform": Method(_uniform),
    "given": Method(_given, proposals=lambda search: len(search.settings.given)),
    "ddo": DDO_METHOD,
    "autoscale": AUTOSCALE,
    "doremi": DOREMI,
    "data-mixing": DATA_MIXING,
    "regmix": REGMIX,
    "continual": CONTINUAL,
}
"""Name in weights.methods -> the method."""
