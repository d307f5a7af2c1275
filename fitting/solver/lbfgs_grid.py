"""The papers' own way: L-BFGS on the Huber objective from every start of a grid.

Kept for reproduction and as the peer of `varpro`: many of its starts end short of the optimum. Coefficients are
walked in as logarithms, as in Que et al. 2024, app. E.3; one that may have either sign as it is.
"""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import minimize

from fitting.points import PointsError
from fitting.solver.multi_start import Minimum
from fitting.solver.objective import huber
from fitting.solver.problem import Problem

WIDE, HALF = (-1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0), (-0.5, 0.0, 0.5)
GRIDS: dict[str, dict[str, tuple[float, ...]]] = {
    "chinchilla": {
        "E": (-1.0, -0.5, 0.0, 0.5, 1.0),
        **{name: (0.0, 5.0, 10.0, 15.0, 20.0, 25.0) for name in ("A", "B")},
        **{name: (0.0, 0.5, 1.0, 1.5, 2.0) for name in ("alpha", "beta")},
    },
    "dcpt-convex": {
        "E": (-1.0, -0.5, 0.0, 0.5, 1.0),
        **{name: WIDE for name in ("A", "B", "C")},
        **{name: HALF for name in ("alpha", "beta", "gamma")},
        # eta = 1 + exp(eta1), eta1 in HALF
        "eta": tuple(1 + float(np.exp(value)) for value in HALF),
        "eps": (0.0, 0.5),
    },
}
"""Starts of the papers (Hoffmann et al. 2022, app. D.3, for N and D as counts; Que et al. 2024, app. E.3): logarithms
of coefficients, values of shapes; those outside a bound start on it."""


@dataclass(frozen=True, eq=False)
class LbfgsGrid:
    """L-BFGS from every start of a grid.

    `grid`: parameter -> starting values, logarithms for coefficients; parameters that it leaves out take the paper's
    starts, or three over their range. `screened`: follow only so many starts, the best by the objective of at most 300
    points; None follows all.
    """

    grid: Mapping[str, Iterable[float]] = field(default_factory=dict)
    screened: int | None = 20

    def solve(self, problem: Problem) -> Minimum:
        """The least minimum reached. Raises PointsError for a parameter of the grid that the law does not have."""
        axes = _axes(problem, self.grid)
        m = len(axes) - len(problem.nonlinear)
        starts = np.array(list(itertools.product(*axes)))
        if self.screened is not None and len(starts) > self.screened:
            part = problem.subsample()
            values = [_objective(part, start, m)[0] for start in starts]
            starts = starts[np.argsort(values, kind="stable")[: self.screened]]
        low = np.concatenate([np.full(m, -30.0), problem.lower])
        high = np.concatenate([np.full(m, 30.0), problem.upper])
        best, least = starts[0], np.inf
        for start in starts:
            found = minimize(
                lambda point: _objective(problem, point, m),
                np.clip(start, low, high),
                jac=True,
                method="L-BFGS-B",
                bounds=list(zip(low, high, strict=True)),
                # The objective is some hundredths: at the default ftol, absolute below 1, it would stop early.
                options={"maxiter": 5000, "maxfun": 10_000, "ftol": 1e-13, "gtol": 1e-10},
            )
            if found.fun < least:
                best, least = found.x, float(found.fun)
        return Minimum(problem, _theta(problem, best, m), least)


def _axes(problem: Problem, grid: Mapping[str, Iterable[float]]) -> list[list[float]]:
    names = [p.name for p in problem.law.parameters if p.name not in problem.fixed]
    unknown = [name for name in grid if name not in names]
    if unknown:
        raise PointsError(f"grid: {problem.law.name} does not search for {', '.join(unknown)}; it does for {names}")
    given = {**GRIDS.get(problem.law.name, {}), **{name: tuple(values) for name, values in grid.items()}}
    amounts = [p for p in problem.law.linear if p.name not in problem.fixed]
    amounts += [p for p in amounts if p.either_sign and problem.law.cone is None]
    axes = [list(given.get(p.name, (-2.0, 0.0, 2.0))) for p in amounts]
    for p, low, high in zip(problem.nonlinear, problem.lower, problem.upper, strict=True):
        if p.name in given:
            values = np.array([p.coordinate(max(value, p.low)) for value in given[p.name]])
        else:
            values = np.linspace(p.coordinate(p.start[0]), p.coordinate(p.start[1]), 3)
        axes.append(np.clip(values, low, high).tolist())
    return axes


def _theta(problem: Problem, point: np.ndarray, m: int) -> np.ndarray:
    z = point[m:]
    return np.concatenate([np.exp(point[:m]) * problem.at(z).size, z])


def _objective(problem: Problem, point: np.ndarray, m: int) -> tuple[float, np.ndarray]:
    """The Huber sum and its gradient; the point holds logarithms of the generators' coefficients, then z."""
    theta = _theta(problem, point, m)
    u, z = theta[:m], theta[m:]
    offset, columns = problem.columns(z)
    at = offset + columns @ u
    if not (np.isfinite(at) if problem.scale else at > 0).all():
        return 1e6, np.zeros(len(point))
    residuals = problem.residuals(at)
    pull = problem.point_weights * np.clip(residuals, -problem.delta, problem.delta) / problem.unit(at)
    # With the coefficients held, not the scaled amounts: what the scaling takes is given back.
    slopes = problem.slopes(z, u, at, scaled=False)
    gradient = np.concatenate([(pull @ columns) * u, pull @ slopes])
    return float(problem.point_weights @ huber(residuals, problem.delta)), gradient
