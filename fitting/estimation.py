"""Fit a law to the points of one corpus, or of several that share parameters: check, search, refine, resample."""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from fitting.fitted import BY_PRIOR, Fit
from fitting.laws import LAWS, Law
from fitting.laws.joint import GROUP, constants_of, joint_law
from fitting.parallel import over_cores
from fitting.points import PointsError, numbers_of
from fitting.schedule import Schedules
from fitting.solver.lbfgs_grid import LbfgsGrid
from fitting.solver.multi_start import VarPro
from fitting.solver.newton import TOGETHER, refine
from fitting.solver.objective import huber
from fitting.solver.prepare import Data, Prepared, prepare_problem
from fitting.solver.problem import DELTA, Problem
from fitting.uncertainty.bootstrap import noise_between_seeds, resample
from fitting.uncertainty.horizon import Reach, reach
from fitting.uncertainty.profile import Optimum, profiles
from fitting.uncertainty.sandwich import prior_shares

METHODS = {"varpro": VarPro(), "lbfgs_grid": LbfgsGrid()}


def fit(
    points: pd.DataFrame,
    law: str | Law,
    *,
    method: str | VarPro | LbfgsGrid = "varpro",
    seed: int = 0,
    schedules: Schedules | None = None,
    bootstrap: int = 200,
    point_weights: np.ndarray | str | None = None,
    delta: float = DELTA,
    fix: Mapping[str, float] | None = None,
    unknown: Iterable[str] = (),
    workers: int | None = None,
    few: bool = False,
) -> Fit:
    """Fit a law to the measured losses of one validation corpus.

    Parameters: `points`, one row a point, with the law's columns, `loss` (nats per token) and `run`, which names the
    run that a point belongs to; N in billions of parameters, D in billions of tokens, r and rho in [0, 1]. `law`, a
    name in `fitting.LAWS` or a `Law`. `method`, "varpro" (variable projection, then Newton), "lbfgs_grid" (that of the
    papers), or `VarPro` or `LbfgsGrid` with options. `seed` decides the bootstrap draws; a fit does not depend on it.
    `schedules`, run -> `Schedule`: with them a law that reads s2 gets lambda, the decay of S2, as one more parameter,
    and S2 is computed at each point's `step`. `bootstrap`, number of refits for the intervals (0: none, and no
    profiles). `point_weights` (n,), non-negative, one a point, or "loss_stderr" for the inverse variance by that
    column. `delta`, of the Huber loss of log residuals. `fix`, parameter -> value that it keeps (lambda too).
    `unknown`, columns that become one parameter each: "s1_pretrain" and "rho" of an open model. `workers`, processes of
    the bootstrap and the profiles, None for one a core where that pays; the result does not depend on it. `few`: True
    to accept, with the prior of `VarPro`, fewer points than parameters and columns of one value, with warnings.

    Points where the law has no value (D = 0, say) are left out, and `warnings` says so.

    Raises PointsError, one line, for points that cannot be used.

    Source: variable projection (Golub & Pereyra 1973), then the objective of Que et al. 2024, app. E.3.

    >>> import pandas as pd
    >>> points = pd.DataFrame([(N, D, 2 + N**-0.5 + D**-0.25) for N in (1, 4, 9) for D in (1, 16, 81)],
    ...                       columns=["N", "D", "loss"]).assign(run=range(9))
    >>> round(fit(points, "chinchilla", bootstrap=0).params["alpha"], 3)
    0.5
    """
    solver = _solver(method, law, few)
    data = Data(schedules, point_weights, delta, dict(fix or {}), tuple(unknown), few)
    prepared = prepare_problem(points, law, data)
    minimum = solver.solve(prepared.problem)
    problem = minimum.problem
    optimum = Optimum(problem, minimum.theta, minimum.objective, prepared.runs, prepared.names)
    names = {name: name for name in problem.parameters(minimum.theta)}
    corpus = _OneCorpus(problem, np.arange(len(problem.loss)), names)
    return _Estimate(law, data, prepared, optimum).fits({"": corpus}, bootstrap, seed, workers)[""]


