"""A learning-rate schedule as two areas: S1, the sum of learning rates, and S2, the annealing area."""

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fitting.laws.law import Parameter
from fitting.laws.multi_power import Falls
from fitting.points import PointsError, numbers_of

if TYPE_CHECKING:
    from scipy.interpolate import PPoly


@dataclass(frozen=True)
class Schedule:
    """The learning rates of a run.

    `rates` (steps,), raw, one a step; `before`, the rate that it starts from (the last of pre-training; 0 where
    unknown). `pretrain` (steps,), the rates of the run that it continues, None where unknown. `is_pretraining`: the run
    is pre-training itself, so that its steps count in s1_pretrain and s2_pretrain; a warm-up from 0 at its start counts
    in S1 and not in S2 (Tissue et al. 2024).
    """

    rates: np.ndarray
    before: float = 0.0
    pretrain: np.ndarray | None = None
    is_pretraining: bool = False


Schedules = Mapping[Hashable, Schedule]
"""Run -> its schedule."""
_Group = tuple[Schedule, np.ndarray, np.ndarray]
"""A schedule, the rows of its points, and their steps."""

FORWARD = ("s1", "s1_root")
"""Columns that grow with every step of a run."""
ANNEALING = ("s2", "s2_square", "s2_pretrain")
"""Columns that depend on lambda."""
DECAY = 0.999
"""Lambda, where nothing is fitted."""
AREAS = (*FORWARD, *ANNEALING, "s1_pretrain")
UNIT = 1e-4
"""Powers of the learning rates in s1_root and s2_square."""
ROOT, SQUARE = 2 / 3, 2.0
"""Powers of the learning rate in s1_root and s2_square. They were chosen on 42 runs of one model of 135M
(docs/base-model.md)."""

LAMBDA = Parameter("lambda", "decay of S2 a step", 0.0, 0.9999, linear=False, start=(0.3, 0.999), scale="memory")
"""The decay of S2, a parameter of every fit with schedules."""


