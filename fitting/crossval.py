"""How well a law predicts what it was not fitted to."""

import numpy as np
import pandas as pd

from fitting.laws import LAWS
from fitting.points import PointsError, columns_of, law_named, numbers_of, with_value
from fitting.schedule import Schedules, with_areas
from fitting.solve import fit


def held_out(
    points: pd.DataFrame, law: str, by: str, schedules: Schedules | None = None, seed: int = 0
) -> pd.DataFrame:
    """Fit on a part of the points, predict the rest.

    `by`: "size", all sizes but the largest -> the largest N; "steps", the first two thirds of the tokens ->
    points beyond 2/3 of the largest D; "ratio", every third ratio between the smallest and the largest is
    left out and predicted. Other arguments as in `fit`. No bootstrap is made.

    Returns the held-out points with the columns `predicted`, `measured` (nats per token), `relative_error`
    (predicted / measured - 1) and `split` (what was held out). Raises PointsError when nothing can be held
    out or the law cannot be fitted on what is left.

    Source: the splits of Que et al. 2024, sec. 4.2, one fold of each.
    """
    if by not in SPLITS:
        raise PointsError(f"cannot hold out by {by!r}: there are {', '.join(SPLITS)}")
    points = points.loc[with_value(points, law_named(law, LAWS))]
    column, split = SPLITS[by]
    left_out, label = split(numbers_of(points, [column])[column])
    try:
        fitted = fit(points.loc[~left_out], law, seed=seed, schedules=schedules, bootstrap=0)
    except PointsError as reason:
        raise PointsError(f"holding out {label} leaves too little to fit: {reason}") from None
    rest = points.loc[left_out]
    if "lambda" in fitted.params and schedules is not None:
        rest = with_areas(rest, schedules, fitted.params["lambda"])
    predicted, measured = fitted.predict(rest), columns_of(rest, ["loss"])["loss"]
    return rest.assign(
        predicted=predicted, measured=measured, relative_error=predicted / measured - 1, split=label
    )


def _largest_size(N: np.ndarray) -> tuple[np.ndarray, str]:
    largest = N.max()
    return np.equal(N, largest), f"N = {largest:g}"


def _last_third(D: np.ndarray) -> tuple[np.ndarray, str]:
    end = 2 / 3 * D.max()
    return np.greater(D, end), f"D > {end:g}"


def _every_third_ratio(r: np.ndarray) -> tuple[np.ndarray, str]:
    interior = np.unique(r)[1:-1]
    if not len(interior):
        raise PointsError("cannot hold out by ratio: it takes three ratios or more")
    chosen = interior[1::3] if len(interior) > 1 else interior
    return np.isin(r, chosen), f"r = {', '.join(f'{value:g}' for value in chosen)}"


SPLITS = {"size": ("N", _largest_size), "steps": ("D", _last_third), "ratio": ("r", _every_third_ratio)}
