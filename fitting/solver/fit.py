"""points + law -> Fit: check, project, polish, resample."""

import warnings as python_warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pandas as pd

from fitting.fitted import Fit, noise_between_seeds, profiles
from fitting.laws import LAWS, Law
from fitting.laws.unknown import UNKNOWN, with_unknown
from fitting.points import (
    PointsError,
    check_enough,
    columns_of,
    duplicated,
    law_named,
    mixture_columns,
    numbers_of,
    with_value,
)
from fitting.schedule import Schedules, annealing_curve, with_areas
from fitting.solver.lbfgs_grid import lbfgs_grid
from fitting.solver.newton import huber, polish
from fitting.solver.problem import DELTA, Problem, check_fixed
from fitting.solver.varpro import starting_points
from fitting.uncertainty.bootstrap import resample
from fitting.uncertainty.profile import Optimum

SUBSAMPLE = 300
"""Points that the search for the right valley looks at."""
SAME = 1e-6
"""By how much less two objectives may differ to be of one valley."""
NEAR = 0.1
"""By how much more than the least objective on these a valley may have that is looked at on all points."""
FAR = 0.5
"""The same of a valley that may be the deepest of a part of the points."""
METHODS = ("varpro", "lbfgs_grid")


def fit(
    points: pd.DataFrame,
    law: str,
    *,
    method: str = "varpro",
    seed: int = 0,
    schedules: Schedules | None = None,
    bootstrap: int = 200,
    weights: np.ndarray | str | None = None,
    delta: float = DELTA,
    fix: Mapping[str, float] | None = None,
    unknown: Iterable[str] = (),
    grid: Mapping[str, Iterable[float]] | None = None,
    screened: int | None = 20,
    workers: int | None = None,
    valleys: "Valleys | None" = None,
) -> Fit:
    """Fit a law to the measured losses of one validation corpus.

    Parameters: `points`, one row a point, with the law's columns, `loss` (nats per token) and `run`, which
    names the run that a point belongs to; N in billions of parameters, D in billions of tokens, r and rho in
    [0, 1]. `law`, a name in `fitting.LAWS`. `method`, "varpro" (variable projection, then Newton) or
    "lbfgs_grid", the papers' way. `seed` decides first guesses and bootstrap draws. `schedules`, run ->
    `Schedule`: with them a law that reads s2 gets lambda, the decay of S2, as one more parameter, and S2 is
    computed at each point's `step`. `bootstrap`, number of refits for the intervals (0: none, and no profiles).
    `weights` (n,), non-negative, one a point, or "loss_stderr" for the inverse variance by that column.
    `delta`, of the Huber loss of log residuals. `fix`, parameter -> value that it keeps (lambda too). `unknown`,
    columns that nobody knows and that become one parameter each: "s1_pretrain" and "rho" of an open model.
    `grid`, for lbfgs_grid: parameter -> starting values, in place of the law's own; `screened`, how many of
    the grid's best starts are followed, None for all of them. `workers`, processes of the bootstrap and the profiles,
    None for one a core where that pays; the result does not depend on it. `valleys`, of varpro: where to look for the
    optimum in place of everywhere, as `valleys_of` has them for nearly the same points.

    Points where the law has no value (D = 0, say) are left out, and `warnings` says so.

    Raises PointsError, one line, for points that cannot be used.

    Source: variable projection (Golub & Pereyra 1973), then the objective of Que et al. 2024, app. E.3.

    >>> import pandas as pd
    >>> points = pd.DataFrame([(N, D, 2 + N**-0.5 + D**-0.25) for N in (1, 4, 9) for D in (1, 16, 81)],
    ...                       columns=["N", "D", "loss"]).assign(run=range(9))
    >>> round(fit(points, "chinchilla", bootstrap=0).params["alpha"], 3)
    0.5
    """
    if method not in METHODS:
        raise PointsError(f"method {method!r} is unknown: there are {' and '.join(METHODS)}")
    if not delta > 0:
        raise PointsError(f"delta = {delta:g} must be above 0: where the Huber loss of log residuals turns straight")
    ready = prepare(points, law, weights, schedules, delta, fix or {}, unknown)
    problem, rng = ready.problem, np.random.default_rng(seed)
    if method == "varpro":
        theta, objective = valleys.least(problem) if valleys else minimise(problem, rng)
    else:
        theta, objective = lbfgs_grid(problem, grid or {}, screened)
    params = problem.parameters(theta)
    x = {**problem.x, **(problem.curve(problem.nonlinear[-1].coordinate(params["lambda"])) if problem.curve else {})}
    notes = list(ready.notes)
    n_runs = int(ready.runs.max()) + 1
    if n_runs < 5:
        notes.append(f"{n_runs} runs only: intervals rest on how runs differ, which so few cannot show")
    optimum = Optimum(problem, theta, objective, ready.runs, ready.names)
    predicted = problem.law.loss(x, params)
    found = Fit(
        law=law,
        unknown=list(unknown),
        columns=list(problem.law.columns),
        params=params,
        metrics=metrics(problem, predicted),
        objective=objective,
        n_points=len(problem.loss),
        n_runs=n_runs,
        ranges=ranges(x, ready.points),
        fixed=sorted(problem.fixed),
        constants=problem.constants,
        warnings=notes,
        residuals=pd.Series(np.log(problem.loss) - np.log(predicted), index=ready.rows, name="log_residual"),
        optimum=optimum,
    )
    if not bootstrap:
        return found
    spread = optimum.spread
    run_errors = np.bincount(ready.runs, spread.errors) / np.bincount(ready.runs)
    return replace(
        found,
        draws=resample(problem, theta, spread, ready.runs, bootstrap, rng, workers),
        profiles=profiles(optimum, workers),
        seed_noise=noise_between_seeds(ready.points, spread.errors, ready.runs),
        run_errors=run_errors,
        point_errors=spread.errors - run_errors[ready.runs],
    )


