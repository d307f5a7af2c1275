"""How well do the laws of a base model predict a peak learning rate that they were not fitted to?

    python -m docs.studies.held_out_peaks docs/results/base-model-peaks

For each corpus and peak: the mean relative error of the loss of the runs at that peak, by each law fitted to the runs
at the others and by the mean of the laws, and the same as a part of the change of the loss.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from fitting import Fold, held_out
from pipeline.question.loading import question_of_study
from pipeline.study.collect import of_domain, read_points, schedules
from pipeline.study.folder import study_of

LAWS = ("transfer-open", "transfer-open-saturating")


def misses(folder: Path) -> pd.DataFrame:
    """Columns corpus, peak, law (mean for that of the laws), error and of_change, both relative."""
    question = question_of_study(folder, [])
    study = study_of(question)
    points, rates = of_domain(read_points(study), question), schedules(study.read_plan())
    points = points[(points["step"] > 0) & (points["role"] == "fit")]
    rows = []
    for corpus, own in points.groupby("corpus"):
        peaks = own["run"].map(lambda run: float(np.max(rates[run].rates)))
        for peak in sorted(peaks.unique()):
            fold = Fold(f"{peak:g}", (peaks != peak).to_numpy(), (peaks == peak).to_numpy())
            errors = [
                held_out(own, law, [fold], rates, 0, few=True)["relative_error"].to_numpy(dtype=float) for law in LAWS
            ]
            runs = own[fold.judged]
            change = (runs["loss"] / (runs["loss_before"] - runs["loss"]).abs()).to_numpy()
            for law, error in zip((*LAWS, "mean"), (*errors, np.mean(errors, axis=0))):
                rows.append((corpus, peak, law, np.abs(error).mean(), np.abs(error * change).mean()))
    return pd.DataFrame(rows, columns=["corpus", "peak", "law", "error", "of_change"])


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        table = misses(Path(argument))
        print(table.to_markdown(index=False, floatfmt=("", "g", "", ".2%", ".1%")))
