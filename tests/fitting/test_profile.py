"""Ends of profile intervals against refits by another optimiser, with the parameter fixed on the way to them."""

import functools

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import stdtrit

import fitting
from fitting.points import TAILS
from fitting.solver.derivatives import parameter_curvatures, slopes_of
from fitting.solver.objective import given_of, model_at, state_at
from fitting.uncertainty.profile import Optimum, Profile, profiles
from tests.fitting.synthetic import TRUE, grid, measured, small_plan


def optimum_of(law: str, seed: int) -> Optimum:
    """Of 120 points of the D-CPT paper's law, or of a plan of the law's own."""
    plan, truth = grid(ratios=(0.1, 0.33, 0.67, 1.0), evaluations=10, every=14_000), "dcpt"
    if not law.startswith("dcpt"):
        plan, truth = small_plan(law).iloc[::5], law
    points = measured(plan, truth, TRUE[truth], noise=0.003, seed=seed, run_noise=0.002)
    optimum = fitting.fit(points, law, bootstrap=0).optimum
    assert optimum is not None
    return optimum


@functools.cache
def profiled(law: str, seed: int) -> tuple[Optimum, list[Profile]]:
    """The optimum and the profiles of all its parameters."""
    optimum = optimum_of(law, seed)
    return optimum, profiles(optimum, [*optimum.problem.names])


def least_objective(optimum: Optimum, number: int, value: float, starts: list[np.ndarray]) -> tuple[float, np.ndarray]:
    """The least objective where a parameter has a value, by sequential quadratic programming, and theta there."""
    problem, unit = optimum.problem, optimum.objective
    m = len(optimum.theta) - len(problem.nonlinear)
    given = given_of([problem], [None])
    lower = np.concatenate([np.zeros(m), problem.lower])
    upper = np.concatenate([np.full(m, np.inf), problem.upper])

    def with_gradient(theta: np.ndarray) -> tuple[float, np.ndarray]:
        at = problem.at(theta[None, m:])
        state = state_at(problem, given, at, theta[None])
        if not np.isfinite(state.objective[0]):
            return 1e6, np.zeros(len(theta))
        return float(state.objective[0]) / unit, model_at(problem, given, at, state).gradient[0] / unit

    def apart(theta: np.ndarray) -> float:
        return [*problem.parameters(theta).values()][number] / value - 1

    def slope(theta: np.ndarray) -> np.ndarray:
        return slopes_of(problem, np.array([number]), theta)[0] / value

    reached = [
        minimize(
            with_gradient,
            np.clip(start, lower, upper),
            jac=True,
            method="SLSQP",
            bounds=list(zip(lower, upper)),
            constraints={"type": "eq", "fun": apart, "jac": slope},
            options={"maxiter": 300, "ftol": 1e-10},
        )
        for start in starts
    ]
    best = min((one for one in reached if abs(apart(one.x)) < 1e-6), key=lambda one: one.fun)
    return best.fun * unit, best.x


@pytest.mark.parametrize(
    ("law", "seed", "name", "side"),
    [
        ("dcpt", 1, "B", 1),
        ("dcpt", 2, "eta", 1),
        ("dcpt", 2, "C", -1),
        ("dcpt-l2", 1, "A", 1),
        ("dcpt-l2", 4, "C/B", 1),
        ("dcpt-l2", 4, "beta", 1),
        ("chinchilla", 0, "B", -1),
        ("transfer-anchored", 0, "G", 1),
    ],
)
def test_an_interval_ends_where_the_profile_meets_the_threshold(law, seed, name, side):
    (optimum, every), rng = profiled(law, seed), np.random.default_rng(0)
    number, m = optimum.number(name), len(optimum.theta) - len(optimum.problem.nonlinear)
    profile = every[number]
    end = profile.interval()[side > 0]
    bread, variance = optimum.sandwich.variances(slopes_of(optimum.problem, np.array([number]), optimum.theta)[0])
    best, theta, roots = [*optimum.problem.parameters(optimum.theta).values()][number], optimum.theta, []
    for part in (0.5, 1.0):
        spread = np.concatenate([np.full(m, 0.2), 0.15 * (optimum.problem.upper - optimum.problem.lower)])
        random = optimum.theta + spread * rng.standard_normal(len(theta))
        objective, theta = least_objective(optimum, number, best + part * (end - best), [theta, optimum.theta, random])
        rise = max(objective - optimum.objective, 0.0)
        roots.append(np.sqrt(2 * rise * bread / variance) / stdtrit(profile.freedom, TAILS[1]))
    assert profile.closed[side > 0]
    assert roots == sorted(roots)
    assert roots[-1] == pytest.approx(1.0, abs=2e-3)


@pytest.mark.parametrize(("law", "name"), [("dcpt", "B"), ("dcpt", "C"), ("dcpt-l2", "eta"), ("chinchilla", "A")])
def test_curvature_of_a_parameter(law, name):
    optimum = optimum_of(law, 0)
    problem, number, step = optimum.problem, np.array([optimum.number(name)]), 1e-5
    moved = [
        slopes_of(problem, number, optimum.theta + sign * step * one)[0]
        for one in np.eye(len(optimum.theta))
        for sign in (1, -1)
    ]
    wanted = (np.array(moved[::2]) - moved[1::2]) / (2 * step)
    (found,) = parameter_curvatures(problem, number, optimum.theta[None])
    assert found == pytest.approx(wanted, abs=2e-3 * max(np.abs(wanted).max(), 1e-6))
