"""Which powers of the learning rate does the law of an open model read? Errors of docs/base-model.md.

    python -m docs.studies.rate_powers

For each pair of powers, of S1 and of S2: the root mean square error on the points that are fitted, and the mean error
on runs held out one by one, on a held-out peak of base-model-peaks, and on the last step of the runs of 120 steps,
three times the longest fitted one, over the kept runs of SmolLM2-135M.
"""

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

import fitting.schedule
from docs.studies.base_model_laws import Runs, confirmed_errors, parted
from fitting.parallel import over_cores

LAW = "transfer-open-saturating"
RESULTS = Path(__file__).parents[1] / "results"
NAMES = ("law", "math", "peaks", "wsd", "medical", "code", "law-again", "chemistry")
STUDIES = (*(f"base-model-{name}" for name in NAMES), "dynamics-open")
POWERS = ((1.0, 1.0), (0.25, 2.0), (0.5, 2.0), (2 / 3, 1.0), (2 / 3, 2.0), (2 / 3, 3.0), (1.0, 2.0))
"""Of S1 and of S2."""


def misses(key: tuple[tuple[float, float], str]) -> list[tuple]:
    """Rows (power of S1, power of S2, what was held out, mean relative error) of a study."""
    powers, study = key
    fitting.schedule.ROOT, fitting.schedule.SQUARE = powers
    runs = Runs.of(RESULTS / study)
    rows: list[tuple] = []
    for corpus, fitted in runs.fits(LAW).items():
        rows.append(("fitted points", fitted.metrics["log_rmse"]))
        longer = runs.confirmed[runs.confirmed["corpus"] == corpus]
        if len(longer):
            rows.append(("120 steps", float(np.abs(confirmed_errors(fitted, longer, runs.rates)).mean())))
    if study != "dynamics-open":
        parts = {"a run": parted(runs.fitted["run"])}
        parts |= {"a peak": parted(runs.peaks())} if study == "base-model-peaks" else {}
        for name, folds in parts.items():
            errors = runs.held_out(LAW, folds).groupby("corpus")["relative_error"]
            rows += [(name, float(of_corpus.abs().mean())) for _, of_corpus in errors]
    return [(*powers, *row) for row in rows]


def main() -> None:
    """Print a row for each pair of powers."""
    keys = list(product(POWERS, STUDIES))
    rows = [row for rows in over_cores(misses, keys) for row in rows]
    table = pd.DataFrame(rows, columns=["S1", "S2", "held out", "error"])
    print((100 * table.pivot_table("error", ["S1", "S2"], "held out", sort=False)).round(2).to_markdown())


if __name__ == "__main__":
    main()