@dataclass(frozen=True, eq=False)
class Ready:
    """Points that a law can be fitted to: the problem, its table sorted by run, and what had to be said."""

    problem: Problem
    points: pd.DataFrame
    runs: np.ndarray
    names: list
    rows: np.ndarray
    notes: list[str]


def prepare(
    points: pd.DataFrame,
    law: str | Law,
    weights: np.ndarray | str | None,
    schedules: Schedules | None,
    delta: float,
    fix: Mapping[str, float],
    unknown: Iterable[str],
) -> Ready:
    """Check points against a law; arguments as in `fit`. Raises PointsError."""
    chosen = law if isinstance(law, Law) else law_named(law, LAWS)
    if chosen.among is not None:
        chosen = chosen.among(mixture_columns(points))
    for name in unknown:
        if name not in UNKNOWN or name not in chosen.columns:
            could = ", ".join(column for column in UNKNOWN if column in chosen.columns) or "none"
            raise PointsError(f"unknown: {name!r} cannot be fitted for {chosen.name}; columns that can be: {could}")
        chosen = with_unknown(chosen, name)
    if line := duplicated(points):
        raise PointsError(line)
    notes: list[str] = []
    points, weight, runs, rows = _sorted_by_run(points, chosen, weights, notes)

    reads_s2 = schedules is not None and "s2" in chosen.columns
    held_lambda = fix.get("lambda")
    check_fixed(chosen, fix, has_lambda=reads_s2)
    if reads_s2 and schedules is not None and held_lambda is not None:
        areas = with_areas(points, schedules, held_lambda, chosen.rate_power)
        points = points.assign(**{name: areas[name] for name in ("s2", "s2_pretrain") if name in areas})
        notes.append(f"lambda = {held_lambda:g} was given, not fitted")
    curve = None
    if reads_s2 and schedules is not None and held_lambda is None:
        curve = annealing_curve(points, schedules, chosen.rate_power)
    filled = curve(0.0) if curve else {}
    names = [name for name in chosen.columns if name not in filled]
    x = columns_of(points, [*names, "loss", *(["step"] if curve else [])])
    fixed = {name: float(value) for name, value in fix.items() if name != "lambda"}
    check_enough(x, chosen, len(chosen.parameters) - len(fixed) + (curve is not None), fixed)
    constants = chosen.constants(x) | ({} if held_lambda is None or not reads_s2 else {"lambda": float(held_lambda)})
    problem = Problem(chosen, {name: x[name] for name in names}, x["loss"], weight, constants, curve, delta, fixed)
    return Ready(problem, points, runs, list(pd.factorize(points["run"])[1]), rows, notes)


@dataclass(frozen=True, eq=False)
class Valleys:
    """Where searches for the least objective of a problem ended: theta of each, the least first."""

    problem: Problem
    thetas: list[np.ndarray]

    def least(self, problem: Problem) -> tuple[np.ndarray, float]:
        """The (theta, objective) at the least objective of another problem of the same law, from each of them."""
        ends = (polish(problem, problem.rescaled(theta, self.problem)) for theta in self.thetas)
        return min(ends, key=lambda end: end[1])


def valleys_of(
    points: pd.DataFrame,
    law: str,
    *,
    searches: int = 3,
    seed: int = 0,
    schedules: Schedules | None = None,
    weights: np.ndarray | str | None = None,
    delta: float = DELTA,
    fix: Mapping[str, float] | None = None,
    unknown: Iterable[str] = (),
) -> Valleys:
    """All valleys that some searches find, for many fits to nearly these points: see `fit`, whose arguments these are.

    Where points leave a parameter free the end depends on the start: then a fit that begins here knows of all points.
    """
    problem = prepare(points, law, weights, schedules, delta, fix or {}, unknown).problem
    part = _part(problem)
    found = sorted(
        (end for number in range(searches) for end in _ends(part, np.random.default_rng([seed, number]))),
        key=lambda end: end[1],
    )
    within = [end for end in found if end[1] <= found[0][1] * (1 + FAR)]
    apart = within[:1] + [end for one, end in pairwise(within) if end[1] > one[1] * (1 + SAME)]
    return Valleys(problem, [problem.rescaled(theta, part) for theta, _ in apart])