def areas(
    learning_rates, decay: float = DECAY, before: float = 0.0, rate_power: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Forward area S1 and annealing area S2 after each step of a schedule.

    S1(t) = sum_{i<=t} eta_i and S2(t) = sum_{i<=t} eta_i^p m_i, with m_i = decay m_{i-1} + eta_{i-1} - eta_i.

    `decay`, the lambda of S2, in [0, 1); `before`, the rate that the run starts from (the last of pre-training; 0 where
    unknown); `rate_power`, p, 0 but for eq. 9. Raises PointsError for a decay outside [0, 1) and rates that are not a
    finite one-dimensional array.

    Source: Wang et al., ICML 2025, eq. 1, 4 and 9.

    >>> s1, s2 = areas([2.0, 2.0, 1.0], decay=0.5, before=2.0)
    >>> s1.tolist(), s2.tolist()
    ([2.0, 4.0, 5.0], [0.0, 0.0, 1.0])
    """
    rates = np.asarray(learning_rates, dtype=float)
    if rates.ndim != 1 or not np.isfinite(rates).all():
        raise PointsError("learning rates must be a one-dimensional array of finite numbers, one a step")
    if not 0 <= decay < 1:
        raise PointsError(f"decay = {decay:g} is outside [0, 1)")
    return np.cumsum(rates), _annealing(rates, decay, before, rate_power)


def areas_of_powers(learning_rates, decay: float = DECAY, before: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """s1_root and s2_square after each step of a schedule: its two areas, each of a power of the rate.

    s1_root is S1 of (eta / 1e-4)^(2/3), s2_square S2 of (eta / 1e-4)^2; arguments and errors as in `areas`.

    Source: cptlaw (docs/base-model.md).

    >>> root, square = areas_of_powers([8e-4, 1e-4], decay=0.5)
    >>> root.round(6).tolist(), square.round(6).tolist()
    ([4.0, 5.0], [-64.0, -33.0])
    """
    rates = np.asarray(learning_rates, dtype=float) / UNIT
    _, square = areas(rates**SQUARE, decay, (before / UNIT) ** SQUARE)
    return np.cumsum(rates**ROOT), square


def with_areas(
    points: pd.DataFrame, schedules: Schedules, decay: float = DECAY, rate_power: float = 0.0
) -> pd.DataFrame:
    """A copy of the points with s1, s2, s1_root and s2_square filled in from the schedule of each point's run.

    `points` needs the columns run and step (0 before the first update: all four are 0 there). s1_pretrain and
    s2_pretrain are filled in where the schedules have them. Other arguments as in `areas` and `areas_of_powers`. Raises
    PointsError for a run without a schedule and a step beyond its end.
    """
    filled = _areas_of(len(points), _by_schedule(points, schedules), decay, rate_power, AREAS)
    known = {name: ~np.isnan(values) for name, values in filled.items()}
    kept = {name: points[name].to_numpy() if name in points else np.nan for name in filled}
    names = [name for name in filled if known[name].any() or points.empty]
    return points.assign(**{name: np.where(known[name], filled[name], kept[name]) for name in names})


def whole_schedules(points: pd.DataFrame, schedules: Schedules) -> dict[str, np.ndarray]:
    """For laws that read the whole schedule: area (n,), S1 at each point by its schedule, and falls (n,), its `Falls`.

    A warm-up at the start of pre-training counts in the area, and is no fall. Raises PointsError as `with_areas` does.
    """
    area, falls = np.zeros(len(points)), np.empty(len(points), dtype=object)
    for schedule, rows, steps in _by_schedule(points, schedules):
        area[rows] = np.concatenate([[0.0], np.cumsum(schedule.rates)])[steps]
        before = schedule.rates[0] if schedule.is_pretraining and len(schedule.rates) else schedule.before
        falls[rows] = Falls.of(schedule.rates, before)
    return {"area": area, "falls": falls}


@dataclass(frozen=True, eq=False)
class AnnealingCurve:
    """The `ANNEALING` columns of points over lambda's coordinate: name -> spline of (n,) values."""

    splines: "Mapping[str, PPoly]"

    def __call__(self, z: float | np.ndarray, order: int = 0) -> dict[str, np.ndarray]:
        """Name -> (n,) at a coordinate, (places, n) at several, or the derivatives of that order in it."""
        return {name: spline(z, order) for name, spline in self.splines.items()}

    def part(self, rows: np.ndarray) -> "AnnealingCurve":
        """The curve of some of the points."""
        cut = {name: type(one).construct_fast(one.c[:, :, rows], one.x) for name, one in self.splines.items()}
        return AnnealingCurve(cut)


def annealing_curve(
    points: pd.DataFrame, schedules: Schedules, rate_power: float = 0.0, names: Collection[str] = ANNEALING
) -> AnnealingCurve:
    """The named `ANNEALING` columns of every point over lambda's coordinate, as splines of a table.

    s2_pretrain is left out where the schedule of a pre-training is not known.
    """
    from scipy.interpolate import CubicSpline  # half a second to import, and most callers never need it

    grid = np.linspace(0.0, LAMBDA.coordinate(LAMBDA.high), 65)
    groups = list(_by_schedule(points, schedules))
    table = [_areas_of(len(points), groups, LAMBDA.value(z), rate_power, names) for z in grid]
    splines = {
        name: CubicSpline(grid, np.array([row[name] for row in table]))
        for name in names
        if not any(np.isnan(row[name]).any() for row in table)
    }
    return AnnealingCurve(splines)


def _areas_of(count: int, groups: Iterable[_Group], decay: float, rate_power: float, names: Collection[str]):
    """The areas of each point, those of the names at least; NaN where the schedule of pre-training is not known."""
    columns = {name: np.zeros(count) for name in AREAS}
    for schedule, rows, steps in groups:
        suffix = "_pretrain" if schedule.is_pretraining else ""
        rates = schedule.rates[: steps.max()]
        annealed_rates = lifted(rates) if schedule.is_pretraining else rates
        before = annealed_rates[0] if schedule.is_pretraining and len(annealed_rates) else schedule.before
        s2 = _annealing(annealed_rates, decay, before, rate_power)
        columns[f"s2{suffix}"][rows] = np.concatenate([[0.0], s2])[steps]
        if "s1" in names:
            columns[f"s1{suffix}"][rows] = np.concatenate([[0.0], np.cumsum(rates)])[steps]
        if not schedule.is_pretraining:
            if {"s1_root", "s2_square"} & {*names}:
                root, square = (np.concatenate([[0.0], area])[steps] for area in areas_of_powers(rates, decay, before))
                columns["s1_root"][rows], columns["s2_square"][rows] = root, square
            past = np.zeros(0) if schedule.pretrain is None else np.asarray(schedule.pretrain, dtype=float)
            raised = lifted(past)
            s2 = _annealing(raised, decay, raised[0], rate_power)[-1] if len(past) else np.nan
            columns["s2_pretrain"][rows] = s2
            columns["s1_pretrain"][rows] = past.sum() if len(past) else np.nan
    return columns


def lifted(rates: np.ndarray) -> np.ndarray:
    """The rates with the warm-up that they begin with raised to the rate that it leads to."""
    rising = np.flatnonzero(np.diff(rates) <= 0)
    end = int(rising[0]) if len(rising) else len(rates) - 1
    return np.concatenate([np.full(end, rates[end]), rates[end:]]) if len(rates) else rates


def _annealing(rates: np.ndarray, decay: float, before: float, rate_power: float) -> np.ndarray:
    if not len(rates):
        return np.zeros(0)
    # Not scipy.signal.lfilter, which has the same bits: its import takes half of the time of a plan.
    falls = (-np.diff(rates, prepend=before)).tolist()
    memory = [*accumulate(falls, lambda memory, fall: fall + decay * memory, initial=0.0)][1:]
    return np.cumsum(memory * rates**rate_power if rate_power else memory)


def _by_schedule(points: pd.DataFrame, schedules: Schedules):
    """Yields (schedule, rows, steps): the rows of the points that share one schedule."""
    unknown = [run for run in points["run"].unique() if run not in schedules]
    if unknown:
        raise PointsError(
            f"no schedule for run {', '.join(map(str, unknown[:5]))}: give one for each run of the points"
        )
    groups: dict[tuple, tuple[Schedule, list[np.ndarray]]] = {}
    for run, rows in points.reset_index(drop=True).groupby("run").indices.items():
        schedule = schedules[run]
        past = b"" if schedule.pretrain is None else np.asarray(schedule.pretrain, dtype=float).tobytes()
        rates = np.asarray(schedule.rates, dtype=float)
        key = (rates.tobytes(), float(schedule.before), past, schedule.is_pretraining)
        groups.setdefault(key, (replace(schedule, rates=rates), []))[1].append(np.asarray(rows))
    step = numbers_of(points, ["step"])["step"]
    for schedule, parts in groups.values():
        rows = np.concatenate(parts)
        steps = step[rows].astype(int)
        wrong = step[rows][(steps != step[rows]) | (steps < 0) | (steps > len(schedule.rates))]
        if len(wrong):
            where = f"is {'beyond' if wrong[0] > len(schedule.rates) else 'no step of'} its run's schedule"
            raise PointsError(f"step {wrong[0]:.10g} {where} of {len(schedule.rates)} steps")
        yield schedule, rows, steps
