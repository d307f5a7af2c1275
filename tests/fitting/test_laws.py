"""Every law that is registered: it comes back from its own points, from any seed, and its slopes are right."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import fitting
from fitting.laws import LAWS, UNKNOWN, Law, Solving
from fitting.schedule import ANNEALING, LAMBDA, Schedule, whole_schedules
from fitting.solver.prepare import Data, prepare_problem
from fitting.solver.problem import Problem
from tests.fitting.synthetic import schedules

OF_SHIFT = {"E": 20.0, "beta": 0.35}
DYNAMICS = {"L0": 2.6, "A": 0.9, "C1": 0.5, "C2": 0.6, "B": 0.5, "alpha": 0.45, **OF_SHIFT}
DCPT = {"E": 0.9, "A": 0.45, "B": 0.05, "C": 0.8, "alpha": 0.35, "beta": 0.25, "gamma": 0.2, "eta": 1.4, "eps": 0.08}
CROSS = {**DCPT, "F": 0.4, "mu": 0.8}
OPEN = {"C2": 0.005, "A": -0.1, "C": 0.05, "eps": 0.04, "E": 0.5}
OPEN_READ = {"C2": 4e-4, "Q": 0.1, "A": 0.1, "C": 0.25, "K": 0.02, "b": 1.0}
ANCHORED = {"C2": 0.3, "C": 0.08, "G": 0.4, "eps": 0.02, "E": 50.0}
TRUTH: dict[str, dict[str, float]] = {
    "openai": {"A": 2.2, "aN": 0.15, "aD": 0.2, "d": 0.5},
    "chinchilla": {"E": 1.7, "A": 0.4, "B": 0.9, "alpha": 0.35, "beta": 0.3},
    "power": {"E": 1.7, "B": 0.9, "beta": 0.3},
    "power-offset": {"E": 1.7, "B": 1.5, "beta": 0.5, "D0": 2.0},
    "rectified": {"E": 1.7, "B": 1.5, "beta": 0.7, "D0": 2.0},
    "rectified-floorless": {"B": 3.0, "beta": 0.4, "D0": 2.0},
    "power-floorless": {"B": 3.0, "beta": 0.1},
    "dcpt-l1": {"E": 0.9, "A": 0.45, "B": 0.3, "C": 0.5, "alpha": 0.35, "beta": 0.3, "gamma": 0.4, "eps": 0.08},
    "dcpt-l2": {
        **{"E": 0.9, "A": 0.45, "B^eta": 0.4, "alpha": 0.35, "beta": 0.4, "gamma": 0.6, "eta": 0.7},
        **{"C/B": 0.5, "eps": 0.1},
    },
    "dcpt": DCPT,
    "dcpt-convex": DCPT,
    "dcpt-free": {**DCPT, "C": 0.3, "B": 0.4, "eta": 0.6},
    "dcpt-l4": {"E": 0.9, "A": 0.45, "B": 0.3, "C": 0.6, "alpha": 0.35, "beta": 0.3, "b": 0.5, "c": 5.0},
    "dcpt-l5": {"E": 0.9, "A": 0.45, "B": 0.8, "alpha": 0.35, "beta": 0.3, "sigma": 0.4},
    "cross-domain-k1": CROSS,
    "cross-domain-k2": CROSS,
    "cross-domain-k3": {**CROSS, "w2": 0.7},
    "cross-domain-k4": {**CROSS, "w2": 0.7, "w3": 0.02},
    "annealing": {"L0": 2.6, "A": 0.9, "C": 0.5, "alpha": 0.45},
    "multi-power": {"L0": 2.6, "A": 0.5, "B": 300.0, "alpha": 0.45, "C": 2.0, "gamma": 0.5, "beta": 0.6},
    "dynamics": DYNAMICS,
    "dynamics-size": {**DYNAMICS, "F": 0.3, "g1": 0.1, "g2": 0.2, "g3": 0.4},
    "dynamics-replay": {**DYNAMICS, "a1": 0.5, "a2": 2.0},
    "dynamics-replay-domain": {**DYNAMICS, "B": -0.2, "a1": 0.5, "a2": 1.0},
    "dynamics-lr-weighted": DYNAMICS,
    "dynamics-lr-weighted-0.2": DYNAMICS,
    "dynamics-power": {**DYNAMICS, "zeta1": 0.8, "zeta2": 1.2},
    "transfer-anchored": ANCHORED,
    "transfer": {**ANCHORED, "L0": 2.0, "F": 0.5, "g": 0.3},
    "transfer-scaled": {**ANCHORED, "nu": -0.2},
    "transfer-rate": {**ANCHORED, "kappa": 0.4},
    "transfer-saturating": {**ANCHORED, "C": 0.3, "beta": 0.5},
    "transfer-switched": ANCHORED,
    "transfer-two-mixtures": {**ANCHORED, "beta": 0.3, "delta": 0.2, "eta": 0.08},
    "transfer-open": OPEN,
    "transfer-open-saturating": {**OPEN, "beta": 0.3},
    "transfer-replay": {"C2": 0.3, "C": 0.08, "G": 0.4, "K": 60.0, "b": 0.8, "E": 50.0, "beta": 0.3, "nu": -0.2},
    "transfer-read": {"C2": 0.3, "C": 0.3, "K": 700.0, "b": 0.9},
    "transfer-open-read": OPEN_READ,
    "transfer-open-read-domain": OPEN_READ,
    "ddo": {"c": 0.4, "a": 2.0, "b": 1.2},
    "data-mixing": {"c": 1.5, "k": 2.0, "t.first": -1.5, "t.second": -0.6},
}


SCHEDULES = {run: replace(one, before=one.rates[0]) for run, one in schedules(steps=2000).items()}
"""Of the runs of a law that reads the whole schedule."""


def options(name: str) -> dict:
    """What a fit of the law needs beside its points."""
    return {"schedules": SCHEDULES} if LAWS[name].whole_schedule else {}


def plan(law: Law) -> pd.DataFrame:
    """Some hundred points that hold whatever the laws read, varied independently."""
    if law.whole_schedule:
        runs, steps = np.repeat(list(SCHEDULES), 25), np.tile(np.geomspace(20, 2000, 25).astype(int), len(SCHEDULES))
        frame = pd.DataFrame({"run": runs, "step": steps})
        return frame.assign(s1=whole_schedules(frame, SCHEDULES)["area"])
    rng = np.random.default_rng(7)
    n = 240
    shares = rng.dirichlet([1, 1, 1], n)
    frame = pd.DataFrame(
        {
            "run": np.arange(n) // 10,
            "N": rng.choice([0.2, 0.5, 1.8, 4.0], n),
            "D": rng.uniform(0.5, 30, n),
            "r": rng.choice([0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0], n),
            "rho": 1.0,
            "s1": (s1 := rng.uniform(0.0, 3.0, n)),
            "s2": rng.uniform(-0.1, 0.5, n),
            "s1_root": rng.uniform(0.0, 300.0, n),
            "s2_square": rng.uniform(-30.0, 5.0, n),
            "s1_pretrain": rng.uniform(0.5, 6.0, n),
            "s2_pretrain": rng.uniform(0.0, 0.5, n),
            "loss_before": rng.uniform(3.0, 4.0, n),
            "k1": rng.choice([2.0, 2.5, 3.0, 3.5], n),
            "k2": rng.choice([0.2, 0.4, 0.7, 1.0], n),
            "k3": rng.choice([0.01, 0.02, 0.05], n),
            "x": rng.uniform(0.2, 4.0, n),
            "r_first": rng.choice([0.0, 0.1, 0.5, 1.0], n),
            "s1_first": s1 * rng.uniform(0.2, 0.9, n),
            **{f"mixture.{name}": shares[:, j] for j, name in enumerate(("first", "second", "third"))},
        }
    )
    if law.name == "annealing":
        frame["s1"] += 0.1
    return frame


def bound(name: str, frame: pd.DataFrame) -> Law:
    law = LAWS[name]
    return law.for_corpora([c for c in frame.columns if c.startswith("mixture.")]) if law.for_corpora else law


def with_loss(name: str, noise: float) -> pd.DataFrame:
    frame = plan(LAWS[name])
    law = bound(name, frame)
    x = {column: frame[column].to_numpy(float) for column in law.columns}
    x |= whole_schedules(frame, SCHEDULES) if law.whole_schedule else {}
    loss = law.loss(x, TRUTH[name])
    errors = noise * np.random.default_rng(1).standard_normal(len(frame))
    return frame.assign(loss=loss * np.exp(errors))


@pytest.mark.parametrize("gamma", [0.0, 0.02, 0.5])
def test_the_multi_power_law_is_the_sum_of_its_paper(gamma):
    path = 1e-3 * np.array([1.0, 0.5, 0.0, 0.5, 0.5, 0.2, 1.0, 0.1, 0.1])  # It falls to 0 and rises again.
    params, area = {**TRUTH["multi-power"], "gamma": gamma}, np.cumsum(path) - path[0]
    points = pd.DataFrame({"run": "a", "step": np.arange(1, len(path))})
    whole = whole_schedules(points, {"a": Schedule(path[1:], before=path[0])})
    L0, A, B, alpha, C, _, beta = params.values()

    def gain(t: int, k: int) -> float:
        since = area[t] - area[k - 1]
        speed = C if not gamma else C * path[k] ** -gamma if path[k] else np.inf
        return (path[k - 1] - path[k]) * (1 - (1 + speed * since) ** -beta) if since and path[k] < path[k - 1] else 0.0

    for t in points["step"]:
        loss = L0 + A * area[t] ** -alpha - B * sum(gain(t, k) for k in range(1, t + 1))
        x = {"s1": area[[t]], **{name: values[[t - 1]] for name, values in whole.items()}}
        assert LAWS["multi-power"].loss(x, params) == pytest.approx([loss])


def test_every_law_has_true_parameters():
    assert set(TRUTH) == set(LAWS)


@pytest.mark.parametrize("name", LAWS)
def test_exact_points_give_back_the_law(name):
    points = with_loss(name, noise=0.0)
    fit = fitting.fit(points, name, bootstrap=0, **options(name))
    assert fit.objective < 1e-9
    assert fit.params == pytest.approx(TRUTH[name], rel=2e-2)


@pytest.mark.parametrize("name", LAWS)
def test_first_guesses_end_at_one_optimum(name):
    points = with_loss(name, noise=0.003)
    methods = [fitting.VarPro(first_guesses=number) for number in range(2)]
    one, other = (fitting.fit(points, name, bootstrap=0, method=method, **options(name)) for method in methods)
    assert one.objective == pytest.approx(other.objective, rel=1e-5)


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("held", [False, True])
def test_among_several_places_a_law_is_what_it_is_alone(name, held):
    points = with_loss(name, noise=0.0)
    law = bound(name, points)
    fix = {p.name: TRUTH[name][p.name] for p in (law.linear[0], law.nonlinear[0])} if held else {}
    problem = prepare_problem(points, name, Data(options(name).get("schedules"), fix=fix)).problem
    truth = [p.coordinate(TRUTH[name].get(p.name, 0.9)) for p in problem.nonlinear]
    z = np.clip(np.array(truth) + 0.02 * np.array([[0.0], [1.0], [-1.0]]), problem.lower, problem.upper)
    u = np.linspace(0.5, 1.0, len(problem.at(z[0]).rows)) * np.array([[1.0], [0.9], [1.1]])
    pulls = np.random.default_rng(0).standard_normal((3, len(points)))
    at = problem.at(z)
    loss, values = at.loss(u), problem.parameter_values(at, u)
    slopes, pulled = problem.slope_rows(at, u, loss), problem.slope_rows(at, u, loss, pulls=pulls)
    for i in range(3):
        alone = problem.at(z[i])
        assert loss[i] == pytest.approx(alone.loss(u[i]), rel=1e-12)
        assert values[i] == pytest.approx(problem.parameter_values(alone, u[i]), rel=1e-12)
        own = problem.slope_rows(alone, u[i], loss[i])
        assert slopes[i] == pytest.approx(own, rel=1e-6, abs=1e-8)
        assert pulled[i] == pytest.approx(own @ pulls[i], rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("name", [name for name, law in LAWS.items() if law.slopes])
@pytest.mark.parametrize("fixed", [False, True])
def test_slopes_are_those_of_the_law(name, fixed):
    points = with_loss(name, noise=0.0)
    law = bound(name, points)
    fix = {law.linear[0].name: TRUTH[name][law.linear[0].name]} if fixed else {}
    x = {column: points[column].to_numpy(float) for column in law.columns}
    problem = Problem(law, x, points["loss"].to_numpy(), np.ones(len(points)), law.constants(x), fixed=fix)
    z = np.array([p.coordinate(TRUTH[name][p.name]) for p in problem.nonlinear])
    u = np.linspace(0.5, 1.0, problem.columns(z)[1].shape[1])
    for scaled in (True, False):
        offset, columns = problem.columns(z)
        slopes = problem.slopes(z, u, offset + columns @ u, scaled=scaled)
        for j in range(len(z)):
            step = np.zeros(len(z))
            step[j] = 1e-5
            ends = []
            for moved in (z + step, z - step):
                offset, columns = problem.columns(moved)
                amounts = u if scaled else u * problem.at(moved).size / problem.at(z).size
                ends.append(offset + columns @ amounts)
            assert slopes[:, j] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("name", [name for name, law in LAWS.items() if law.slopes])
def test_slopes_in_columns_that_a_fit_may_decide_are_those_of_the_law(name):
    points, law = with_loss(name, noise=0.0), LAWS[name]
    for column in {*ANNEALING, *UNKNOWN} & {*law.columns}:
        x = {c: points[c].to_numpy(float) for c in law.columns}
        x["rho"] = np.full(len(points), 0.3)
        psi = np.array([TRUTH[name][p.name] for p in law.nonlinear])
        up, down = ({**x, column: x[column] + step} for step in (1e-6, -1e-6))
        found = np.zeros((len(points), len(law.linear) + 1))
        for (k, j), slope in law.slopes(x, psi, law.basis(x, psi)).items():
            if j == column:
                found[:, k] = slope
        high, low = (
            np.column_stack([law.basis(one, psi), law.offset(one, psi) + np.zeros(len(points))]) for one in (up, down)
        )
        assert found == pytest.approx((high - low) / 2e-6, rel=1e-5, abs=1e-6)
        assert found.any()


@pytest.mark.parametrize("name", ["annealing", "dynamics-power", "transfer-open", "transfer-replay", "transfer-read"])
def test_the_slope_in_lambda_is_that_of_the_law(name):
    of_run = schedules(steps=200)
    points = with_loss(name, noise=0.0).iloc[:50]
    points = points.assign(run=np.resize(list(of_run), 50), step=np.linspace(1, 200, 50).astype(int))
    problem = prepare_problem(points, name, Data(of_run)).problem
    z = np.append([p.coordinate(TRUTH[name][p.name]) for p in LAWS[name].nonlinear], LAMBDA.coordinate(0.99))
    u = np.linspace(0.5, 1.0, problem.columns(z)[1].shape[1])
    offset, columns = problem.columns(z)
    for scaled in (True, False):
        exact = problem.slopes(z, u, offset + columns @ u, scaled)
        differences = replace(problem, law=replace(problem.law, slopes=None))
        assert exact == pytest.approx(differences.slopes(z, u, offset + columns @ u, scaled), rel=1e-4, abs=1e-5)
        assert exact[:, -1].any()
    places, amounts = np.array([z, z + 1e-3]), np.array([u, u])
    at = problem.at(places)
    among = problem.slope_rows(at, amounts, at.loss(amounts)).swapaxes(1, 2)
    alone = np.array([problem.slopes(one, u, problem.at(one).loss(u)) for one in places])
    assert among == pytest.approx(alone, rel=1e-9, abs=1e-12)


def test_what_a_paper_prints_otherwise_is_given_back():
    points = with_loss("openai", noise=0.0)
    fit = fitting.fit(points, "openai", bootstrap=0)
    p = fit.printed
    inner = (p["Nc"] / points["N"]) ** (p["aN"] / p["aD"]) + p["Dc"] / points["D"]
    assert (inner ** p["aD"]).to_numpy() == pytest.approx(points["loss"].to_numpy(), rel=1e-6)
    points = with_loss("dcpt-l2", noise=0.0)
    p = fitting.fit(points, "dcpt-l2", bootstrap=0).printed
    bracket = p["B"] * points["D"] ** -p["beta"] + p["C"] * (points["r"] + p["eps"]) ** -p["gamma"]
    loss = p["E"] + p["A"] * points["N"] ** -p["alpha"] + bracket ** p["eta"]
    assert loss.to_numpy() == pytest.approx(points["loss"].to_numpy(), rel=1e-5)


def test_a_law_of_one_curve_follows_its_end():
    """Where the form is wrong, late points decide: as many early ones again change nothing beyond."""
    D = np.geomspace(0.01, 1.0, 12)
    curve = pd.DataFrame({"D": D, "loss": 3.0 - 0.2 * np.log(D) - 0.02 * np.log(D) ** 2, "run": 0})
    end = pd.DataFrame({"D": [4.0]})
    late, even = (
        fitting.fit(curve, law, bootstrap=0, few=True).predict(end)[0]
        for law in (LAWS["power"], replace(LAWS["power"], name="even", solving=Solving()))
    )
    true = 3.0 - 0.2 * np.log(4.0) - 0.02 * np.log(4.0) ** 2
    assert abs(late - true) < 0.5 * abs(even - true)
    assert fitting.fit(curve, "rectified", bootstrap=0).printed["D_l"] > 0


def test_openais_law_is_finite_for_small_models_at_its_steepest():
    law = LAWS["openai"]
    x = {"N": np.array([5e-5, 4.0]), "D": np.array([1e-6, 10.0])}
    assert np.isfinite(law.basis(x, np.array([3.0, 0.01, 1e-8]))).all()
    plain = (x["N"] ** -0.75 + 0.5 / x["D"]) ** 0.2
    np.testing.assert_allclose(law.basis(x, np.array([0.15, 0.2, 0.5]))[:, 0], plain, rtol=1e-12)


def test_runs_of_one_mixture_need_no_columns_of_a_change():
    points = with_loss("transfer-anchored", noise=0.003)
    plain = points.drop(columns=["r_first", "s1_first"])
    same = plain.assign(r_first=plain["r"], s1_first=plain["s1"])
    fits = [fitting.fit(frame, "transfer-two-mixtures", bootstrap=0) for frame in (plain, same)]
    assert fits[0].params == fits[1].params
    np.testing.assert_array_equal(fits[0].predict(plain), fits[1].predict(same))
