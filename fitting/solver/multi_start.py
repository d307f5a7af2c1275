"""The global minimum of the objective, by local searches from many starts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pandas as pd

from fitting.laws.law import Law
from fitting.schedule import Schedules
from fitting.solver.newton import refine
from fitting.solver.prepare import prepare
from fitting.solver.problem import DELTA, Problem
from fitting.solver.varpro import EXACT, low_places, starting_points

SAME = 1e-6
"""Relative difference up to which two objectives belong to one local minimum."""
NEAR = 0.1
"""How far above the least objective on a subsample a minimum may be to be refined on all points."""
FAR = 0.5
"""The same for a minimum that may be the global one once the prior counts, or on a part of the points."""
ROUNDS = 6
"""Searches, each from other first guesses, at most: one whose starts agree, or two that do, are enough."""
AGREE = 1e-4
"""Relative difference up to which two searches have reached the same objective."""
LEAST_NOISE = 1e-6
"""Relative error of a point below which the prior's strength does not fall, as where a law fits exactly."""


@dataclass(frozen=True, eq=False)
class LocalMinima:
    """Local minima of a problem: theta of each, the least objective first."""

    problem: Problem
    thetas: list[np.ndarray]

    def best(self, problem: Problem) -> "Minimum":
        """The least minimum of another problem of the same law, refined from each of these."""
        start = replace(problem, prior=self.problem.prior)
        return _least(start, [start.rescaled(theta, self.problem) for theta in self.thetas])


@dataclass(frozen=True, eq=False)
class Minimum:
    """The global minimum of a problem, whose prior has its strength now; the objective counts it."""

    problem: Problem
    theta: np.ndarray
    objective: float


def local_minima(
    points: pd.DataFrame,
    law: str | Law,
    *,
    searches: int = 3,
    first_guesses: int = 0,
    schedules: Schedules | None = None,
    weights: np.ndarray | str | None = None,
    delta: float = DELTA,
    fix: Mapping[str, float] | None = None,
    unknown: Iterable[str] = (),
    prior: bool = True,
) -> LocalMinima:
    """All local minima that some searches find, as starts of many fits to nearly the same points.

    Arguments as in `fit`. Where points leave a parameter free, the result of a search depends on its start; a fit that
    starts from these minima has all points behind its start.
    """
    problem = prepare(points, law, weights, schedules, delta, fix or {}, unknown).problem
    part = problem.subsample()
    ends = [end for number in range(searches) for end in _search(part, first_guesses, number)[0]]
    part, ends = _with_prior(part, ends) if prior else (part, sorted(ends, key=lambda end: end[1]))
    close = [end for end in ends if end[1] <= ends[0][1] * (1 + FAR)]
    distinct = close[:1] + [end for previous, end in pairwise(close) if end[1] > previous[1] * (1 + SAME)]
    problem = replace(problem, prior=part.prior)
    return LocalMinima(problem, [problem.rescaled(theta, part) for theta, _ in distinct])


def minimise(problem: Problem, prior: bool = True, first_guesses: int = 0) -> Minimum:
    """The global minimum: searched on a subsample, refined on all points.

    `prior`: whether the weak prior decides what the points do not. `first_guesses`: which random starts.
    """
    part = problem.subsample()
    ends: list[End] = []
    least = []
    for number in range(ROUNDS):
        reached, agreed = _search(part, first_guesses, number)
        ends += reached
        least.append(min(objective for _, objective in reached))
        if agreed or sum(one <= min(least) * (1 + AGREE) + EXACT for one in least) > 1:
            break
    part, ends = _with_prior(part, ends) if prior else (part, sorted(ends, key=lambda end: end[1]))
    near = [theta for theta, objective in ends if objective <= ends[0][1] * (1 + NEAR)]
    return LocalMinima(part, near).best(problem)


End = tuple[np.ndarray, float]
"""theta and objective of a local minimum."""


def _search(part: Problem, first_guesses: int, number: int) -> tuple[list[End], bool]:
    """Local minima, and whether most starts led to one of the squares."""
    rng = np.random.default_rng([first_guesses, number])
    starts, agreed = starting_points(part, rng)
    if part.law.rugged:
        starts += low_places(part, rng)
    return [refine(part, theta, tolerance=1e-7) for theta in starts], agreed


def _with_prior(part: Problem, ends: list[End]) -> tuple[Problem, list[End]]:
    """The problem with its prior, and its local minima, the least first."""
    least = min(objective for _, objective in ends)
    part = _strengthened(part, least)
    ends = [refine(part, theta, 1e-7) for theta, objective in ends if objective <= least * (1 + FAR)]
    return part, sorted(ends, key=lambda end: end[1])


def _least(problem: Problem, thetas: list[np.ndarray]) -> Minimum:
    """The least minimum that descents from these reach; the prior's strength and the noise are made to agree."""
    if not problem.prior:
        theta, objective = min((refine(problem, theta) for theta in thetas), key=lambda end: end[1])
        return Minimum(problem, theta, objective)
    theta, objective = min((refine(problem, theta, 1e-7) for theta in thetas), key=lambda end: end[1])
    for _ in range(6):
        before = problem.prior
        problem = _strengthened(problem, objective - problem.prior_at(theta)[0])
        theta, objective = refine(problem, theta, 1e-12)
        if abs(problem.prior - before) <= 1e-5 * before:
            break
    return Minimum(problem, theta, objective)


def _strengthened(problem: Problem, objective: float) -> Problem:
    """The problem with the prior's strength by its least objective without a prior."""
    freedom = max(len(problem.loss) - problem.n_free, 1)
    return replace(problem, prior=max(2 * objective / freedom, LEAST_NOISE**2))
