"""The global minimum of the objective, by local searches from many starts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd

from fitting.schedule import Schedules
from fitting.solver.newton import refine
from fitting.solver.prepare import prepare
from fitting.solver.problem import DELTA, Problem
from fitting.solver.varpro import starting_points

SAME = 1e-6
"""Relative difference up to which two objectives belong to one local minimum."""
NEAR = 0.1
"""How far above the least objective on a subsample a minimum may be to be refined on all points."""
FAR = 0.5
"""The same for a minimum that may be the global one on a part of the points."""


@dataclass(frozen=True, eq=False)
class LocalMinima:
    """Local minima of a problem: theta of each, the least objective first."""

    problem: Problem
    thetas: list[np.ndarray]

    def best(self, problem: Problem) -> tuple[np.ndarray, float]:
        """The (theta, objective) of another problem of the same law that is least, refined from each minimum."""
        ends = (refine(problem, problem.rescaled(theta, self.problem)) for theta in self.thetas)
        return min(ends, key=lambda end: end[1])


def local_minima(
    points: pd.DataFrame,
    law: str,
    *,
    searches: int = 3,
    seed: int = 0,
    schedules: Schedules | None = None,
    weights: np.ndarray | str | None = None,
    delta: float = DELTA,
    fix: Mapping[str, float] | None = None,
    unknown: Iterable[str] = (),
) -> LocalMinima:
    """All local minima that some searches find, as starts of many fits to nearly the same points.

    Arguments as in `fit`. Where points leave a parameter free, the result of a search depends on its start; a fit that
    starts from these minima has all points behind its start.
    """
    problem = prepare(points, law, weights, schedules, delta, fix or {}, unknown).problem
    part = problem.subsample()
    ends = sorted(
        (end for number in range(searches) for end in _search(part, np.random.default_rng([seed, number]))),
        key=lambda end: end[1],
    )
    close = [end for end in ends if end[1] <= ends[0][1] * (1 + FAR)]
    distinct = close[:1] + [end for previous, end in pairwise(close) if end[1] > previous[1] * (1 + SAME)]
    return LocalMinima(problem, [problem.rescaled(theta, part) for theta, _ in distinct])


def minimise(problem: Problem, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """The (theta, objective) of the global minimum: searched on a subsample, refined on all points."""
    part = problem.subsample()
    ends = _search(part, rng)
    least = min(objective for _, objective in ends)
    return LocalMinima(part, [theta for theta, objective in ends if objective <= least * (1 + NEAR)]).best(problem)


def _search(part: Problem, rng: np.random.Generator) -> list[tuple[np.ndarray, float]]:
    return [refine(part, theta, tolerance=1e-7) for theta in starting_points(part, rng)]