def fit_shared(
    points: pd.DataFrame,
    law: str | Law,
    shared: Iterable[str],
    *,
    method: str | VarPro = "varpro",
    seed: int = 0,
    schedules: Schedules | None = None,
    bootstrap: int = 200,
    point_weights: np.ndarray | str | None = None,
    delta: float = DELTA,
    fix: Mapping[str, float] | None = None,
    unknown: Iterable[str] = (),
    workers: int | None = None,
    few: bool = False,
) -> dict[str, Fit]:
    """Fit a law to several validation corpora at once, with parameters in common.

    Parameters: as in `fit`, with the column corpus; `shared`, names of the parameters that are the same for all
    corpora, () for none. A run that was measured on two corpora is one run, whose errors are correlated. A
    `fix`ed parameter is so for every corpus, and lambda, where it is fitted, is always in common.

    Returns corpus -> `Fit`: with the parameters of the corpus, its points, metrics, objective and errors; draws and
    profiles are of the joint fit. A corpus may have fewer points than parameters, if all together have enough.

    Raises PointsError as `fit` does; for a name that is not a parameter; for a coefficient of a law whose
    coefficients are tied together (dcpt), which cannot be shared.

    Method: ours; the joint law is a block of columns a corpus (`laws.joint`), solved as any other.
    """
    solver, shared = _solver(method, law, few), tuple(shared)
    if not isinstance(solver, VarPro):
        raise PointsError("method 'lbfgs_grid' fits one corpus only: a shared fit needs 'varpro'")
    for column in ("corpus", "run"):
        if column not in points.columns:
            raise PointsError(f"missing column: {column} (a shared fit needs the corpus and the run of each point)")
    unnamed = int(points["corpus"].isna().sum())
    if unnamed or points.empty:
        raise PointsError(f"column corpus must name the corpus of every point: {unnamed} have none")
    data = Data(schedules, point_weights, delta, dict(fix or {}), tuple(unknown), few)
    one = prepare_problem(points, law, data).problem.law
    own = [p.name for p in one.parameters]
    if invalid := [name for name in shared if name not in (*own, "lambda")]:
        raise PointsError(f"shared: {one.name} has no parameter {', '.join(invalid)}; it has {', '.join(own)}")
    if one.cone is not None and any(p.name in shared for p in one.linear):
        tied = ", ".join(p.name for p in one.linear)
        raise PointsError(f"shared: the coefficients of {one.name} ({tied}) are tied together; share exponents only")

    numbers, codes = pd.factorize(points["corpus"], sort=True)
    order = np.argsort(numbers, kind="stable")
    points = points.iloc[order].assign(**{GROUP: numbers[order]})
    if point_weights is not None and not isinstance(point_weights, str):
        point_weights = np.asarray(point_weights, dtype=float)[order]
    joint = joint_law(one, shared, [str(code) for code in codes])
    in_joint = {p.name for p in joint.parameters} | {"lambda"}
    everywhere = {f"{name}[{code}]": value for name, value in data.fix.items() for code in codes} | dict(data.fix)
    of_all = {"fix": {name: value for name, value in everywhere.items() if name in in_joint}, "unknown": ()}
    started = _started(joint, one, shared, codes, points, data)
    prepared = prepare_problem(points, started, replace(data, point_weights=point_weights, **of_all))
    # Slow progress of one corpus is small beside the joint objective, so the usual tolerance would stop too early.
    minimum = solver.solve(prepared.problem)
    theta, objective = refine(minimum.problem, minimum.theta, tolerance=1e-13)
    optimum = Optimum(minimum.problem, theta, objective, prepared.runs, prepared.names)
    params, corpora = optimum.problem.parameters(theta), {}
    own += [name for name in params if name == "lambda"]
    for g, code in enumerate(codes):
        names = {name: name if name in shared or name == "lambda" else f"{name}[{code}]" for name in own}
        rows, constants = np.flatnonzero(optimum.problem.x[GROUP] == g), optimum.problem.constants
        fixed = {name: params[names[name]] for name in data.fix if name in names}
        of_code = {"law": one, "constants": constants_of(constants, str(code)), "fixed": fixed}
        corpora[code] = _OneCorpus(replace(optimum.problem.part(rows), **of_code), rows, names)
    return _Estimate(law, data, prepared, optimum).fits(corpora, bootstrap, seed, workers)


