"""points + law -> Fit: check, project, polish, resample."""

import warnings as python_warnings

import numpy as np
import pandas as pd

from fitting.bootstrap import resample, restore_spread
from fitting.fitted import Fit
from fitting.laws import LAWS, Law
from fitting.points import PointsError, check_enough, columns_of, law_named, numbers_of, with_value
from fitting.polish import huber, polish
from fitting.problem import Problem
from fitting.projection import starting_points
from fitting.schedule import Schedules, annealing_curve, with_areas

SUBSAMPLE = 300
"""Points that the search for the right valley looks at."""


def fit(
    points: pd.DataFrame,
    law: str,
    *,
    method: str = "varpro",
    seed: int = 0,
    schedules: Schedules | None = None,
    bootstrap: int = 200,
    weights: np.ndarray | None = None,
) -> Fit:
    """Fit a law to the measured losses of one validation corpus.

    Parameters: `points`, one row a point, with the law's columns, `loss` (nats per token) and `run`, which
    names the run that a point belongs to; N in billions of parameters, D in billions of tokens, r and rho in
    [0, 1]. `law`, a name in `fitting.LAWS`. `seed` decides first guesses and bootstrap draws. `schedules`,
    run -> (learning rates, one a step; the rate before the run): with them a law that reads s2 gets lambda,
    the decay of S2, as one more parameter, and S2 is computed at each point's `step`. `bootstrap`, number of
    refits for the intervals (0: none). `weights` (n,), non-negative, one a point.

    Points at D = 0 are left out, and `warnings` says so, when the law reads D: it has no value there.

    Raises PointsError, one line, for points that cannot be used.

    Source: variable projection (Golub & Pereyra 1973), then the objective of Que et al. 2024, app. E.3.

    >>> import pandas as pd
    >>> points = pd.DataFrame([(N, D, 2 + N**-0.5 + D**-0.25) for N in (1, 4, 9) for D in (1, 16, 81)],
    ...                       columns=["N", "D", "loss"]).assign(run=range(9))
    >>> round(fit(points, "chinchilla", bootstrap=0).params["alpha"], 3)
    0.5
    """
    chosen = law_named(law, LAWS)
    if method != "varpro":
        raise PointsError(f"method {method!r} is unknown: there is 'varpro'")
    notes: list[str] = []
    points, weights, runs = _prepare(points, chosen, weights, notes)
    problem, points = _problem(points, chosen, weights, schedules)

    rng = np.random.default_rng(seed)
    theta, objective = _minimise(problem, rng)
    params = problem.parameters(theta)
    x = {name: points[name].to_numpy(dtype=float) for name in chosen.columns}
    if "lambda" in params:
        x["s2"] = with_areas(points, schedules or {}, params["lambda"])["s2"].to_numpy()
    n_runs = int(runs.max()) + 1
    if n_runs < 5:
        notes.append(f"{n_runs} runs only: intervals rest on how runs differ, which so few cannot show")
    draws = resample(problem, theta, runs, bootstrap, rng)
    _, errors = restore_spread(problem, theta, runs)
    run_errors = np.bincount(runs, errors) / np.bincount(runs)
    return Fit(
        law=law,
        params=params,
        metrics=_metrics(problem.loss, chosen.loss(x, params)),
        objective=objective,
        n_points=len(points),
        n_runs=n_runs,
        ranges=_ranges(x, points),
        constants=problem.constants,
        warnings=notes,
        draws=np.array([list(draw.values()) for draw in draws]),
        run_errors=run_errors,
        point_errors=errors - run_errors[runs],
    )


def _minimise(problem: Problem, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """The (theta, objective) at the least objective: searched on a part of the points, finished on all."""
    n = len(problem.loss)
    # the points come sorted by run, so that equal spacing takes from every run in proportion
    part = problem if n <= SUBSAMPLE else problem.part(np.linspace(0, n - 1, SUBSAMPLE).astype(int))
    ends = [polish(part, theta, tolerance=1e-7) for theta in starting_points(part, rng)]
    theta = min(ends, key=lambda end: end[1])[0]
    return polish(problem, problem.rescaled(theta, part))


def _prepare(points: pd.DataFrame, law: Law, weights, notes: list[str]):
    """The points that the law can use, sorted by run, with the weight and the run's number of each."""
    points = points.reset_index(drop=True)
    weights = np.ones(len(points)) if weights is None else np.asarray(weights, dtype=float)
    if weights.shape != (len(points),) or not np.isfinite(weights).all() or (weights < 0).any():
        raise PointsError(f"weights must be {len(points)} finite numbers, none negative: one a point")
    if "run" not in points.columns:
        note = "no column run: every point counts as a run of its own, and intervals come out too narrow"
        notes.append(note)
        python_warnings.warn(note, stacklevel=3)
        points = points.assign(run=np.arange(len(points)))
    unnamed = int(points["run"].isna().to_numpy().sum())
    if unnamed:
        raise PointsError(f"column run is empty in {unnamed} points: name the run of each")
    usable = with_value(points, law)
    if not usable.all():
        notes.append(f"{(~usable).sum()} points at D = 0 left out: {law.name} has no value there")
        points, weights = points.loc[usable], weights[usable]
    order = np.argsort(pd.factorize(points["run"])[0], kind="stable")
    points = points.iloc[order].reset_index(drop=True)
    return points, weights[order], pd.factorize(points["run"])[0]


def _problem(points: pd.DataFrame, law: Law, weights: np.ndarray, schedules: Schedules | None):
    fits_lambda = schedules is not None and "s2" in law.columns
    names = [name for name in law.columns if not (fits_lambda and name == "s2")]
    x = columns_of(points, [*names, "loss", *(["step"] if fits_lambda else [])])
    check_enough(x, law, len(law.parameters) + fits_lambda)
    curve = annealing_curve(points, schedules) if fits_lambda and schedules is not None else None
    if curve is not None:
        points = points.assign(s2=0.0)
    problem = Problem(law, {name: x[name] for name in names}, x["loss"], weights, law.constants(x), curve)
    return problem, points


def _ranges(x: dict[str, np.ndarray], points: pd.DataFrame) -> dict[str, tuple[float, float]]:
    """Column -> (smallest, largest). Size and tokens are kept even for a law that reads neither."""
    extra = numbers_of(points, [name for name in ("N", "D") if name in points and name not in x])
    return {name: (float(values.min()), float(values.max())) for name, values in {**x, **extra}.items()}


def _metrics(loss: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    errors = predicted - loss
    spread = np.sum((loss - loss.mean()) ** 2)
    return {
        "r2": float(1 - np.sum(errors**2) / spread) if spread else float("nan"),
        "mae": float(np.abs(errors).mean()),
        "rmse": float(np.sqrt(np.mean(errors**2))),
        "huber": float(np.sum(huber(np.log(predicted) - np.log(loss)))),
    }
