"""The methods that propose mixture weights, by name: a line for each, and those that need no runs."""

from __future__ import annotations

from collections.abc import Callable

from pipeline.mixture_weights.artifacts import Proposal
from pipeline.mixture_weights.method import Method, Propose
from pipeline.mixture_weights.methods.autoscale import AUTOSCALE
from pipeline.mixture_weights.methods.continual import CONTINUAL
from pipeline.mixture_weights.methods.data_mixing import DATA_MIXING
from pipeline.mixture_weights.methods.ddo import DDO_METHOD
from pipeline.mixture_weights.methods.doremi import DOREMI
from pipeline.mixture_weights.methods.regmix import REGMIX
from pipeline.mixture_weights.setting import Measured, Setting


def _uniform(setting: Setting, measured: Measured) -> list[Proposal]:
    return [Proposal("uniform", {domain: 1 / len(setting.domains) for domain in setting.domains})]


def _given(setting: Setting, measured: Measured) -> list[Proposal]:
    given = setting.question.weights.given
    return [Proposal(name, {domain: of.get(domain, 0.0) for domain in setting.domains}) for name, of in given.items()]


def _without_runs(propose: Propose, proposals: Callable[[Setting], int] = lambda setting: 1) -> Method:
    return Method(lambda setting, measured: [], propose, lambda setting: (0, 0), proposals)


METHODS: dict[str, Method] = {
    "uniform": _without_runs(_uniform),
    "given": _without_runs(_given, lambda setting: len(setting.question.weights.given)),
    "ddo": DDO_METHOD,
    "autoscale": AUTOSCALE,
    "doremi": DOREMI,
    "data-mixing": DATA_MIXING,
    "regmix": REGMIX,
    "continual": CONTINUAL,
}
"""Name in weights.methods -> the method. Heavy libraries, like scipy, are imported where a method proposes."""
