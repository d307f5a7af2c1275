"""The descents beneath a fit: their second derivatives, their steps, and where they end."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import fitting
from fitting.cross_validation import folds
from fitting.laws import LAWS
from fitting.solver.bounded_step import bounded_step, bounded_steps
from fitting.solver.derivatives import second_derivatives
from fitting.solver.multi_start import VarPro
from fitting.solver.newton import refine, refine_all
from fitting.solver.prepare import Data, prepare_problem
from fitting.solver.problem import Problem
from tests.benchmarks.tables import points_of
from tests.fitting.synthetic import TRUE, grid, measured

CORNER = {**TRUE["dcpt"], "E": 2.3, "A": 0.6, "C": 0.14}
"""A truth that breaks dcpt's constraint: the best allowed lies along a flat direction."""


def problem_of(law: str, evaluations: int = 20) -> Problem:
    points = measured(grid(evaluations=evaluations, every=10_000), "dcpt", CORNER, noise=0.003)
    return prepare_problem(points, LAWS[law], Data()).problem


@pytest.mark.parametrize("law", ["dcpt", "dcpt-l2", "dcpt-l4", "openai"])
def test_curvature_is_that_of_the_loss(law):
    problem = problem_of(law)
    z = np.array([p.coordinate(np.sqrt(p.start[0] * p.start[1])) for p in problem.nonlinear])
    m = problem.columns(z)[1].shape[1]
    theta = np.concatenate([np.linspace(0.3, 1.0, m), z])
    pulls = np.random.default_rng(0).standard_normal(len(problem.loss)) / len(problem.loss)

    def pulled(theta: np.ndarray) -> float:
        offset, columns = problem.columns(theta[m:])
        return float(pulls @ (offset + columns @ theta[:m]))

    step = 1e-3 * np.eye(len(theta))
    wanted = [
        [(pulled(theta + a + b) - pulled(theta + a - b) - pulled(theta - a + b) + pulled(theta - a - b)) / 4e-6
         for a in step] for b in step
    ]  # fmt: skip
    columns = problem.columns(z)[1]
    slopes = problem.slopes(z, theta[:m], columns @ theta[:m])
    gradient = np.concatenate([pulls @ columns, pulls @ slopes])
    (found,) = second_derivatives(problem, theta[None], pulls[None], gradient[None])
    assert found == pytest.approx(np.array(wanted), abs=1e-3 * np.abs(wanted).max())


def test_a_step_stays_within_its_bounds_and_needs_a_minimum():
    hessian, gradient = np.array([[2.0, 1.9], [1.9, 2.0]]), np.array([-1.0, -1.0])
    step = bounded_step(hessian, gradient, np.full(2, -1.0), np.array([0.1, 9.0]))
    assert step == pytest.approx([0.1, (1 - 0.19) / 2])
    assert bounded_step(np.diag([1.0, -1.0]), gradient, np.full(2, -1.0), np.full(2, 1.0)) is None
    hessians, gradients = np.array([hessian, np.diag([1.0, -1.0]), hessian]), np.array([gradient, gradient, -gradient])
    down = np.array([[-1.0, -1.0], [-1.0, -1.0], [0.0, -9.0]])
    steps, possible = bounded_steps(hessians, gradients, down, np.array([[0.1, 9.0], [1.0, 1.0], [9.0, 9.0]]))
    assert possible.tolist() == [True, False, True]
    assert steps == pytest.approx(np.array([[0.1, (1 - 0.19) / 2], [0.0, 0.0], [0.0, -0.5]]))


@pytest.mark.parametrize("law", ["chinchilla", "dcpt", "dcpt-l2", "openai"])
def test_descents_that_go_together_end_where_each_does_alone(law):
    problem = problem_of(law, evaluations=4)
    end = VarPro().solve(problem)
    factors = np.random.default_rng(0).exponential(size=(5, len(problem.loss)))
    drawn = [replace(end.problem, point_weights=one) for one in factors]
    thetas, objectives = refine_all(drawn, np.tile(end.theta, (5, 1)), 1e-9)
    alone = [refine(one, end.theta, 1e-9) for one in drawn]
    assert objectives == pytest.approx([objective for _, objective in alone], rel=1e-7)
    ends = zip(thetas, (theta for theta, _ in alone), strict=True)
    for theta, other in ends:
        assert [*problem.parameters(theta).values()] == pytest.approx([*problem.parameters(other).values()], rel=1e-3)


def test_a_descent_along_a_flat_direction_converges():
    points = points_of("math", "general")
    fold = list(folds(points, "ratio-pairs"))[21]
    problem = prepare_problem(points[fold.fitted], LAWS["dcpt-l4"], Data()).problem
    end = VarPro(prior=False).solve(problem)
    assert refine(problem, end.theta, tolerance=1e-15)[1] == pytest.approx(end.objective, rel=1e-10)
    assert end.objective == pytest.approx(0.008400068923255578, rel=1e-10)


def test_with_every_exponent_given_the_coefficients_are_all_that_is_fitted():
    points = pd.DataFrame([(N, D, 2 + N**-0.5 + D**-0.25) for N in (1, 4, 9) for D in (1, 16, 81)])
    points = points.set_axis(["N", "D", "loss"], axis=1).assign(run=range(9))
    found = fitting.fit(points, "chinchilla", bootstrap=0, fix={"alpha": 0.5, "beta": 0.25}).params
    assert [found[name] for name in ("E", "A", "B")] == pytest.approx([2, 1, 1], abs=1e-6)
