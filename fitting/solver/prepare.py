"""Points of a table as a problem that the solvers take, checked against the law."""

import re
import warnings as python_warnings
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from fitting.laws import UNKNOWN, Law, with_unknown
from fitting.points import (
    PointsError,
    after_mixtures,
    columns_of,
    duplicated,
    missing,
    mixture_columns,
    not_enough,
    numbers_of,
    resolve_law,
    with_one_mixture,
    with_value,
)
from fitting.schedule import ANNEALING, LAMBDA, Schedules, annealing_curve, whole_schedules, with_areas
from fitting.solver.problem import DELTA, Problem


@dataclass(frozen=True, eq=False)
class Data:
    """What a fit is given beside its points and its law, as the parameters of `fit`. Raises PointsError."""

    schedules: Schedules | None = None
    point_weights: np.ndarray | str | None = None
    delta: float = DELTA
    fix: Mapping[str, float] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    few: bool = False

    def __post_init__(self):
        if not self.delta > 0:
            raise PointsError(f"delta = {self.delta:g} must be above 0: where the Huber loss turns straight")


@dataclass(frozen=True, eq=False)
class Prepared:
    """Points that a law can be fitted to: the problem, its table sorted by run, and what had to be noted."""

    problem: Problem
    points: pd.DataFrame
    runs: np.ndarray
    names: list
    rows: np.ndarray
    notes: list[str]


def prepare_problem(points: pd.DataFrame, law: str | Law, data: Data) -> Prepared:
    """Points checked against a law, and what is solved. Raises PointsError."""
    schedules, fix = data.schedules, data.fix
    chosen = resolve_law(law)
    if chosen.for_corpora is not None:
        chosen = chosen.for_corpora(mixture_columns(points))
    for name in data.unknown:
        if name not in UNKNOWN or name not in chosen.columns:
            could = ", ".join(column for column in UNKNOWN if column in chosen.columns) or "none"
            raise PointsError(f"unknown: {name!r} cannot be fitted for {chosen.name}; columns that can be: {could}")
        chosen = with_unknown(chosen, name)
    if line := duplicated(points):
        raise PointsError(line)
    points = with_one_mixture(points, chosen.columns)
    if line := after_mixtures(points, chosen):
        raise PointsError(line)
    notes: list[str] = []
    if chosen.whole_schedule:
        if schedules is None:
            needed = "give schedules={run: Schedule(rates)}"
            raise PointsError(f"{chosen.name} reads the learning rate of every step: {needed}")
        if line := missing(points, ["run", "step"]):
            raise PointsError(line)
        points = points if "s1" in points else points.assign(s1=whole_schedules(points, schedules)["area"])
    points, weight, runs, rows = _sorted_by_run(points, chosen, data.point_weights, notes)

    annealing = [name for name in ANNEALING if name in chosen.columns]
    reads_s2 = schedules is not None and any(name != "s2_pretrain" for name in annealing)
    held_lambda = fix.get("lambda") if reads_s2 else None
    _check_fixed(chosen, fix, has_lambda=reads_s2)
    curve = None
    if schedules is not None and "s1_root" in chosen.columns:
        points = points.assign(s1_root=with_areas(points, schedules)["s1_root"])
    if schedules is not None and reads_s2 and held_lambda is None:
        curve = annealing_curve(points, schedules, chosen.s2.rate_power, annealing)
    elif schedules is not None and held_lambda is not None:
        areas = with_areas(points, schedules, held_lambda, chosen.s2.rate_power)
        points = points.assign(**{name: areas[name] for name in annealing if name in areas})
        notes.append(f"lambda = {held_lambda:g} was given, not fitted")
    filled = curve(0.0) if curve else {}
    names = [name for name in chosen.columns if name not in filled]
    x = columns_of(points, [*names, "loss", *(["step"] if curve else [])], chosen)
    whole = whole_schedules(points, schedules) if chosen.whole_schedule and schedules is not None else {}
    fixed = {name: float(value) for name, value in fix.items() if name != "lambda"}
    lacking = [*not_enough(x, chosen, len(chosen.parameters) - len(fixed) + (curve is not None), fixed)]
    if lacking and not (data.few and len(points)):
        raise PointsError(
            lacking[0] + ("; few=True lets the prior decide what the points do not" if len(points) else "")
        )
    # What to do about it is for those who may fix parameters, or give other points.
    notes += [re.sub("; .*", "; the prior decides the rest", line) for line in lacking]
    scale = 0.0 if chosen.solving.residual == "log" else float(np.sqrt(np.mean(x["loss"] ** 2))) or 1.0
    constants = chosen.constants(x) | ({} if held_lambda is None else {"lambda": float(held_lambda)})
    columns = {name: x[name] for name in names} | whole
    problem = Problem(chosen, columns, x["loss"], weight, constants, curve, data.delta, fixed, scale=scale)
    return Prepared(problem, points, runs, list(pd.factorize(points["run"])[1]), rows, notes)


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
    if law.solving.late and len(points) and not missing(points, ["D"]):
        weight = weight * numbers_of(points, ["D"])["D"] ** law.solving.late
        weight = weight / weight.mean()
    order = np.argsort(pd.factorize(points["run"])[0], kind="stable")
    points = points.iloc[order]
    points.index = pd.Index(rows[order])
    return points, weight[order], pd.factorize(points["run"])[0], rows[order]


def _weights(points: pd.DataFrame, weights: np.ndarray | str | None) -> np.ndarray:
    if weights is None:
        return np.ones(len(points))
    if isinstance(weights, str):
        if weights != "loss_stderr":
            raise PointsError(f"point_weights = {weights!r} is unknown: give an array, one a point, or 'loss_stderr'")
        stderr = numbers_of(points, ["loss_stderr"])["loss_stderr"]
        if (stderr <= 0).any():
            raise PointsError(f"loss_stderr is not above 0 in {(stderr <= 0).sum()} points: it cannot weigh them")
        inverse = stderr**-2.0
        return inverse / inverse.mean()
    given = np.asarray(weights, dtype=float)
    if given.shape != (len(points),) or not np.isfinite(given).all() or (given < 0).any():
        raise PointsError(f"point_weights must be {len(points)} finite numbers, none negative: one a point")
    return given


def _check_fixed(law: Law, fixed: Mapping[str, float], has_lambda: bool) -> None:
    """Raise PointsError for a parameter that the law does not have or cannot fix, or a value out of its bounds."""
    parameters = {p.name: p for p in law.parameters} | ({LAMBDA.name: LAMBDA} if has_lambda else {})
    for name, value in fixed.items():
        if name not in parameters:
            raise PointsError(f"fix: {law.name} has no parameter {name!r}; it has {', '.join(parameters)}")
        p = parameters[name]
        if not (np.isfinite(value) and p.low <= value <= p.high):
            raise PointsError(f"fix: {name} = {value:g} is outside {p.low:g} to {p.high:g}, the bounds of {law.name}")
        if p.linear and law.cone is not None:
            j = [q.name for q in law.linear].index(name)
            others = np.delete(law.cone.edges(law.middle, law.constants({"D": np.ones(1), "r": np.ones(1)})), j, axis=1)
            if others[j].any():
                tied = "its lower bound depends on another coefficient"
                raise PointsError(f"fix: {name} of {law.name} cannot be fixed: {tied}")
