"""A recommendation and a row of its confirmation, with whatever a test changes."""

import dataclasses
from typing import Any

from pipeline.question.schema import GoalConfig
from pipeline.study.artifacts import ConfirmationRow, Interval, Recommendation, RecommendedRun


def recommendation(kind: str = "trade-off", **changes: Any) -> Recommendation:
    """Half code, 90% interval 0.4 to 0.6, for a model `m`."""
    made = Recommendation(
        goal=GoalConfig(kind=kind), law={"general": "dcpt", "code": "dcpt"}, weights={},
        target=RecommendedRun("m", 1e-4, 1e-3, 9), loss_before={"general": 2.0, "code": 3.0},
        mixture={"general": 0.5, "code": 0.5}, low=0.4, high=0.6, predicted={}, binding="", identified=True,
        optimum={"N": Interval(1.5e-4, 1e-4, 2e-4)}, candidates=[], warnings=[], held_out=[], answers={},
    )  # fmt: skip
    return dataclasses.replace(made, **changes)


def confirmation_row(corpus: str, domain_ratio: float, seeds: list[float], **changes: Any) -> ConfirmationRow:
    """The runs at a ratio, of the recommended law, which predicts what they measure."""
    measured = sum(seeds) / len(seeds)
    row = ConfirmationRow(
        run=f"run-{domain_ratio}", model="m", N=1e-4, D=1e-3, steps=9, domain_ratio=domain_ratio, corpus=corpus,
        law="dcpt", recommended=True, before=2.0, predicted=measured, low=measured - 0.1, high=measured + 0.1,
        measured=measured, seeds=seeds, sd=0.001, perplexity=2.7, bits_per_byte=None, relative_error=0.0, inside=True,
    )  # fmt: skip
    return dataclasses.replace(row, **changes)
