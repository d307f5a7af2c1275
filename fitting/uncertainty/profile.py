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

STIFFNESS = 30.0
"""Strength of the penalty, in units of the curvature of the profile."""
CLOSE = 1e-3
"""Relative tolerance of the root of the deviance at an end of the interval."""
NARROW = 1e-4
"""Standard errors apart at which two places on both sides of the threshold are the end: the profile has a step."""
MOVED = 0.01
"""Part of the way to the next place by which a parameter moves at least."""
STIFFEST = 1e4
"""Up to which that strength grows where a penalty moves the number less."""
SAME = 1e-9
"""Standard errors by which a place at a bound differs from the last."""
DESCENTS = 20
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


@dataclass(frozen=True, eq=False)
class _Place:
    """A place of a profile: how far it is from the estimate, towards a side, the root of the deviance, and theta."""

    distance: float
    root: float
    theta: np.ndarray


def _one_side(optimum: Optimum, one: _ToFirstOrder, side: float) -> _Search:
    """Where the root of the deviance meets the threshold on a side: outwards, then between two places."""
    bread, variance, threshold, scale = one.bread, one.variance, one.threshold, np.sqrt(one.variance)
    places, inside, outside = [], _Place(0.0, 0.0, optimum.theta), None
    last, course, aim, slope, stiffness = inside, side * one.course, threshold * scale / 2, 1 / scale, STIFFNESS
    for _ in range(DESCENTS):
        # At the penalised optimum the slopes of penalty and profile cancel.
        target = aim + threshold * slope * variance / stiffness
        penalty = Penalty(one.number, one.best + side * target, stiffness / bread)
        start = _better(optimum.problem, last.theta, course * (aim - last.distance), penalty)
        theta, objective = yield start, penalty
        value = [*optimum.problem.parameters(theta).values()][one.number]
        root = float(np.sqrt(max(0.0, 2 * (objective - optimum.objective)) * bread / variance))
        there = _Place(side * (value - one.best), root, theta)
        places.append(there)
        if abs(root - threshold) < CLOSE * threshold:
            inside = outside = there
            break
        if root < threshold and outside is not None and there.distance >= outside.distance:
            # What was outside is of another minimum, above the profile.
            outside = None
        far = outside.distance if outside is not None else np.inf
        if not inside.distance + MOVED * (aim - inside.distance) < there.distance < far:
            # No penalty moves what is at a bound. Where a profile bends down a weak penalty has no minimum.
            if stiffness > STIFFEST or abs(there.distance - inside.distance) < SAME * scale:
                break
            stiffness *= 10
            continue
        other = inside if root > threshold or outside is None else outside
        course = (there.theta - other.theta) / (there.distance - other.distance)
        measured = (target - there.distance) * stiffness / (variance * root) if root else 0.0
        aim, slope = _next_aim(there, measured, other, threshold)
        inside, outside, last = (inside, there, there) if root > threshold else (there, outside, there)
        if outside is None and inside.distance > FARTHEST * scale:
            break
        if outside is None:
            aim = aim if last.distance < aim < 2 * last.distance else 2 * last.distance
        elif outside.distance - inside.distance < NARROW * scale:
            break
        elif not inside.distance < aim < outside.distance:
            aim = (inside.distance + outside.distance) / 2
            slope = (outside.root - inside.root) / (outside.distance - inside.distance)
    # Others are of other minima, above the profile.
    kept = [place for place in places if (place.distance <= inside.distance) == (place.root <= inside.root)]
    return outside is not None, [(one.best + side * place.distance, place.root) for place in kept]


def _next_aim(there: _Place, slope: float, other: _Place, threshold: float) -> tuple[float, float]:
    """The distance at which the root is expected to be at the threshold, and the slope of the root there.

    The distance is taken for a parabola in the root, through two places with the slope at the first; for a line where
    that turns.
    """
    run, gap, rest = other.distance - there.distance, other.root - there.root, threshold - there.root
    if slope > 0 and gap:
        bend = (run - gap / slope) / gap**2
        if (inverse := 1 / slope + 2 * bend * rest) > 0:
            return there.distance + rest / slope + bend * rest**2, 1 / inverse
    slope = gap / run
    return (there.distance + rest / slope if slope > 0 else np.inf), max(slope, 0.0)


def _better(problem: Problem, theta: np.ndarray, step: np.ndarray, penalty: Penalty) -> np.ndarray:
    """theta moved by the step within the bounds, or theta where that has the smaller objective."""
    m = len(theta) - len(problem.nonlinear)
    moved = theta + step
    moved[m:] = np.clip(moved[m:], problem.lower, problem.upper)
    moved[:m] = np.clip(moved[:m], 0.0, problem.limits(moved[m:]))
    return moved if penalised(problem, moved, penalty) < penalised(problem, theta, penalty) else theta
