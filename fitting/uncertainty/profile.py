"""Profile likelihood: how much worse the fit becomes as one number is led away and all others follow.

The objective is no log likelihood: its scale is arbitrary and the errors of a run go together. Twice its rise is
therefore multiplied by the ratio of the two variances that the Hessian alone and the sandwich give to the number
(Chandler & Bate 2007), and then compared with Student's t squared.

To lead the number, a spring pulls it: each point so found is the least objective at the value where the spring came
to rest, which is a point of the profile whatever the spring's strength.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import stdtrit

from fitting.parallel import over_cores
from fitting.solver.newton import Penalty, gradient_of, refine
from fitting.solver.problem import Problem
from fitting.uncertainty.sandwich import Sandwich, sandwich

STIFFNESS = 10.0
"""Of the spring, in the profile's own curvature."""
CLOSE = 0.02
"""How near the deviance's root must come to the one wanted, as a share of it."""
LEAST_FREEDOM = 2.0
FARTHEST = 30.0
"""Standard errors that a number is led away before its interval is called open."""


@dataclass(frozen=True, eq=False)
class Optimum:
    """What a profile starts from: theta, the least objective, the number of each point's run and the runs' names.

    A run whose name is None is another corpus's (`fitting.shared_estimation`).
    """

    problem: Problem
    theta: np.ndarray
    objective: float
    runs: np.ndarray
    names: list

    @cached_property
    def spread(self) -> Sandwich:
        """The fit to first order, worked out when it is first asked for: many fits only predict."""
        return sandwich(self.problem, self.theta, self.runs)


@dataclass(frozen=True)
class Profile:
    """A number's profile.

    `values`, ascending, and `roots`, the root of the deviance there, negative below the estimate: comparable with
    Student's t of `freedom` degrees of freedom. `closed`: (below, above), whether the deviance rose on that side to
    what the widest interval asked for needs.
    """

    values: list[float]
    roots: list[float]
    freedom: float
    closed: tuple[bool, bool]

    def interval(self, level: float = 0.9) -> tuple[float, float]:
        """(low, high) at a level; an end that was not reached is the last value that the number was led to."""
        edge = float(stdtrit(self.freedom, 0.5 + level / 2))
        return float(np.interp(-edge, self.roots, self.values)), float(np.interp(edge, self.roots, self.values))


def profile(optimum: Optimum, value: Callable[[np.ndarray], float], level: float = 0.9) -> Profile:
    """Lead value(theta) away from the optimum on both sides until an interval of the level is closed."""
    problem, theta = optimum.problem, optimum.theta
    upper = np.concatenate([np.full(len(theta) - len(problem.nonlinear), np.inf), problem.upper])
    lower = np.concatenate([np.zeros(len(theta) - len(problem.nonlinear)), problem.lower])
    best, slope = value(theta), gradient_of(value, theta, lower, upper)
    bread, spread = optimum.spread.variances(slope)
    freedom = max(optimum.spread.freedom(slope), LEAST_FREEDOM)
    if not (bread > 0 and spread > 0):
        # Nothing moves the number, or no error does: its column is not felt.
        return Profile([best], [0.0], freedom, (False, False))
    wanted = float(stdtrit(freedom, 0.5 + level / 2))
    below = _walk(optimum, value, best, -1.0, bread, spread, wanted)
    above = _walk(optimum, value, best, 1.0, bread, spread, wanted)
    trail = [(v, -root) for v, root in below[1] if v < best] + [(best, 0.0)] + [t for t in above[1] if t[0] > best]
    trail.sort()
    return Profile(
        values=[v for v, _ in trail],
        # The descent ends a hair above the least objective, and a root of a hair is no hair.
        roots=list(np.maximum.accumulate([root for _, root in trail])),
        freedom=freedom,
        closed=(below[0], above[0]),
    )


def profiles(optimum: Optimum, workers: int | None = None) -> dict[str, Profile]:
    """The profile likelihood of every parameter that was searched for. `workers`: as in `fit`."""
    problem = optimum.problem
    names = [name for name in problem.parameters(optimum.theta) if name not in problem.fixed]
    return dict(
        zip(names, over_cores(lambda name: profile(optimum, problem.reader(name)), names, workers), strict=True)
    )


def _walk(
    optimum: Optimum,
    value: Callable[[np.ndarray], float],
    best: float,
    side: float,
    bread: float,
    spread: float,
    wanted: float,
) -> tuple[bool, list[tuple[float, float]]]:
    """Whether the deviance rises enough on one side, and the (value, root of deviance) on the way."""
    scale = np.sqrt(spread)
    theta, trail = optimum.theta, []
    target = best + side * scale * wanted * (1 + 1 / STIFFNESS)
    inside, outside = (best, 0.0), None
    for _ in range(14):
        theta, objective = refine(optimum.problem, theta, 1e-7, Penalty(value, target, STIFFNESS / bread))
        reached = value(theta)
        root = float(np.sqrt(max(0.0, 2 * (objective - optimum.objective)) * bread / spread))
        trail.append((reached, root))
        if abs(root - wanted) < CLOSE * wanted:
            return True, trail
        if root > wanted:
            outside, theta = (reached, root), optimum.theta
        elif side * (reached - inside[0]) > 0:
            inside = (reached, root)
        if outside is None:
            if side * (target - best) > FARTHEST * scale:
                return False, trail
            target = best + 2 * (target - best)
            continue
        if abs(outside[0] - inside[0]) < 1e-3 * scale:
            return True, trail
        slope = (outside[1] - inside[1]) / (outside[0] - inside[0])
        # The spring rests where its pull equals the profile's own slope.
        target = inside[0] + (wanted - inside[1]) / slope + wanted * slope * spread / STIFFNESS
    return outside is not None, trail
