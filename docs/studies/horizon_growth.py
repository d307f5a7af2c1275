"""How do errors grow with the size of the model, and below the fitted ratios? SIZE and RATIO of `uncertainty.horizon`.

    python -m docs.studies.horizon_growth sizes
    python -m docs.studies.horizon_growth ratios

Sizes: every ladder of Kempner, Marin and Chinchilla is fitted by chinchilla up to each size from the fifth on, and
predicts the larger ones, at most 1.5 times as far in tokens as any fitted run of their size would be. Prints, by source
and size over the largest fitted, the points, the root mean square of their log errors, the quantile of 90% and that
over the logarithm of the size; in the last column what the size before was missed by.

Ratios: every series of `horizon_series` with five ratios or more is fitted without its one, two or three smallest
ratios, or largest, by the laws of a question, and predicts their points at the fitted tokens, in the second half of
runs. Ratios are those of the corpus whose loss it is. Prints, by set and q of `uncertainty.horizon`, the points, the
mean error, what 90% intervals hold by the error at held-out ratios alone (`HELD_OUT`) and with RATIO, and their mean
half-width over the narrowest constant that holds 90%; and the same above the largest ratio, where RATIO adds nothing.
Each source has the same weight.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator

import numpy as np
import pandas as pd

import fitting
from docs.studies.horizon_errors import coverage
from docs.studies.horizon_series import all_series, apart_series
from docs.studies.law_errors import Series
from fitting import PointsError
from fitting.law_average import APART, AVERAGE
from fitting.uncertainty.horizon import NO_RATIO, below, horizons

LADDERS = {"kempner", "marin", "chinchilla", "other kempner"}
SIZES = (1.2, 2.0, 4.0, 8.0, 16.0, 64.0)
LEAST, OUT = 5, 3
"""Ratios of a series at least, and that are left out at most."""
HELD_OUT = 0.018
"""Half-width at held-out ratios: 90% of what an average errs by above the largest ratio."""
ENDS = (0.0, 1.001, 2.0, 5.0, 12.0, 25.0, 100.0)
NO_CURVES = {"fine-tuning", "other fine-tuning", "smollm2"}
"""Sources of one ratio a series, or of too few."""


def of_sizes(series: Series) -> Iterator[pd.DataFrame]:
    """A row a point of a larger size."""
    points = series.points
    for size in sorted(points["curve"].unique())[4:-1] if series.source in LADDERS else ():
        fitted = points[points["curve"] <= size]
        before = fitted[fitted["curve"] < size]
        judged = points[points["N"] > SIZES[0] * fitted["N"].max()]
        if judged.empty or before["N"].nunique() < 3:
            continue
        fit, one_less = (fitting.fit(rows, "chinchilla", bootstrap=0, few=True) for rows in (fitted, before))
        last, times = fitted[fitted["curve"] == size], judged["N"] / fitted["N"].max()
        missed = np.sqrt(np.mean(np.log(last["loss"] / one_less.predict(last)) ** 2))
        error, far = np.log(judged["loss"] / fit.predict(judged)), horizons(fit.reach, judged["N"], judged["D"])
        yield pd.DataFrame({"times": times, "error": error, "before": missed})[far <= 1.5]


def of_ratios(series: Series) -> Iterator[pd.DataFrame]:
    """A row a point of a ratio that was left out, and law: the log error of its prediction."""
    points = series.points
    if "r" not in points or series.source in NO_CURVES:
        return
    if "role" in points:
        points = points[points["role"] == "fit"]
    ratios = np.sort(points["r"].unique())
    for out in range(1, min(OUT, len(ratios) - 3) + 1) if len(ratios) >= LEAST else ():
        for side, edge in (("below", ratios[out]), ("above", ratios[-1 - out])):
            left = points["r"] < edge if side == "below" else points["r"] > edge
            fitted, judged = points[~left], points[left]
            # Points of the second half: what a question asks about is the end of runs.
            judged = judged[judged["D"] >= judged.groupby("curve")["D"].transform("max") / 2]
            table = pd.DataFrame(index=judged.index)
            for law in series.laws:
                try:
                    fit = fitting.fit(fitted, law, bootstrap=0, schedules=series.schedules, few=True)
                    table[law] = np.log(judged["loss"] / fit.predict(judged))
                except (PointsError, ValueError, np.linalg.LinAlgError, KeyError):
                    continue
            apart, mean = APART * table.std(axis=1, ddof=0), table.mean(axis=1)
            q = np.maximum((edge + NO_RATIO) / (judged["r"] + NO_RATIO), 1.0)
            for law in (*table, AVERAGE) if len(table.columns) else ():
                kind = "average" if law == AVERAGE else "law"
                known = np.hypot(HELD_OUT, apart if law == AVERAGE else 0.0)
                half = np.hypot(known, below(edge, judged["r"].to_numpy(), kind) if side == "below" else 0.0)
                error = mean if law == AVERAGE else table[law]
                yield pd.DataFrame({"law": kind, "times": q, "error": error, "before": known, "half": half})


def summary(rows: pd.DataFrame) -> pd.Series:
    """The columns of the table of sizes."""
    quantile = rows["error"].abs().quantile(0.9)
    middle = np.log(rows["times"].median())
    root, before = (np.sqrt(np.mean(rows[name] ** 2)) for name in ("error", "before"))
    return pd.Series({"points": len(rows), "rms": root, "q90": quantile, "q90 / log": quantile / middle, "one": before})


def main(axis: str) -> None:
    """Measure and print."""
    warnings.simplefilter("ignore")
    measure, ends = (of_sizes, SIZES) if axis == "sizes" else (of_ratios, ENDS)
    table = pd.concat(
        rows.assign(row=rows.index, set=name, source=series.source, series=series.name)
        for name, every in (("learn", all_series()), ("apart", apart_series()))
        for series in every
        for rows in measure(series)
    )
    table["bin"] = pd.cut(table["times"], ends)
    if axis == "sizes":
        learned = table[table["source"] != "other kempner"].assign(source="all but other kempner")
        parts, by, shown = pd.concat([learned, table]), ["source", "bin"], summary
    else:
        parts, by, shown = table, ["set", "law", "bin"], coverage
    lines = parts.groupby(by, observed=True)[[*table]].apply(shown).reset_index()
    print(lines.to_markdown(index=False, floatfmt=".3g"))


if __name__ == "__main__":
    main(*sys.argv[1:])