def minimise(problem: Problem, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """The (theta, objective) at the least objective: searched on a part of the points, finished on all."""
    part = _part(problem)
    ends = _ends(part, rng)
    least = min(objective for _, objective in ends)
    return Valleys(part, [theta for theta, objective in ends if objective <= least * (1 + NEAR)]).least(problem)


def _part(problem: Problem) -> Problem:
    n = len(problem.loss)
    # the points come sorted by run, so that equal spacing takes from every run in proportion
    return problem if n <= SUBSAMPLE else problem.part(np.linspace(0, n - 1, SUBSAMPLE).astype(int))


def _ends(part: Problem, rng: np.random.Generator) -> list[tuple[np.ndarray, float]]:
    return [polish(part, theta, tolerance=1e-7) for theta in starting_points(part, rng)]


def _sorted_by_run(points: pd.DataFrame, law: Law, weights, notes: list[str]):
    """The points that the law can use, sorted by run: table, weights, number of the run and original row of each."""
    rows = points.index.to_numpy()
    points = points.reset_index(drop=True)
    weight = _weights(points, weights)
    if "run" not in points.columns:
        note = "no column run: every point counts as a run of its own, and intervals come out too narrow"
        notes.append(note)
        python_warnings.warn(note, stacklevel=4)
        points = points.assign(run=np.arange(len(points)))
    unnamed = int(points["run"].isna().to_numpy().sum())
    if unnamed:
        raise PointsError(f"column run is empty in {unnamed} points: name the run of each")
    usable = with_value(points, law)
    if not usable.all():
        where = " or ".join(f"{name} = 0" for name in law.positive)
        notes.append(f"{(~usable).sum()} points at {where} left out: {law.name} has no value there")
        points, weight, rows = points.loc[usable], weight[usable], rows[usable]
    order = np.argsort(pd.factorize(points["run"])[0], kind="stable")
    points = points.iloc[order]
    points.index = pd.Index(rows[order])
    return points, weight[order], pd.factorize(points["run"])[0], rows[order]


def _weights(points: pd.DataFrame, weights: np.ndarray | str | None) -> np.ndarray:
    if weights is None:
        return np.ones(len(points))
    if isinstance(weights, str):
        if weights != "loss_stderr":
            raise PointsError(f"weights = {weights!r} is unknown: give an array, one a point, or 'loss_stderr'")
        stderr = numbers_of(points, ["loss_stderr"])["loss_stderr"]
        if (stderr <= 0).any():
            raise PointsError(f"loss_stderr is not above 0 in {(stderr <= 0).sum()} points: it cannot weigh them")
        inverse = stderr**-2.0
        return inverse / inverse.mean()
    given = np.asarray(weights, dtype=float)
    if given.shape != (len(points),) or not np.isfinite(given).all() or (given < 0).any():
        raise PointsError(f"weights must be {len(points)} finite numbers, none negative: one a point")
    return given


def ranges(x: dict[str, np.ndarray], points: pd.DataFrame) -> dict[str, tuple[float, float]]:
    """Column -> (smallest, largest). Size and tokens are kept even for a law that reads neither."""
    extra = numbers_of(points, [name for name in ("N", "D") if name in points and name not in x])
    return {name: (float(values.min()), float(values.max())) for name, values in {**x, **extra}.items()}


def metrics(problem: Problem, predicted: np.ndarray) -> dict[str, float]:
    """The `Fit.metrics` of predicted losses (n,)."""
    loss, n, k = problem.loss, len(problem.loss), problem.searched
    errors = predicted - loss
    spread = np.sum((loss - loss.mean()) ** 2)
    squares = float(np.mean((np.log(predicted) - np.log(loss)) ** 2))
    return {
        "r2": float(1 - np.sum(errors**2) / spread) if spread else float("nan"),
        "mae": float(np.abs(errors).mean()),
        "rmse": float(np.sqrt(np.mean(errors**2))),
        "huber": float(np.sum(huber(np.log(predicted) - np.log(loss)))),
        # Of Gaussian log residuals, corrected for few points (Hurvich & Tsai 1989); infinite without points to spare.
        "aicc": float(n * np.log(max(squares, 1e-300)) + 2 * (k + 1) * n / (n - k - 2)) if n > k + 2 else float("inf"),
    }
