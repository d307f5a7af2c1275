"""A learning-rate schedule as two areas: S1, what was learned; S2, what annealing has gained."""

from collections.abc import Hashable, Mapping

import numpy as np
import pandas as pd
from scipy.interpolate import CubicSpline

from fitting.laws.law import Parameter
from fitting.points import PointsError

Schedules = Mapping[Hashable, tuple[np.ndarray, float]]

LAMBDA = Parameter("lambda", "decay of S2 a step", 0.0, 0.9999, linear=False, start=(0.3, 0.999), scale="memory")
"""The decay of S2, a parameter of every fit that knows its schedules."""


def areas(learning_rates, decay: float = 0.999, before: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Forward area S1 and annealing area S2 after each step of a schedule.

    S1(t) = sum_{i<=t} eta_i and S2(t) = sum_{i<=t} m_i, with m_i = decay m_{i-1} + eta_{i-1} - eta_i.

    Parameters: `learning_rates`, shape (steps,), raw rates, one a step; `decay`, the lambda of S2, in [0, 1);
    `before`, the rate that the run starts from (the last of pre-training; 0 for a model whose schedule is
    unknown). Returns two arrays of shape (steps,). Raises PointsError for a decay outside [0, 1) and rates
    that are not a finite one-dimensional array.

    Source: Wang et al., ICML 2025, eq. 1 and 4.

    >>> s1, s2 = areas([2.0, 2.0, 1.0], decay=0.5, before=2.0)
    >>> s1.tolist(), s2.tolist()
    ([2.0, 4.0, 5.0], [0.0, 0.0, 1.0])
    """
    rates = np.asarray(learning_rates, dtype=float)
    if rates.ndim != 1 or not np.isfinite(rates).all():
        raise PointsError("learning rates must be a one-dimensional array of finite numbers, one a step")
    if not 0 <= decay < 1:
        raise PointsError(f"decay = {decay:g} is outside [0, 1)")
    return np.cumsum(rates), _annealing(rates, decay, before)


def with_areas(points: pd.DataFrame, schedules: Schedules, decay: float = 0.999) -> pd.DataFrame:
    """A copy of the points with s1 and s2 filled in from the schedule of each point's run.

    `points` needs the columns run and step (0 before the first update: both areas are 0 there); `schedules`
    maps a run to its (learning rates, one a step; rate before the run). Raises PointsError for a run without
    a schedule and a step beyond its end.
    """
    s1 = np.zeros(len(points))
    s2 = np.zeros(len(points))
    for rates, before, rows, steps in _by_schedule(points, schedules):
        first, second = areas(rates, decay, before)
        s1[rows] = np.concatenate([[0.0], first])[steps]
        s2[rows] = np.concatenate([[0.0], second])[steps]
    return points.assign(s1=s1, s2=s2)


def annealing_curve(points: pd.DataFrame, schedules: Schedules) -> CubicSpline:
    """S2 of every point over lambda's coordinate, tabulated once so that a solver may walk in lambda."""
    last = LAMBDA.coordinate(LAMBDA.high)
    grid = np.linspace(0.0, last, 65)
    table = np.zeros((len(grid), len(points)))
    for rates, before, rows, steps in _by_schedule(points, schedules):
        rates = rates[: steps.max()]
        for i, coordinate in enumerate(grid):
            table[i, rows] = np.concatenate([[0.0], _annealing(rates, LAMBDA.value(coordinate), before)])[steps]
    return CubicSpline(grid, table)


def _annealing(rates: np.ndarray, decay: float, before: float) -> np.ndarray:
    from scipy.signal import lfilter  # a third of a second to import, and most callers never need it

    if not len(rates):
        return np.zeros(0)
    return np.cumsum(lfilter([1.0], [1.0, -decay], -np.diff(rates, prepend=before)))


def _by_schedule(points: pd.DataFrame, schedules: Schedules):
    """Yields (rates, before, rows, steps): the rows of the points that share one schedule."""
    unknown = [run for run in points["run"].unique() if run not in schedules]
    if unknown:
        raise PointsError(
            f"no schedule for run {', '.join(map(str, unknown[:5]))}: give one for each run of the points"
        )
    groups: dict[tuple[bytes, float], tuple[np.ndarray, list[np.ndarray]]] = {}
    for run, rows in points.reset_index(drop=True).groupby("run").indices.items():
        rates, before = schedules[run]
        rates = np.asarray(rates, dtype=float)
        groups.setdefault((rates.tobytes(), float(before)), (rates, []))[1].append(np.asarray(rows))
    step = points["step"].to_numpy()
    for (_, before), (rates, parts) in groups.items():
        rows = np.concatenate(parts)
        steps = step[rows].astype(int)
        if steps.max() > len(rates) or steps.min() < 0:
            raise PointsError(f"step {steps.max()} is beyond its run's schedule of {len(rates)} steps")
        yield rates, before, rows, steps
