"""Profile likelihood: the objective as one number is fixed away from its optimum and all others are refitted.

The objective is no log likelihood: its scale is arbitrary and the errors of a run are correlated. Twice its rise is
therefore multiplied by the ratio of the variances of the number by the Hessian alone and by the sandwich (Chandler &
Bate 2007), and compared with Student's t squared.

A quadratic penalty moves the number. The penalised optimum is a point of the profile whatever the penalty's strength.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.special import stdtrit

from fitting.points import TAILS
from fitting.solver.derivatives import slopes_of
from fitting.solver.newton import refine_all
from fitting.solver.objective import Penalty, penalised
from fitting.solver.problem import Problem
from fitting.uncertainty.sandwich import Sandwich, sandwich

STIFFNESS = 10.0
"""Strength of the penalty, in units of the curvature of the profile."""
CLOSE = 0.02
"""Relative tolerance of the root of the deviance at an end of the interval."""
SAME = 1e-4
"""Standard errors by which a target moves at least: nearer ones lead to the place that the last has led to."""
LEAST_FREEDOM = 2.0
FARTHEST = 30.0
"""Standard errors from the estimate beyond which an interval is called open."""


@dataclass(frozen=True, eq=False)
class Optimum:
    """The optimum of a problem: theta, objective, the number of each point's run and the names of the runs.

    In a fit of one corpus among several, the runs of the others have the name None, and `parameter_names` maps the
    parameters of the corpus to those of the problem.
    """

    problem: Problem
    theta: np.ndarray
    objective: float
    runs: np.ndarray
    run_names: list
    parameter_names: Mapping[str, str] = field(default_factory=dict)

    def number(self, name: str) -> int:
        """The number of a parameter among the names of the problem."""
        return self.problem.names.index(self.parameter_names.get(name, name))

    @cached_property
    def sandwich(self) -> Sandwich:
        """The fit to first order, computed when it is first needed: many fits only predict."""
        return sandwich(self.problem, self.theta, self.runs)


@dataclass(frozen=True)
class Profile:
    """The profile of a parameter.

    `values`, ascending, and `roots`, the root of the deviance there, negative below the estimate: comparable with
    Student's t of `freedom` degrees of freedom. `closed`: (below, above), whether the interval ends on that side.
    """

    values: list[float]
    roots: list[float]
    freedom: float
    closed: tuple[bool, bool]

    def interval(self) -> tuple[float, float]:
        """(low, high), 90%; an open end is the last value that was tried."""
        edge = float(stdtrit(self.freedom, TAILS[1]))
        return float(np.interp(-edge, self.roots, self.values)), float(np.interp(edge, self.roots, self.values))


def profiles(optimum: Optimum, names: Sequence[str]) -> list[Profile]:
    """The profiles of parameters, on both sides of the optimum as far as an interval of 90% needs."""
    each = _to_first_order(optimum, names)
    # The objective does not depend on some parameter, or no error changes it: that has no sides.
    sides = [(one, side) for one in each if one.bread > 0 and one.variance > 0 for side in (-1.0, 1.0)]
    searches = [_one_side(optimum, one, side) for one, side in sides]
    found = {(one.number, side): end for (one, side), end in zip(sides, _together(optimum.problem, searches))}
    nothing = False, list[tuple[float, float]]()
    return [_profile(one, *(found.get((one.number, side), nothing) for side in (-1.0, 1.0))) for one in each]


_End = tuple[bool, list[tuple[float, float]]]
"""Whether the deviance rises to the threshold on a side, and the (value, root of deviance) on the way."""
_Search = Generator[tuple[np.ndarray, Penalty], tuple[np.ndarray, float], _End]
"""A search that asks for the end of a descent from a theta under a penalty, and for the next when it has that."""


def _together(problem: Problem, searches: Sequence[_Search]) -> list[_End]:
    """What each search finds; the descents that they ask for go on together."""
    asked, ends = dict(enumerate(map(next, searches))), dict[int, _End]()
    while asked:
        starts, penalties = zip(*asked.values(), strict=True)
        reached = refine_all([problem] * len(asked), np.array(starts), 1e-7, penalties)
        for i, theta, objective in zip([*asked], *reached, strict=True):
            try:
                asked[i] = searches[i].send((theta, float(objective)))
            except StopIteration as end:
                ends[i] = end.value
                del asked[i]
    return [ends[i] for i in range(len(searches))]


@dataclass(frozen=True, eq=False)
class _ToFirstOrder:
    """A parameter and its variances to first order; `course` (p,), what theta does there as it moves by one."""

    number: int
    best: float
    bread: float
    variance: float
    freedom: float
    course: np.ndarray

    @property
    def threshold(self) -> float:
        return float(stdtrit(self.freedom, TAILS[1]))


def _to_first_order(optimum: Optimum, names: Sequence[str]) -> list[_ToFirstOrder]:
    numbers = np.array([optimum.number(name) for name in names], dtype=int)
    best, known = [*optimum.problem.parameters(optimum.theta).values()], []
    slopes = slopes_of(optimum.problem, numbers, optimum.theta)
    for number, slope in zip(numbers.tolist(), slopes, strict=True):
        bread, variance = optimum.sandwich.variances(slope)
        freedom = max(optimum.sandwich.freedom(slope), LEAST_FREEDOM)
        course = optimum.sandwich.bread @ slope / (bread if bread > 0 else 1.0)
        known.append(_ToFirstOrder(number, best[number], bread, variance, freedom, course))
    return known


def _profile(one: _ToFirstOrder, below: _End, above: _End) -> Profile:
    best = one.best
    trail = [(v, -root) for v, root in below[1] if v < best] + [(best, 0.0)] + [t for t in above[1] if t[0] > best]
    trail.sort()
    return Profile(
        values=[v for v, _ in trail],
        # A descent ends slightly above the minimum, which the square root magnifies.
        roots=list(np.maximum.accumulate([root for _, root in trail])),
        freedom=one.freedom,
        closed=(below[0], above[0]),
    )


def _one_side(optimum: Optimum, one: _ToFirstOrder, side: float) -> _Search:
    best, bread, variance, threshold = one.best, one.bread, one.variance, one.threshold
    scale = np.sqrt(variance)
    theta, trail = optimum.theta, []
    target = best + side * scale * threshold * (1 + 1 / STIFFNESS)
    inside, outside, beyond = (best, 0.0), None, None
    for _ in range(14):
        penalty = Penalty(one.number, target, STIFFNESS / bread)
        step = one.course * (target - inside[0])
        if outside is not None and beyond is not None:
            step = (beyond - theta) * (target - inside[0]) / (outside[0] - inside[0])
        there, objective = yield _better(optimum.problem, theta, step, penalty), penalty
        reached = [*optimum.problem.parameters(there).values()][one.number]
        root = float(np.sqrt(max(0.0, 2 * (objective - optimum.objective)) * bread / variance))
        trail.append((reached, root))
        if abs(root - threshold) < CLOSE * threshold:
            return True, trail
        if root > threshold:
            outside, beyond = (reached, root), there
        elif side * (reached - inside[0]) > 0:
            inside, theta = (reached, root), there
        if outside is None:
            if side * (target - best) > FARTHEST * scale:
                return False, trail
            target = best + 2 * (target - best)
            continue
        if abs(outside[0] - inside[0]) < 1e-3 * scale:
            return True, trail
        slope = (outside[1] - inside[1]) / (outside[0] - inside[0])
        # At the penalised optimum the slopes of penalty and profile cancel.
        before, target = target, inside[0] + (threshold - inside[1]) / slope + threshold * slope * variance / STIFFNESS
        if abs(target - before) < SAME * scale:
            return True, trail
    return outside is not None, trail


def _better(problem: Problem, theta: np.ndarray, step: np.ndarray, penalty: Penalty) -> np.ndarray:
    """theta moved by the step within the bounds, or theta where that has the smaller objective."""
    m = len(theta) - len(problem.nonlinear)
    moved = theta + step
    moved[m:] = np.clip(moved[m:], problem.lower, problem.upper)
    moved[:m] = np.clip(moved[:m], 0.0, problem.limits(moved[m:]))
    return moved if penalised(problem, moved, penalty) < penalised(problem, theta, penalty) else theta
