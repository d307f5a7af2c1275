"""The global minimum of the objective, by local searches from many starts."""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from fitting.laws.law import Law
from fitting.solver.newton import refine, refine_all
from fitting.solver.prepare import Data, prepare_problem
from fitting.solver.problem import Problem
from fitting.solver.varpro import AGREEMENT, EXACT, lowest_candidates, starting_points

SAME, BESIDE = 1e-4, 0.02
"""Two ends of descents are one minimum within this relative difference of the objective and in each coordinate."""
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


End = tuple[np.ndarray, float]
"""theta and objective of a local minimum."""


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


@dataclass(frozen=True, eq=False)
class VarPro:
    """Variable projection from many starts, refined by Newton's method: the global minimum of the objective.

    `prior`: False for the objective of the papers alone, whose optimum is not unique where points leave a parameter
    free. `first_guesses`: which random starts, to see that the result does not depend on them. `minima`: where the
    search starts, as `local_minima` finds it for nearly the same points; None to search everywhere.
    """

    prior: bool = True
    first_guesses: int = 0
    minima: LocalMinima | None = None

    def solve(self, problem: Problem) -> Minimum:
        """The global minimum of a problem: searched on a subsample, refined on all points."""
        if self.minima:
            return self.minima.best(problem)
        part = problem.subsample()
        ends: list[End] = []
        least = []
        for number in range(ROUNDS):
            reached, agreed = _search(part, self.first_guesses, number)
            ends += reached
            least.append(min(objective for _, objective in reached))
            if agreed or sum(one <= min(least) * (1 + AGREE) + EXACT for one in least) > 1:
                break
        part, ends = _with_prior(part, ends) if self.prior else (part, ends)
        return LocalMinima(part, [theta for theta, _ in _distinct(part, ends, NEAR)]).best(problem)


def local_minima(points: pd.DataFrame, law: str | Law, data: Data, method: VarPro, searches: int = 3) -> LocalMinima:
    """All local minima that some searches find, as starts of many fits to nearly the same points.

    Where points leave a parameter free, the result of a search depends on its start; a fit that starts from these
    minima has all points behind its start.
    """
    problem = prepare_problem(points, law, data).problem
    part = problem.subsample()
    ends = [end for number in range(searches) for end in _search(part, method.first_guesses, number)[0]]
    part, ends = _with_prior(part, ends) if method.prior else (part, _distinct(part, ends, FAR))
    problem = replace(problem, prior=part.prior)
    return LocalMinima(problem, [problem.rescaled(theta, part) for theta, _ in ends])


def _search(part: Problem, first_guesses: int, number: int) -> tuple[list[End], bool]:
    """Local minima, and whether many starts led to the least, of the squares or of a rugged objective itself."""
    rng = np.random.default_rng([first_guesses, number])
    starts, agreed = starting_points(part, rng)
    if not part.law.solving.rugged:
        return _ends(part, starts), agreed
    ends = _ends(part, starts + lowest_candidates(part, rng))
    least = min(objective for _, objective in ends)
    return ends, sum(objective <= least * (1 + AGREE) + EXACT for _, objective in ends) >= AGREEMENT


def _with_prior(part: Problem, ends: list[End]) -> tuple[Problem, list[End]]:
    """The problem with its prior, and its local minima, the least first."""
    ends = _distinct(part, ends, FAR)
    part = _strengthened(part, ends[0][1])
    return part, _distinct(part, _ends(part, [theta for theta, _ in ends]), FAR)


def _ends(problem: Problem, starts: list[np.ndarray], tolerance: float = 1e-7) -> list[End]:
    """Where descents from these lead."""
    thetas, objectives = refine_all([problem] * len(starts), np.array(starts), tolerance)
    return list(zip(thetas, objectives.tolist(), strict=True))


def _distinct(problem: Problem, ends: list[End], above: float) -> list[End]:
    """The minima at these ends, the least first, up to `above` over the least."""
    m = len(ends[0][0]) - len(problem.nonlinear)
    distinct: list[End] = []
    for theta, objective in sorted(ends, key=lambda end: end[1]):
        if distinct and objective > distinct[0][1] * (1 + above):
            break
        if not any(
            objective <= known * (1 + SAME) + EXACT and np.abs(theta[m:] - place[m:]).max(initial=0.0) < BESIDE
            for place, known in distinct
        ):
            distinct.append((theta, objective))
    return distinct


def _least(problem: Problem, thetas: list[np.ndarray]) -> Minimum:
    """The least minimum that descents from these reach; the prior's strength and the noise are made to agree."""
    if not problem.prior:
        theta, objective = min(_ends(problem, thetas, 1e-9), key=lambda end: end[1])
        return Minimum(problem, theta, objective)
    theta, objective = min(_ends(problem, thetas), key=lambda end: end[1])
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
