"""What 90% intervals of the average of the laws hold when few runs are fitted: 4, 6 or 9 of a series, drawn at random.

The series of `tests.benchmarks.misfit`. Each draw is fitted and tested as `cptlaw fit` does; the last points of all
other runs are predicted.

python -m tests.benchmarks.few_runs [draws of each series and count]
"""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd

import fitting
from fitting import PointsError
from fitting.law_average import APART
from fitting.parallel import over_cores
from fitting.uncertainty.misfit import AVERAGE_FACTORS, NEXT, extrapolation, half_width
from pipeline.study.fits import SPLITS, shared_folds
from tests.benchmarks.misfit import LAWS, all_series, log_errors

COUNTS = (4, 6, 9)
MANY = 1_000_000
"""Runs whose number widens no interval."""


def judged_points(job: tuple) -> pd.DataFrame:
    """The last points of the runs of a series that were not drawn.

    Their error, and the half-width of the interval with and without what it is widened by because runs are few.
    """
    source, name, points, schedules, count, seed = job
    runs = points["run"].unique()
    random = np.random.default_rng([seed, count, sum(map(ord, source + name))])
    drawn = points["run"].isin(random.choice(runs, count, replace=False))
    outside = points[~drawn & (points["r"] >= max(r for _, r in LAWS.values()))]
    ends = outside[outside["step"] == outside.groupby("run")["step"].transform("max")]
    admitted = {law: points[drawn & (points["step"] >= step) & (points["r"] >= r)] for law, (step, r) in LAWS.items()}
    shared = points[drawn & np.logical_and.reduce([points.index.isin(own.index) for own in admitted.values()])]
    fits, known = {}, {}
    for law, own in admitted.items():
        of_law = None if law == "dcpt" else schedules
        try:
            fits[law] = fitting.fit(own, law, schedules=of_law, bootstrap=0, few=True)
        except PointsError:
            continue
        for split in SPLITS:
            try:
                tested = fitting.held_out(own, law, shared_folds(own, shared, split), of_law)
            except PointsError:
                continue
            known[law, split] = log_errors(tested[tested.index.isin(shared.index)])
    if len(fits) < 2:
        return pd.DataFrame()
    logs = pd.DataFrame({law: np.log(fit.predict(ends)) for law, fit in fits.items()}, index=ends.index)
    ranges = {axis: (shared[axis].min(), shared[axis].max()) for axis in ("N", "D")}
    rows = []
    for at, end in ends.iterrows():
        kind = extrapolation(ranges, end["N"], end["D"])
        inner = next((one for one in NEXT[kind] if all((law, one) in known for law in fits)), None)
        errors = pd.DataFrame({law: known[law, inner] for law in fits if inner}).dropna()
        if errors.empty:
            continue
        weights = pd.Series(fitting.law_weights({law: errors[law].to_numpy() for law in fits}))
        mean = logs.loc[at] @ weights
        apart = APART * np.sqrt(((logs.loc[at] - mean) ** 2) @ weights)
        residual = float(np.sqrt(sum(weights[law] * fits[law].metrics["log_rmse"] ** 2 for law in fits)))
        half, plain = (
            np.hypot(half_width((errors @ weights).to_numpy(), residual, AVERAGE_FACTORS[kind], number), apart)
            for number in (shared["run"].nunique(), MANY)
        )
        rows.append({"error": abs(np.log(end["loss"]) - mean), "half": half, "plain": plain, "kind": kind})
    return pd.DataFrame(rows).assign(source=source, runs=count, weight=1 / max(len(rows), 1))


def coverage(rows: pd.DataFrame) -> pd.Series:
    """Of points: coverage with and without the widening, mean error and half-width. Every draw has the same weight."""
    weight = rows["weight"]
    mean = {
        "held": rows["error"] <= rows["half"],
        "held by plain": rows["error"] <= rows["plain"],
        "error": rows["error"],
        "half": rows["half"],
    }
    return pd.Series({name: np.average(values, weights=weight) for name, values in mean.items()} | {"n": len(rows)})


if __name__ == "__main__":
    draws = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    jobs = [(*series, count, seed) for series in all_series() for count in COUNTS for seed in range(draws)]
    table = pd.concat(over_cores(judged_points, jobs), ignore_index=True)
    table = table[np.isfinite(table["error"])]
    for by in ("runs", "kind", "source"):
        print(table.groupby(by)[[*table]].apply(coverage).round(4))
