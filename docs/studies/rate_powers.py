"""Which powers of the learning rate do the laws of an open model read? Errors of docs/base-model.md.

    python -m docs.studies.rate_powers

For each pair of powers, of S1 and of S2, and each of the two laws: the root mean square error on the points that are
fitted, and the mean error on runs held out one by one, on a held-out peak of base-model-peaks, and on the last step of
the runs of 120 steps, three times the longest fitted one, over the kept runs of SmolLM2-135M.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

import fitting.schedule
from docs.studies.base_model_laws import confirmed_errors
from fitting import Fold, PointsError, fit, held_out
from fitting.parallel import over_cores
from pipeline.question.loading import question_of_study
from pipeline.study.collect import of_domain, read_points, schedules
from pipeline.study.folder import study_of

RESULTS = Path(__file__).parents[1] / "results"
NAMES = ("law", "math", "medical", "peaks", "wsd")
STUDIES = (*(f"base-model-{name}" for name in NAMES), "dynamics-open")
LAWS = ("transfer-open", "transfer-open-saturating")
POWERS = ((1.0, 1.0), (0.25, 2.0), (0.5, 2.0), (2 / 3, 1.0), (2 / 3, 2.0), (2 / 3, 3.0), (1.0, 2.0))
"""Of S1 and of S2."""


def misses(key: tuple[tuple[float, float], str, str]) -> list[tuple]:
    """Rows (power of S1, power of S2, law, what was held out, mean relative error) of a study."""
    powers, law, study_name = key
    fitting.schedule.ROOT, fitting.schedule.SQUARE = powers
    question = question_of_study(RESULTS / study_name, [])
    study = study_of(question)
    points, rates = of_domain(read_points(study), question), schedules(study.read_plan())
    points = points[(points["step"] > 0) & (points["phase"] == "continual")]
    rows: list[tuple] = []
    for _, every in points.groupby("corpus"):
        own, longer = every[every["role"] == "fit"], every[every["role"] == "confirm"]
        fitted = fit(own, law, schedules=rates, few=True, bootstrap=0)
        found = {"fitted points": fitted.metrics["log_rmse"]}
        if len(longer):
            found["120 steps"] = float(np.abs(confirmed_errors(fitted, longer, rates)).mean())
        peaks = own["run"].map(lambda run: float(np.max(rates[run].rates)))
        for name, values in (("a peak", peaks), ("a run", own["run"])):
            if study_name == "dynamics-open" or (name == "a peak" and study_name != "base-model-peaks"):
                continue
            parts = [Fold(str(one), (values != one).to_numpy(), (values == one).to_numpy()) for one in values.unique()]
            try:
                found[name] = float(held_out(own, law, parts, rates, 0, few=True)["relative_error"].abs().mean())
            except PointsError:
                continue
        rows += [(*powers, law, name, error) for name, error in found.items()]
    return rows


def main() -> None:
    """Print a row for each pair of powers and law."""
    keys = [(powers, law, study) for powers in POWERS for law in LAWS for study in STUDIES]
    rows = [row for rows in over_cores(misses, keys) for row in rows]
    table = pd.DataFrame(rows, columns=["S1", "S2", "law", "held out", "error"])
    print((100 * table.pivot_table("error", ["law", "S1", "S2"], "held out", sort=False)).round(2).to_markdown())


if __name__ == "__main__":
    main()
