"""The papers' objective, the sum of Huber(1e-3) of log residuals, with the prior and penalties, at several theta."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from fitting.solver.derivatives import parameter_slopes
from fitting.solver.law_at import LawAt
from fitting.solver.problem import DELTA, Problem


@dataclass(frozen=True)
class Penalty:
    """A quadratic penalty on one parameter, by its number among the problem's names.

    strength / 2 (parameter - target)^2 is added to the objective.
    """

    number: int
    target: float
    strength: float


def huber(residuals: np.ndarray, delta: float = DELTA) -> np.ndarray:
    """Huber loss: quadratic up to delta, linear beyond."""
    clipped = np.clip(residuals, -delta, delta)
    return clipped * (residuals - clipped / 2)


@dataclass(eq=False)
class Rows:
    """Arrays with a row for each of several descents."""

    def take(self, rows: np.ndarray | slice) -> Self:
        """Some of the rows; a slice stands for all."""
        if isinstance(rows, slice):
            return self
        return type(self)(**{name: values[rows] for name, values in vars(self).items()})

    def put(self, rows: np.ndarray | slice, other: Self) -> Self:
        """The same with other rows in place of some, which are overwritten; a slice stands for all."""
        if isinstance(rows, slice):
            return other
        for name, values in vars(other).items():
            vars(self)[name][rows] = values
        return self


@dataclass(eq=False)
class Given(Rows):
    """What descents are given: targets and weights (rows, n), mean and precision of the prior (rows, p), and of their
    penalties (rows,) the number of the parameter, what it is to be, and the strength, 0 for none.
    """

    target: np.ndarray
    weights: np.ndarray
    mean: np.ndarray
    precision: np.ndarray
    number: np.ndarray
    aim: np.ndarray
    strength: np.ndarray


def given_of(problems: Sequence[Problem], penalties: Sequence[Penalty | None]) -> Given:
    """What differs between descents of one law: a row for each problem with its penalty; all have one, or none."""
    mean, precision = (np.array(each) for each in zip(*(problem.mean_and_precision for problem in problems)))
    targets, weights = ([getattr(one, name) for one in problems] for name in ("log_loss", "point_weights"))
    each = [(0, 0.0, 0.0) if one is None else (one.number, one.target, one.strength) for one in penalties]
    return Given(np.array(targets), np.array(weights), mean, precision, *map(np.array, zip(*each)))


@dataclass(eq=False)
class State(Rows):
    """theta (rows, p), its objective, how far (rows,) the penalised parameter is from its aim, loss (rows, n), log
    residuals, and these clipped and weighted.
    """

    theta: np.ndarray
    objective: np.ndarray
    away: np.ndarray
    loss: np.ndarray
    residuals: np.ndarray
    scores: np.ndarray


def state_at(problem: Problem, given: Given, at: LawAt, theta: np.ndarray) -> State:
    """The state at each theta; the objective is infinite where a loss is not positive."""
    loss = at.loss(theta[:, : at.rows.shape[-2]])
    if problem.scale:
        valid, residuals = np.isfinite(loss), (loss - given.target) / problem.scale
    else:
        valid = loss > 0
        residuals = np.log(np.where(valid, loss, 1.0)) - given.target
    clipped = np.minimum(np.maximum(residuals, -problem.delta), problem.delta)
    scores, apart = given.weights * clipped, theta - given.mean
    objective = np.einsum("rn,rn->r", scores, residuals - clipped / 2)
    objective += np.einsum("rp,rp->r", given.precision * apart, apart) / 2
    away = np.zeros(len(theta))
    if given.strength[0]:
        values = problem.parameter_values(at, theta[:, : at.rows.shape[-2]])
        away = values[np.arange(len(theta)), given.number] - given.aim
        objective += given.strength / 2 * away**2
    if not valid.all():
        objective[~valid.all(axis=1)] = np.inf
    return State(theta, objective, away, loss, residuals, scores)


@dataclass(eq=False)
class Model(Rows):
    """Where descents are: derivatives (rows, p, n) of the residuals, upper bounds (rows, p), and of the objective the
    gradient (rows, p), that of the residuals alone, and the Hessian (rows, p, p) without second derivatives of the law,
    of the Huber loss and of the quadratic above it.
    """

    rows: np.ndarray
    upper: np.ndarray
    gradient: np.ndarray
    pulled: np.ndarray
    newton: np.ndarray
    majorant: np.ndarray


def model_at(problem: Problem, given: Given, at: LawAt, there: State) -> Model:
    """The derivatives at each state: of its residuals and of the objective, the penalty among it."""
    p, m = there.theta.shape[1], at.rows.shape[-2]
    slopes = problem.slope_rows(at, there.theta[:, :m], there.loss)
    rows = np.concatenate([at.rows, slopes], axis=1)
    if problem.scale:
        rows /= problem.scale
    else:
        rows /= there.loss[:, None]
    upper = np.empty(there.theta.shape)
    upper[:, :m], upper[:, m:] = problem.most(at.size), problem.upper
    pulled = (rows @ there.scores[..., None])[..., 0]
    gradient = pulled + given.precision * (there.theta - given.mean)
    newton, majorant = gauss_newton(problem, given, rows, there.residuals)
    for hessian in (newton, majorant):
        hessian.reshape(-1, p * p)[:, :: p + 1] += given.precision
    if given.strength[0]:
        slope = parameter_slopes(problem, at, given.number, there.theta)
        gradient += (given.strength * there.away)[:, None] * slope
        outer = given.strength[:, None, None] * slope[:, :, None] * slope[:, None, :]
        newton, majorant = newton + outer, majorant + outer
    return Model(rows, upper, gradient, pulled, newton, majorant)


def gauss_newton(
    problem: Problem, given: Given, rows: np.ndarray, residuals: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The Gauss-Newton Hessians (..., p, p) of the Huber loss, and those of the quadratic above; rows (..., p, n)."""
    size = np.abs(residuals)
    close = given.weights * (size <= problem.delta)
    within = given.weights * (problem.delta / np.maximum(size, problem.delta))
    columns = rows.swapaxes(-1, -2)
    return (rows * close[:, None]) @ columns, (rows * within[:, None]) @ columns


def penalised(problem: Problem, theta: np.ndarray, penalty: Penalty) -> float:
    """The objective with the penalty; infinite where a loss is not positive."""
    at = problem.at(theta[None, len(theta) - len(problem.nonlinear) :])
    return float(state_at(problem, given_of([problem], [penalty]), at, theta[None]).objective[0])
