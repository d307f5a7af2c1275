"""The eps that joins r = 0 to the other ratios, at each step: with a constant eps it would be one number."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from docs.studies.transfer_points import Series
from docs.studies.transfer_questions import base

STEPS = (5, 20, 40, 90, 150, 210, 270, 360)


def falling_eps(series: Series) -> Iterator[dict[str, object]]:
    """For each of `STEPS`: the mean S1, C and eps of the base runs of a general corpus.

    What a run's loss has gone up by beyond that of the run at r = 1 of its size is taken as C log((1 + eps)/(r + eps)):
    C by least squares on the runs at 0 < r < 1, where eps has no part, then eps from the run at r = 0.
    """
    p = series.points[base(series.points)]
    increase = (p["loss"] - p["loss_before"]).rename("increase")
    table = pd.concat([p[["N", "r", "step", "s1"]], increase], axis=1).groupby(["step", "N", "r"]).mean()
    known = table["increase"].unstack("r")
    beyond = known.sub(known[1.0], axis=0).dropna(subset=[0.0]).groupby("step").mean()
    for step in STEPS:
        inner = beyond.loc[step].drop([0.0, 1.0]).dropna()
        way = -np.log(inner.index.to_numpy(dtype=float))
        height = float(way @ inner.to_numpy() / (way @ way))
        eps = 1 / np.expm1(float(beyond[0.0].loc[step]) / height)
        s1 = float(table["s1"].loc[step].mean())
        yield {"question": "eps by time", "name": f"step {step}", "low": s1, "value": eps, "high": height}
