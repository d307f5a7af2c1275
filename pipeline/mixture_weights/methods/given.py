"""Weights that are not sought: equal ones, and those that the question gives, to compare others with."""

from __future__ import annotations

from pipeline.mixture_weights.artifacts import Proposal
from pipeline.mixture_weights.proposal import Method
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
"""Every domain the same weight."""
GIVEN = Method(_no_runs, _given, _nothing, proposals=lambda setting: len(setting.question.weights.given))
"""The question's weights.given, each under its own name."""