def _solver(method: str | VarPro | LbfgsGrid, law: str | Law, few: bool) -> VarPro | LbfgsGrid:
    if isinstance(law, Law) and LAWS.get(law.name, law) is not law:
        raise PointsError(
            f"law = Law(name={law.name!r}, ...) has the name of a law of fitting.LAWS, by which a fit is known: give "
            f"it another, like own-{law.name}"
        )
    if isinstance(method, str) and method not in METHODS:
        raise PointsError(f"method {method!r} is unknown: there are {' and '.join(METHODS)}")
    solver = METHODS[method] if isinstance(method, str) else method
    if few and not (isinstance(solver, VarPro) and solver.prior):
        raise PointsError("few=True needs the prior of method='varpro': points alone do not decide this fit")
    return solver


def _started(joint: Law, one: Law, shared: tuple[str, ...], codes, points: pd.DataFrame, data: Data) -> Law:
    """The joint law with starts at the separate fits, where there are: random starts do not cover so many shapes."""
    data, separate, ends = replace(data, point_weights=None, unknown=()), {}, {}
    for g, code in enumerate(codes):
        with contextlib.suppress(PointsError):
            problem = prepare_problem(points[points[GROUP] == g], one, data).problem
            separate[str(code)] = problem.parameters(VarPro().solve(problem).theta)
    for p in one.nonlinear:
        values = {code: fit[p.name] for code, fit in separate.items() if p.name in fit}
        if p.name in shared and values:
            ends[p.name] = (min(values.values()), max(values.values()))
        elif p.name not in shared:
            ends |= {f"{p.name}[{code}]": (value, value) for code, value in values.items()}
    guessed = (
        replace(p, start=ends[p.name], prior=p.prior or p.start) if p.name in ends else p for p in joint.parameters
    )
    return replace(joint, parameters=tuple(guessed))


@dataclass(frozen=True, eq=False)
class _OneCorpus:
    """A corpus of a fit: its problem, its rows among all points, its parameter names -> those of the joint problem."""

    problem: Problem
    rows: np.ndarray
    names: dict[str, str]


