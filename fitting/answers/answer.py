"""Answer: values with intervals, the losses at them, the constraint that holds, and warnings of extrapolation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from fitting.fitted import Fit
from fitting.law_average import LawAverage
from fitting.points import ONE_MIXTURE, TAILS, PointsError
from fitting.schedule import ANNEALING, FORWARD

EXTRAPOLATED = ("N", "D", "r", *FORWARD, *ANNEALING, "s1_pretrain")
"""Columns whose range is compared with that of the fitted points."""
_NAMES = {"s1": "summed learning rate s1", "s2": "annealing area s2"}


class Estimate(NamedTuple):
    """A number and its interval; low and high are NaN where the fit holds no bootstrap draws."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Status:
    """What holds an answer where it is.

    `code`, for programs: "inside" where nothing does, "at bound" of what may be chosen, "limited" by another quantity,
    "infeasible" where nothing keeps the limits, "never" where what was asked does not happen. `message`, for people.
    """

    code: Literal["inside", "at bound", "limited", "infeasible", "never"]
    message: str


@dataclass(frozen=True)
class Answer:
    """An answer of a fit.

    `values`: name -> estimate, its interval over the bootstrap draws. `predicted`: name -> the loss that this implies,
    in nats per token, with the interval in which a new run will measure it. `status`: the constraint that holds.
    `warnings`: one line each, on extrapolation (how far, in which column) and missing intervals.
    """

    values: dict[str, Estimate]
    predicted: dict[str, Estimate]
    status: Status
    warnings: list[str]

    def __getitem__(self, name: str) -> float:
        """The value of that name, without its interval."""
        return self.values[name].value


def estimate(value: float, draws: np.ndarray) -> Estimate:
    """The value with the 90% interval of its draws (k,), which may be infinite; it always holds the value."""
    draws = np.asarray(draws, dtype=float)
    known = draws[~np.isnan(draws)]
    if not len(known):
        return Estimate(float(value), float("nan"), float("nan"))
    # between a finite and an infinite draw there is nothing to interpolate
    method = "linear" if np.isfinite(known).all() else "inverted_cdf"
    low, high = np.quantile(known, TAILS, method=method)
    return Estimate(float(value), min(float(low), float(value)), max(float(high), float(value)))


def implied(fit: Fit | LawAverage, frame: pd.DataFrame, draws: np.ndarray | None = None) -> Estimate:
    """The loss at the frame's first row.

    `draws` (k, 1), of a `Fit`: the same by each bootstrap refit, where a refit needs another row (its own lambda).
    """
    loss = float(fit.predict(frame.iloc[:1])[0])
    if not len(fit.draws):
        return Estimate(loss, float("nan"), float("nan"))
    if draws is not None and isinstance(fit, Fit):
        low, high = fit.measured_interval(draws)
    else:
        low, high = fit.predict_interval(frame.iloc[:1])
    return Estimate(loss, float(low[0]), float(high[0]))


def question(fit: Fit | LawAverage, name: str, columns: Mapping, where: str = "at") -> pd.DataFrame:
    """The columns as a frame. Raises PointsError for those that the fit's law reads and that are not there."""
    columns = {new: columns[old] for new, old in ONE_MIXTURE.items() if old in columns} | {**columns}
    missing = [column for column in fit.columns if column not in columns]
    if missing:
        raise PointsError(f"the {name} law {fit.law} reads {', '.join(missing)}: give them in {where}")
    size = max((np.size(values) for values in columns.values()), default=1)
    return pd.DataFrame({key: np.broadcast_to(np.asarray(v, dtype=float), size) for key, v in columns.items()})


def beyond(name: str, fit: Fit | LawAverage, frame: pd.DataFrame) -> list[str]:
    """A warning for each column in which a row of the frame lies outside the fitted points, at the farthest row."""
    lines = []
    read = {*fit.columns, "N", "D"}
    for column in EXTRAPOLATED:
        if column not in fit.ranges or column not in frame.columns or column not in read:
            continue
        low, high = fit.ranges[column]
        # s2 of fitted points is a spline's, good to this part of it.
        margin = 1e-4 * max(abs(low), abs(high))
        values = frame[column].to_numpy(dtype=float)
        for value, end, side in ((values.max(), high, "largest"), (values.min(), low, "smallest")):
            if low - margin <= value <= high + margin or (value < low) != (side == "smallest"):
                continue
            far = f"{value / end:.3g} times" if end > 0 and value > 0 else f"{value - end:+.3g} from"
            times, unit = _unit(value) if column in ("N", "D") else (1.0, "")
            lines.append(
                f"{name}: {_NAMES.get(column, column)} = {times * value:.4g}{unit} is beyond the points, {far} the "
                f"{side} fitted ({times * end:.4g})"
            )
    return lines


def _unit(billions: float) -> tuple[float, str]:
    """The unit in which a count reads best: what billions are multiplied by for it, and its word."""
    units = ((1.0, " billion"), (1e3, " million"), (1e6, " thousand"))
    # As it prints, in four digits.
    return next(((times, word) for times, word in units if billions * times >= 0.99995), (1e9, ""))


def unknown_interval(name: str, fit: Fit | LawAverage) -> list[str]:
    """The warning that explains why an interval is NaN."""
    return [] if len(fit.draws) else [f"{name}: no intervals: the fit has no bootstrap draws; fit with bootstrap=200"]
