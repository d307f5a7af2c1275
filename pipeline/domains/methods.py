"""The ways to find weights, by name; one file and one line here for each."""

from __future__ import annotations

from pipeline.domains.autoscale import AUTOSCALE
from pipeline.domains.continual import CONTINUAL
from pipeline.domains.data_mixing import DATA_MIXING
from pipeline.domains.ddo import DDO_METHOD
from pipeline.domains.doremi import DOREMI
from pipeline.domains.given import GIVEN, UNIFORM
from pipeline.domains.proposal import Method
from pipeline.domains.regmix import REGMIX

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
