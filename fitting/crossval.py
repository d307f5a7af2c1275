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
    left out and predicted; "reach", a larger model trained for longer, as a recommendation asks of a law: the first
    half of the tokens of all sizes but the largest -> the second half of the largest. Other arguments as in `fit`.
    No bootstrap is made.

    Returns the held-out points with the columns `predicted`, `measured` (nats per token), `relative_error`
    (predicted / measured - 1) and `split` (what was held out). Raises PointsError when nothing can be held
    out or the law cannot be fitted on what is left.

    Source: the splits of Que et al. 2024, sec. 4.2, one fold of each; reach is ours.
    """
    if by not in SPLITS:
        raise PointsError(f"cannot hold out by {by!r}: there are {', '.join(SPLITS)}")
    points = points.loc[with_value(points, law_named(law, LAWS))]
    columns, split = SPLITS[by]
    fitted_rows, judged, label = split(**numbers_of(points, columns))
    try:
        fitted = fit(points.loc[fitted_rows], law, seed=seed, schedules=schedules, bootstrap=0)
    except PointsError as reason:
        raise PointsError(f"holding out {label} leaves too little to fit: {reason}") from None
    rest = points.loc[judged]
    if rest.empty:
        raise PointsError(f"holding out {label} leaves no point to predict")
    if "lambda" in fitted.params and schedules is not None:
        rest = with_areas(rest, schedules, fitted.params["lambda"])
    predicted, measured = fitted.predict(rest), columns_of(rest, ["loss"])["loss"]
    return rest.assign(predicted=predicted, measured=measured, relative_error=predicted / measured - 1, split=label)


Split = tuple[np.ndarray, np.ndarray, str]
"""Which points are fitted, which are judged, and what was held out."""


def _largest_size(N: np.ndarray) -> Split:
    largest = N.max() == N
    return ~largest, largest, f"N = {N.max():g}"


def _last_third(D: np.ndarray) -> Split:
    end = 2 / 3 * D.max()
    return end >= D, end < D, f"D > {end:g}"


def _every_third_ratio(r: np.ndarray) -> Split:
    interior = np.unique(r)[1:-1]
    if not len(interior):
        raise PointsError("cannot hold out by ratio: it takes three ratios or more")
    chosen = interior[1::3] if len(interior) > 1 else interior
    left_out = np.isin(r, chosen)
    return ~left_out, left_out, f"r = {', '.join(f'{value:g}' for value in chosen)}"


def _larger_for_longer(N: np.ndarray, D: np.ndarray) -> Split:
    largest, late = N.max() == N, D.max() / 2 < D
    return ~largest & ~late, largest & late, f"N = {N.max():g} and D > {D.max() / 2:g}"


SPLITS = {
    "size": (["N"], _largest_size),
    "steps": (["D"], _last_third),
    "ratio": (["r"], _every_third_ratio),
    "reach": (["N", "D"], _larger_for_longer),
}
