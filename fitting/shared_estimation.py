"""One fit over several corpora that share some parameters."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace

import numpy as np
import pandas as pd

from fitting.estimation import few_runs, metrics, ranges
from fitting.fitted import BY_PRIOR, Fit
from fitting.laws import Law
from fitting.laws.joint import GROUP, constants_of, joint_law
from fitting.points import PointsError
from fitting.schedule import Schedules
from fitting.solver.multi_start import minimise
from fitting.solver.newton import huber, refine
from fitting.solver.prepare import Ready, prepare
from fitting.solver.problem import DELTA, Problem
from fitting.uncertainty.bootstrap import noise_between_seeds, resample
from fitting.uncertainty.profile import Optimum, profiles
from fitting.uncertainty.sandwich import prior_shares


def fit_shared(
    points: pd.DataFrame,
    law: str,
    shared: Iterable[str],
    by: str = "corpus",
    *,
    seed: int = 0,
    schedules: Schedules | None = None,
    bootstrap: int = 200,
    weights: np.ndarray | str | None = None,
    delta: float = DELTA,
    fix: Mapping[str, float] | None = None,
    unknown: Iterable[str] = (),
    workers: int | None = None,
    prior: bool = True,
    few: bool = False,
) -> dict[str, Fit]:
    """Fit a law to several validation corpora at once, with parameters in common.

    Parameters: `points`, those of all corpora, with the column `by` that names the corpus, and `run`: a run that was
    measured on two corpora is one run, and its errors are correlated. `shared`, names of the parameters that are the
    same for all corpora; () for none. The others as in `fit`; a `fix`ed parameter is so for every corpus, and lambda,
    where it is fitted, is always in common.

    Returns corpus -> `Fit`: with the parameters of the corpus, its points, metrics, objective and
    errors; draws and profiles are of the joint fit. A corpus may have fewer points than parameters, as long as all
    together have enough.

    Raises PointsError as `fit` does; for a name that is not a parameter; for a coefficient of a law whose
    coefficients are tied together (dcpt), which cannot be shared.

    Method: ours; the joint law is a block of columns a corpus (`laws.joint`), solved as any other.
    """
    shared, unknown = tuple(shared), tuple(unknown)
    for column in (by, "run"):
        if column not in points.columns:
            raise PointsError(f"missing column: {column} (a shared fit needs the corpus and the run of each point)")
    if points[by].isna().any() or points.empty:
        raise PointsError(f"column {by} must name the corpus of every point: {int(points[by].isna().sum())} have none")
    one = prepare(points, law, weights, schedules, delta, fix or {}, unknown, few).problem.law
    names = [p.name for p in one.parameters]
    invalid = [name for name in shared if name not in (*names, "lambda")]
    if invalid:
        raise PointsError(f"shared: {law} has no parameter {', '.join(invalid)}; it has {', '.join(names)}")

    if one.cone is not None and any(p.name in shared for p in one.linear):
        tied = ", ".join(p.name for p in one.linear)
        raise PointsError(f"shared: the coefficients of {one.name} ({tied}) are tied together; share exponents only")

    numbers, codes = pd.factorize(points[by], sort=True)
    order = np.argsort(numbers, kind="stable")
    points, numbers = points.iloc[order], numbers[order]
    if weights is not None and not isinstance(weights, str):
        weights = np.asarray(weights, dtype=float)[order]
    points = points.assign(**{GROUP: numbers})
    fix, rng = dict(fix or {}), np.random.default_rng(seed)
    joint = joint_law(one, shared, [str(code) for code in codes])
    everywhere = {f"{name}[{code}]": value for name, value in fix.items() for code in codes}
    in_joint = {p.name for p in joint.parameters} | {"lambda"}
    fixed = {name: value for name, value in (everywhere | fix).items() if name in in_joint}
    separate = _separate_fits(points, one, len(codes), schedules, fix, delta, few)
    started = _with_starts(joint, one, shared, codes, separate)
    ready = prepare(points, started, weights, schedules, delta, fixed, (), few)
    # Slow progress of one corpus is small beside the joint objective, so the usual tolerance would stop too early.
    minimum = minimise(ready.problem, prior)
    ready = replace(ready, problem=minimum.problem)
    theta, objective = refine(ready.problem, minimum.theta, tolerance=1e-13)
    optimum = Optimum(ready.problem, theta, objective, ready.runs, ready.names)
    draws, profiled, shares = np.zeros((0, 0)), {}, {}
    if bootstrap:
        draws = resample(ready.problem, theta, optimum.spread, ready.runs, bootstrap, rng, workers)
        problem = ready.problem
        fitted = [name for name in problem.parameters(theta) if name not in problem.fixed]
        shares = prior_shares(problem, theta, fitted)
        profiled = profiles(optimum, [name for name in fitted if shares.get(name, 0.0) < BY_PRIOR], workers)
    return {
        code: _of_corpus(
            number, str(code), one, shared, ready, optimum, draws, profiled, shares, law, unknown, sorted(fix)
        )
        for number, code in enumerate(codes)
    }


def _separate_fits(points, one: Law, count: int, schedules, fix, delta, few) -> list[dict[str, float]]:
    """Parameters of the separate fit of each corpus, empty where there is none."""
    fits = []
    for g in range(count):
        try:
            ready = prepare(points[points[GROUP] == g], one, None, schedules, delta, fix, (), few)
            fits.append(ready.problem.parameters(minimise(ready.problem).theta))
        except PointsError:
            fits.append({})
    return fits


def _with_starts(joint: Law, one: Law, shared, codes, separate: list[dict[str, float]]) -> Law:
    """The joint law with starts at the separate fits: random starts do not cover so many shapes."""
    ends = {}
    for p in one.nonlinear:
        values = {str(code): fit[p.name] for code, fit in zip(codes, separate, strict=True) if p.name in fit}
        if p.name in shared and values:
            ends[p.name] = (min(values.values()), max(values.values()))
        elif p.name not in shared:
            ends |= {f"{p.name}[{code}]": (value, value) for code, value in values.items()}
    guessed = (
        replace(p, start=ends[p.name], prior=p.prior or p.start) if p.name in ends else p for p in joint.parameters
    )
    return replace(joint, parameters=tuple(guessed))


@dataclass(frozen=True, eq=False)
class _CorpusView(Problem):
    """The joint problem with the parameter names of one corpus."""

    names: Mapping[str, str] = field(default_factory=dict)

    def parameters(self, theta: np.ndarray) -> dict[str, float]:
        joint = super().parameters(theta)
        return {short: joint[name] for short, name in self.names.items()}

    def reader(self, name: str) -> Callable[[np.ndarray], float]:
        return super().reader(self.names[name])


def _of_corpus(
    g, code, one: Law, shared, ready: Ready, optimum: Optimum, draws, profiled, shares, law, unknown, fixed
) -> Fit:
    joint, theta, spread = ready.problem, optimum.theta, optimum.spread
    rows = np.flatnonzero(joint.x[GROUP] == g)
    part = joint.part(rows)
    all_names = list(joint.parameters(theta))
    own_names = [p.name for p in one.parameters] + [n for n in all_names if n == "lambda"]
    names = {name: name if name in shared or name == "lambda" else f"{name}[{code}]" for name in own_names}
    view = _CorpusView(**{f.name: getattr(joint, f.name) for f in fields(Problem) if f.init}, names=names)
    params = view.parameters(theta)
    constants = constants_of(joint.constants, code)
    alone = replace(part, law=one, constants=constants, fixed={name: params[name] for name in fixed if name in params})
    x = {name: values for name, values in part.x.items() if name != GROUP}
    if part.curve is not None:
        x |= part.curve(joint.nonlinear[-1].coordinate(params["lambda"]))
    predicted = one.loss(x, params)
    runs, run_numbers = pd.factorize(ready.runs[rows])
    errors = spread.errors[rows]
    run_errors = np.bincount(runs, errors) / np.bincount(runs)
    own_runs = [name if r in run_numbers else None for r, name in enumerate(ready.names)]
    return Fit(
        law=law,
        unknown=list(unknown),
        columns=list(one.columns),
        params=params,
        metrics=metrics(alone, predicted),
        objective=float(part.weights @ huber(part.residuals(predicted), part.delta)),
        n_points=len(rows),
        n_runs=len(run_numbers),
        ranges=ranges(x, ready.points.iloc[rows]),
        fixed=[n for n in fixed if n in params],
        profiles={short: profiled[name] for short, name in names.items() if name in profiled},
        prior_shares={short: shares[name] for short, name in names.items() if name in shares},
        constants=constants,
        seed_noise=noise_between_seeds(ready.points.iloc[rows], errors, runs),
        warnings=ready.notes + few_runs(len(run_numbers)),
        draws=draws[:, [all_names.index(name) for name in names.values()]] if len(draws) else draws,
        run_errors=run_errors,
        point_errors=errors - run_errors[runs],
        residuals=pd.Series(-part.residuals(spread.fitted[rows]), index=ready.rows[rows], name="log_residual"),
        optimum=replace(optimum, problem=view, names=own_runs),
    )
