"""Fit a law to points: check, search, refine, resample."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from fitting.fitted import BY_PRIOR, Fit
from fitting.laws import LAWS, Law
from fitting.points import PointsError, numbers_of
from fitting.schedule import Schedules
from fitting.solver.lbfgs_grid import lbfgs_grid
from fitting.solver.multi_start import LocalMinima, Minimum, minimise
from fitting.solver.newton import huber
from fitting.solver.prepare import Ready, prepare
from fitting.solver.problem import DELTA, Problem
from fitting.uncertainty.bootstrap import noise_between_seeds, resample
from fitting.uncertainty.profile import Optimum, profiles
from fitting.uncertainty.sandwich import prior_shares

METHODS = ("varpro", "lbfgs_grid")


def fit(
    points: pd.DataFrame,
    law: str | Law,
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
    minima: LocalMinima | None = None,
    prior: bool = True,
    few: bool = False,
    first_guesses: int = 0,
) -> Fit:
    """Fit a law to the measured losses of one validation corpus.

    Parameters: `points`, one row a point, with the law's columns, `loss` (nats per token) and `run`, which
    names the run that a point belongs to; N in billions of parameters, D in billions of tokens, r and rho in
    [0, 1]. `law`, a name in `fitting.LAWS` or a `Law`. `method`, "varpro" (variable projection, then Newton) or
    "lbfgs_grid", the method of the papers. `seed` decides the bootstrap draws; a fit does not depend on it.
    `schedules`, run -> `Schedule`: with them a law that reads s2 gets lambda, the decay of S2, as one more
    parameter, and S2 is computed at each point's `step`. `bootstrap`, number of refits for the intervals (0: none, and
    no profiles). `weights` (n,), non-negative, one a point, or "loss_stderr" for the inverse variance by that column.
    `delta`, of the Huber loss of log residuals. `fix`, parameter -> value that it keeps (lambda too). `unknown`,
    columns whose values are not known and that become one parameter each: "s1_pretrain" and "rho" of an open model.
    `grid`, for lbfgs_grid: parameter -> starting values, in place of the law's own; `screened`, how many of
    the grid's best starts are followed, None for all of them. `workers`, processes of the bootstrap and the profiles,
    None for one a core where that pays; the result does not depend on it. `minima`, of varpro: starts of
    the search, as `local_minima` finds them for nearly the same points; None to search everywhere. `prior`, of varpro:
    False for the objective of the papers alone, whose optimum is not unique where points leave a parameter free.
    `few`: True to accept, with the prior, fewer points than parameters and columns of one value, with warnings.
    `first_guesses`, a number for the random starts of the search, to see that the result does not hang on them.

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
    if few and (not prior or method != "varpro"):
        raise PointsError("few=True needs the prior of method='varpro': points alone do not decide this fit")
    ready = prepare(points, law, weights, schedules, delta, fix or {}, unknown, few)
    if method == "varpro":
        minimum = minima.best(ready.problem) if minima else minimise(ready.problem, prior, first_guesses)
    else:
        minimum = Minimum(ready.problem, *lbfgs_grid(ready.problem, grid or {}, screened))
    optimum = Optimum(minimum.problem, minimum.theta, minimum.objective, ready.runs, ready.names)
    result = replace(_at(optimum, ready, law), unknown=list(unknown), schedules=schedules)
    if not bootstrap:
        return result
    rng = np.random.default_rng(seed)
    draws = resample(optimum.problem, optimum.theta, optimum.spread, ready.runs, bootstrap, rng, workers)
    return _with_uncertainty(result, ready, optimum, draws, workers)


def _at(optimum: Optimum, ready: Ready, law: str | Law) -> Fit:
    """The fit at an optimum, without its uncertainty."""
    problem, theta = optimum.problem, optimum.theta
    params = problem.parameters(theta)
    x = {**problem.x, **(problem.curve(problem.nonlinear[-1].coordinate(params["lambda"])) if problem.curve else {})}
    n_runs = int(ready.runs.max()) + 1
    predicted = problem.law.loss(x, params)
    return Fit(
        law=law if isinstance(law, str) else law.name,
        own_law=law if isinstance(law, Law) and LAWS.get(law.name) is not law else None,
        scale=problem.scale,
        columns=list(problem.law.columns),
        params=params,
        metrics=metrics(problem, predicted),
        objective=optimum.objective - problem.prior_at(theta)[0],
        n_points=len(problem.loss),
        n_runs=n_runs,
        ranges=ranges(x, ready.points),
        fixed=sorted(problem.fixed),
        constants=problem.constants,
        warnings=ready.notes + few_runs(n_runs),
        residuals=pd.Series(-problem.residuals(predicted), index=ready.rows, name="log_residual"),
        optimum=optimum,
    )


def _with_uncertainty(result: Fit, ready: Ready, optimum: Optimum, draws: np.ndarray, workers: int | None) -> Fit:
    errors = optimum.spread.errors
    fitted = [name for name in result.params if name not in result.fixed]
    run_errors = np.bincount(ready.runs, errors) / np.bincount(ready.runs)
    shares = prior_shares(optimum.problem, optimum.theta, fitted)
    return replace(
        result,
        draws=draws,
        # Of what the prior decides a profile says nothing of the points, and takes longest.
        profiles=profiles(optimum, [name for name in fitted if shares.get(name, 0.0) < BY_PRIOR], workers),
        prior_shares=shares,
        seed_noise=noise_between_seeds(ready.points, errors, ready.runs),
        run_errors=run_errors,
        point_errors=errors - run_errors[ready.runs],
    )


def few_runs(n_runs: int) -> list[str]:
    """The warning that intervals rest on fewer than five runs, if they do."""
    return [f"{n_runs} runs only: intervals rest on how runs differ, which so few cannot show"] if n_runs < 5 else []


def ranges(x: dict[str, np.ndarray], points: pd.DataFrame) -> dict[str, tuple[float, float]]:
    """Column -> (smallest, largest). Size and tokens are kept even for a law that reads neither."""
    extra = numbers_of(points, [name for name in ("N", "D") if name in points and name not in x])
    numbers = {name: values for name, values in {**x, **extra}.items() if values.dtype != object}
    return {name: (float(values.min()), float(values.max())) for name, values in numbers.items()}


def metrics(problem: Problem, predicted: np.ndarray) -> dict[str, float]:
    """The `Fit.metrics` of predicted losses (n,)."""
    loss, n, k = problem.loss, len(problem.loss), problem.n_free
    errors = predicted - loss
    spread = np.sum((loss - loss.mean()) ** 2)
    residuals = problem.residuals(predicted)
    squares = float(np.mean(residuals**2))
    return {
        "r2": float(1 - np.sum(errors**2) / spread) if spread else float("nan"),
        "mae": float(np.abs(errors).mean()),
        "rmse": float(np.sqrt(np.mean(errors**2))),
        "log_rmse": float(np.sqrt(squares)),
        "huber": float(np.sum(huber(residuals))),
        # Of Gaussian residuals, corrected for few points (Hurvich & Tsai 1989); infinite without points to spare.
        "aicc": float(n * np.log(max(squares, 1e-300)) + 2 * (k + 1) * n / (n - k - 2)) if n > k + 2 else float("inf"),
    }
