"""How do errors grow with the size of the model? chinchilla, fitted to the smaller sizes of public ladders.

    python -m docs.studies.horizon_sizes

Every ladder of Kempner, Marin and Chinchilla is fitted up to each size from the fifth on, and predicts the larger ones,
at most 1.5 times as far in tokens as any fitted run of their size would be (`uncertainty.horizon`). Prints, by source
and size over the largest fitted, the points, the root mean square of their log errors, the quantile of 90% and that
over the logarithm of the size: `SIZE` of `uncertainty.horizon`. In the last column what the size before was missed by.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

import fitting
from docs.studies.horizon_series import Far, all_series, apart_series
from fitting.uncertainty.horizon import horizons

LADDERS = {"kempner", "marin", "chinchilla", "other kempner"}
SIZES = (1.2, 2.0, 4.0, 8.0, 16.0, 64.0)


def errors(series: Far) -> Iterator[pd.DataFrame]:
    """A row a point of a larger size."""
    points = series.points
    for size in sorted(points["curve"].unique())[4:-1]:
        fitted = points[points["curve"] <= size]
        before = fitted[fitted["curve"] < size]
        judged = points[points["N"] > SIZES[0] * fitted["N"].max()]
        if judged.empty or before["N"].nunique() < 3:
            continue
        fit, one_less = (fitting.fit(rows, "chinchilla", bootstrap=0, few=True) for rows in (fitted, before))
        last = fitted[fitted["curve"] == size]
        yield pd.DataFrame(
            {
                "source": series.source,
                "times": judged["N"] / fitted["N"].max(),
                "error": np.log(judged["loss"] / fit.predict(judged)),
                "horizon": horizons(fit.reach, judged["N"].to_numpy(), judged["D"].to_numpy()),
                "before": np.sqrt(np.mean(np.log(last["loss"] / one_less.predict(last)) ** 2)),
            }
        )


def summary(rows: pd.DataFrame) -> pd.Series:
    """The columns of the table."""
    quantile = rows["error"].abs().quantile(0.9)
    middle = np.log(rows["times"].median())
    root, before = (np.sqrt(np.mean(rows[name] ** 2)) for name in ("error", "before"))
    return pd.Series({"points": len(rows), "rms": root, "q90": quantile, "q90 / log": quantile / middle, "one": before})


def main() -> None:
    """Measure and print."""
    every = (one for series in (all_series, apart_series) for one in series() if one.source in LADDERS)
    rows = pd.concat([table for series in every for table in errors(series)])
    rows = rows[rows["horizon"] <= 1.5]
    rows["bin"] = pd.cut(rows["times"], SIZES)
    learned = rows[rows["source"] != "other kempner"].assign(source="all but other kempner")
    table = pd.concat([learned, rows]).groupby(["source", "bin"], observed=True)[[*rows]].apply(summary)
    print(table.reset_index().to_markdown(index=False, floatfmt=".3g"))


if __name__ == "__main__":
    main()
