"""The methods that propose mixture weights, by name: a line for each, and those that need no runs."""

from __future__ import annotations

from pipeline.mixture_weights.artifacts import Proposal
from pipeline.mixture_weights.method import Method
from pipeline.mixture_weights.methods.autoscale import AUTOSCALE
from pipeline.mixture_weights.methods.continual import CONTINUAL
from pipeline.mixture_weights.methods.data_mixing import DATA_MIXING
from pipeline.mixture_weights.methods.ddo import DDO_METHOD
from pipeline.mixture_weights.methods.doremi import DOREMI
from pipeline.mixture_weights.methods.regmix import REGMIX
from pipeline.mixture_weights.setting import Measured, Setting
from pipeline.study.folder import PlannedRun


def _no_runs(setting: Setting, measured: Measured) -> list[PlannedRun]:
    return []


def _nothing(setting: Setting) -> tuple[int, int]:
    return 0, 0


def _uniform(setting: Setting, measured: Measured) -> list[Proposal]:
    return [Proposal("uniform", {domain: 1 / len(setting.domains) for domain in setting.domains})]


def _given(setting: Setting, measured: Measured) -> list[Proposal]:
    return [
        Proposal(name, {domain: weights.get(domain, 0.0) for domain in setting.domains})
        for name, weights in setting.question.weights.given.items()
    ]


UNIFORM = Method(_no_runs, _uniform, _nothing)
"""Equal weights."""
GIVEN = Method(_no_runs, _given, _nothing, proposals=lambda setting: len(setting.question.weights.given))
"""The weights of weights.given, each under its name."""
METHODS: dict[str, Method] = {
    "uniform": UNIFORM,
    "given": GIVEN,
    "ddo": DDO_METHOD,
    "autoscale": AUTOSCALE,
    "doremi": DOREMI,
    "data-mixing": DATA_MIXING,
    "regmix": REGMIX,
    "continual": CONTINUAL,
}
"""Name in weights.methods -> the method. Heavy libraries, like scipy, are imported where a method proposes."""
