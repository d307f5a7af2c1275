"""The ways to find weights, by name; one file and one line here for each."""

from __future__ import annotations

from pipeline.mixture_weights.methods.autoscale import AUTOSCALE
from pipeline.mixture_weights.methods.continual import CONTINUAL
from pipeline.mixture_weights.methods.data_mixing import DATA_MIXING
from pipeline.mixture_weights.methods.ddo import DDO_METHOD
from pipeline.mixture_weights.methods.doremi import DOREMI
from pipeline.mixture_weights.methods.given import GIVEN, UNIFORM
from pipeline.mixture_weights.methods.regmix import REGMIX
from pipeline.mixture_weights.proposal import Method

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
"""Name in weights.methods -> the method. What is heavy, like scipy, is imported where a method proposes."""