@dataclass(frozen=True, eq=False)
class _Estimate:
    """The optimum of a fit, of one corpus or of several, and what it was fitted to."""

    law: str | Law
    data: Data
    prepared: Prepared
    optimum: Optimum

    def fits(self, corpora: Mapping[str, _OneCorpus], bootstrap: int, seed: int, workers: int | None) -> dict[str, Fit]:
        """Corpus -> its fit, with its uncertainty where there is a bootstrap."""
        fits = {code: self._fit(corpus, len(corpora) == 1) for code, corpus in corpora.items()}
        if not bootstrap:
            return fits
        problem, theta, rng = self.optimum.problem, self.optimum.theta, np.random.default_rng(seed)
        draws = resample(problem, theta, self.optimum.sandwich, self.prepared.runs, bootstrap, rng, workers)
        fitted = [name for name in problem.parameters(theta) if name not in problem.fixed]
        shares = prior_shares(problem, theta, fitted)
        # Of what the prior decides a profile says nothing of the points, and takes longest.
        decided = [name for name in fitted if shares.get(name, 0.0) < BY_PRIOR]
        # Of few points all profiles go together; of many each is worth a process.
        together = max(1, TOGETHER // (8 * len(problem.loss)))
        groups = [decided[first : first + together] for first in range(0, len(decided), together)]
        each = over_cores(lambda names: profiles(self.optimum, names), groups, workers)
        profiled = dict(zip(decided, [one for part in each for one in part], strict=True))
        names = list(problem.parameters(theta))
        for code, corpus in corpora.items():
            errors, runs = self.optimum.sandwich.errors[corpus.rows], pd.factorize(self.prepared.runs[corpus.rows])[0]
            run_errors = np.bincount(runs, errors) / np.bincount(runs)
            fits[code] = replace(
                fits[code],
                draws=draws[:, [names.index(name) for name in corpus.names.values()]],
                profiles={short: profiled[name] for short, name in corpus.names.items() if name in profiled},
                prior_shares={short: shares[name] for short, name in corpus.names.items() if name in shares},
                seed_noise=noise_between_seeds(self.prepared.points.iloc[corpus.rows], errors, runs),
                run_errors=run_errors,
                point_errors=errors - run_errors[runs],
            )
        return fits

    def _fit(self, corpus: _OneCorpus, alone: bool) -> Fit:
        """The fit of a corpus without its uncertainty."""
        problem, rows, optimum = corpus.problem, corpus.rows, self.optimum
        joint = optimum.problem.parameters(optimum.theta)
        params = {short: joint[name] for short, name in corpus.names.items()}
        x = {name: values for name, values in problem.x.items() if name != GROUP}
        if problem.curve is not None:
            x |= problem.curve(problem.nonlinear[-1].coordinate(params["lambda"]))
        predicted = problem.law.loss(x, params)
        residuals = problem.residuals(predicted)
        run_numbers = np.unique(self.prepared.runs[rows])
        own_runs = [name if number in run_numbers else None for number, name in enumerate(self.prepared.names)]
        few_runs = []
        if len(run_numbers) < 5:
            count = f"{len(run_numbers)} run{'s' * (len(run_numbers) > 1)}"
            few_runs.append(f"{count} only: intervals rest on how runs differ, which so few cannot show")
        law, without_prior = self.law, optimum.objective - optimum.problem.prior_at(optimum.theta)[0]
        return Fit(
            law=law if isinstance(law, str) else law.name,
            own_law=law if isinstance(law, Law) and LAWS.get(law.name) is not law else None,
            scale=problem.scale,
            columns=list(problem.law.columns),
            params=params,
            metrics=metrics(problem, predicted),
            objective=without_prior if alone else float(problem.point_weights @ huber(residuals, problem.delta)),
            n_points=len(rows),
            n_runs=len(run_numbers),
            ranges=ranges(x, self.prepared.points.iloc[rows]),
            unknown=list(self.data.unknown),
            fixed=sorted(problem.fixed),
            constants=problem.constants,
            warnings=self.prepared.notes + few_runs,
            residuals=pd.Series(-residuals, index=self.prepared.rows[rows], name="log_residual"),
            optimum=optimum if alone else replace(optimum, run_names=own_runs, parameter_names=corpus.names),
            schedules=self.data.schedules,
            reach=longest_runs(self.prepared.points.iloc[rows]),
        )


def ranges(x: dict[str, np.ndarray], points: pd.DataFrame) -> dict[str, tuple[float, float]]:
    """Column -> (smallest, largest). Size and tokens are kept even for a law that reads neither."""
    extra = numbers_of(points, [name for name in ("N", "D") if name in points and name not in x])
    numbers = {name: values for name, values in {**x, **extra}.items() if values.dtype != object}
    return {name: (float(values.min()), float(values.max())) for name, values in numbers.items()}


def longest_runs(points: pd.DataFrame) -> Reach:
    """How far each size was fitted in tokens; all points have one size where there is no N."""
    if "D" not in points:
        return []
    x = numbers_of(points, [name for name in ("N", "D") if name in points])
    return reach(x.get("N", np.ones(len(points))), x["D"])


def metrics(problem: Problem, predicted: np.ndarray) -> dict[str, float]:
    """The `Fit.metrics` of predicted losses (n,)."""
    loss, n, k = problem.loss, len(problem.loss), problem.n_free
    errors = predicted - loss
    around_mean = np.sum((loss - loss.mean()) ** 2)
    residuals = problem.residuals(predicted)
    squares = float(np.mean(residuals**2))
    return {
        "r2": float(1 - np.sum(errors**2) / around_mean) if around_mean else float("nan"),
        "mae": float(np.abs(errors).mean()),
        "rmse": float(np.sqrt(np.mean(errors**2))),
        "log_rmse": float(np.sqrt(squares)),
        "huber": float(np.sum(huber(residuals))),
        # Of Gaussian residuals, corrected for few points (Hurvich & Tsai 1989); infinite without points to spare.
        "aicc": float(n * np.log(max(squares, 1e-300)) + 2 * (k + 1) * n / (n - k - 2)) if n > k + 2 else float("inf"),
    }
