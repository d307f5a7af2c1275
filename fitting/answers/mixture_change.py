"""The best change of the mixture at a given time, beside the best mixture without one."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fitting.answers.answer import question
from fitting.answers.grid_minimum import largest_within
from fitting.fitted import Fit
from fitting.points import PointsError

GRID = np.linspace(0.0, 1.0, 101)
TYPICAL_ERROR = 0.06
"""Median error of a predicted `difference`, nats: 78 measured changes (docs/training.md)."""


@dataclass(frozen=True)
class MixtureChange:
    """The answer of `mixture_change`.

    `before`, `after`: domain ratios before and after the change, equal where no change is better than one mixture.
    `general`, `domain`: predicted losses in nats per token. `difference`: that domain loss less that of one mixture
    within the same tolerance, 0 or less.
    """

    before: float
    after: float
    general: float
    domain: float
    difference: float


def mixture_change(
    general: Fit,
    domain: Fit,
    s1_first: float,
    tolerance: float,
    general_before: float,
    *,
    general_at: Mapping[str, float],
    domain_at: Mapping[str, float],
) -> MixtureChange | None:
    """The domain ratios before and after a change with the lowest domain loss within a tolerated general loss.

    For each ratio before it, on a grid of hundredths, the largest one after it is taken at which the general loss at
    the end is at most general_before * (1 + tolerance); so the domain loss is lowest there.

    Parameters: `general`, `domain`, fits of a law that reads r_first and s1_first (`transfer-two-mixtures`);
    `s1_first`, sum of learning rates at the change; `tolerance`, relative (0.03 is 3%); `general_before`, general loss
    before the run in nats per token; `general_at`, `domain_at`, the law's other columns at the end of the run.

    Returns:
        None where no ratios keep the general loss within the tolerance.

    Raises PointsError for a law that does not know changes, for missing columns, and a change outside the run.
    """
    for name, fit in (("general", general), ("domain", domain)):
        if "r_first" not in fit.columns:
            raise PointsError(f"{name}: {fit.law} does not know changes of the mixture; fit transfer-two-mixtures")
    if not 0 < s1_first < general_at["s1"]:
        raise PointsError(f"s1_first = {s1_first:g} is outside the run, whose sum of learning rates is s1")

    def losses(fit: Fit, name: str, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        first, last = (1 - before, 1 - after) if name == "general" else (before, after)
        columns = general_at if name == "general" else domain_at
        return fit.predict(question(fit, name, {**columns, "r": last, "r_first": first, "s1_first": s1_first}))

    cap = general_before * (1 + tolerance)
    (one,) = largest_within(GRID, losses(general, "general", GRID, GRID)[None], cap)
    if np.isnan(one):
        return None
    # One mixture first, which is taken where a change is better by less than a ten-thousandth of a nat.
    before = np.append(one, GRID)
    curves = losses(general, "general", *(side.ravel() for side in np.meshgrid(before, GRID, indexing="ij")))
    after = largest_within(GRID, curves.reshape(len(before), len(GRID)), cap)
    after[0] = one
    feasible = ~np.isnan(after)
    before, after = before[feasible], after[feasible]
    lowest = losses(domain, "domain", before, after)
    best = int(np.argmin(lowest.round(4)))
    reached = losses(general, "general", before[best : best + 1], after[best : best + 1])
    found = (before[best], after[best], reached[0], lowest[best], lowest[best] - lowest[0])
    return MixtureChange(*map(float, found))
