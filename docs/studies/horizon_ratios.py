"""How do errors grow below the fitted ratios? The laws of a question, fitted without the smallest or largest ones.

    python -m docs.studies.horizon_ratios

Every series of `horizon_series` with five ratios or more is fitted without its one, two or three smallest ratios, or
largest, and predicts their points at the fitted tokens, in the second half of runs. Ratios are those of the corpus
whose loss it is. Prints, by set and q of `uncertainty.horizon`, the points, the mean error, what 90% intervals hold by
the error at held-out ratios alone (`HELD_OUT`) and with RATIO, and their mean half-width over the narrowest constant
that holds 90%; and the same above the largest ratio, where RATIO adds nothing. Each source has the same weight.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator

import numpy as np
import pandas as pd

import fitting
from docs.studies.horizon_errors import coverage
from docs.studies.horizon_series import Far, all_series, apart_series
from fitting import PointsError
from fitting.law_average import APART, AVERAGE
from fitting.uncertainty.horizon import NO_RATIO, below

LEAST, OUT = 5, 3
"""Ratios of a series at least, and that are left out at most."""
HELD_OUT = 0.018
"""Half-width at held-out ratios: 90% of what an average errs by above the largest ratio."""
ENDS = (0.0, 1.001, 2.0, 5.0, 12.0, 25.0, 100.0)
NO_CURVES = {"fine-tuning", "other fine-tuning", "smollm2"}
"""Sources of one ratio a series, or of too few."""


def errors(series: Far) -> Iterator[pd.DataFrame]:
    """A row a point of a ratio that was left out, and law: the log error of its prediction."""
    points = series.points
    if "role" in points:
        points = points[points["role"] == "fit"]
    ratios = np.sort(points["r"].unique())
    if len(ratios) < LEAST:
        return
    for out in range(1, min(OUT, len(ratios) - 3) + 1):
        for side, edge in (("below", ratios[out]), ("above", ratios[-1 - out])):
            left = points["r"] < edge if side == "below" else points["r"] > edge
            fitted, judged = points[~left], points[left]
            # Points of the second half: what a question asks about is the end of runs.
            judged = judged[judged["D"] >= judged.groupby("curve")["D"].transform("max") / 2]
            found = {}
            for law in series.laws:
                try:
                    fit = fitting.fit(fitted, law, bootstrap=0, schedules=series.schedules, few=True)
                    found[law] = np.log(judged["loss"] / fit.predict(judged))
                except (PointsError, ValueError, np.linalg.LinAlgError, KeyError):
                    continue
            if not found:
                continue
            table = pd.DataFrame(found)
            apart = APART * table.std(axis=1, ddof=0)
            for law in (*found, AVERAGE):
                kind = "average" if law == AVERAGE else "law"
                known = np.hypot(HELD_OUT, apart if law == AVERAGE else 0.0)
                half = np.hypot(known, below(edge, judged["r"].to_numpy(), kind) if side == "below" else 0.0)
                error = table.mean(axis=1) if law == AVERAGE else table[law]
                q = (edge + NO_RATIO) / (judged["r"] + NO_RATIO)
                yield pd.DataFrame(
                    {"law": kind, "q": np.maximum(q, 1.0), "error": error, "before": known, "half": half}
                )


def main() -> None:
    """Measure and print."""
    warnings.simplefilter("ignore")
    tables = []
    for name, every in (("learn", all_series()), ("apart", apart_series())):
        for series in every:
            if "r" in series.points and series.source not in NO_CURVES:
                rows = [rows.assign(row=rows.index) for rows in errors(series)]
                tables += [table.assign(set=name, source=series.source, series=series.name) for table in rows]
                print(name, series.source, series.name, file=sys.stderr, flush=True)
    table = pd.concat(tables)
    table["bin"] = pd.cut(table["q"], ENDS)
    columns = ["source", "series", "row", "error", "before", "half"]
    shown = table.groupby(["set", "law", "bin"], observed=True)[columns].apply(coverage)
    print(shown.reset_index().to_markdown(index=False, floatfmt=".3g"))


if __name__ == "__main__":
    main()
