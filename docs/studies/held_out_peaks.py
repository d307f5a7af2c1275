"""How well do the laws of a base model predict a peak learning rate that they were not fitted to?

    python -m docs.studies.held_out_peaks docs/results/base-model-peaks

For each corpus and peak: the mean relative error of the loss of the runs at that peak, by each law fitted to the runs
at the others, and the same as a part of the change of the loss.
"""

import sys
from pathlib import Path

import pandas as pd

from docs.studies.base_model_laws import Runs, parted

OPEN = ("transfer-open", "transfer-open-saturating")


def misses(folder: Path) -> pd.DataFrame:
    """Columns corpus, peak, law, error and of_change, both relative."""
    runs = Runs.of(folder)
    table = pd.concat([runs.held_out(law, parted(runs.peaks())).assign(law=law) for law in OPEN], ignore_index=True)
    change = table["loss"] / (table["loss_before"] - table["loss"]).abs()
    table = table.assign(error=table["relative_error"].abs(), peak=table["split"].astype(float))
    table["of_change"] = table["error"] * change
    return table.groupby(["corpus", "peak", "law"])[["error", "of_change"]].mean().reset_index()


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        table = misses(Path(argument))
        print(table.to_markdown(index=False, floatfmt=("", "g", "", ".2%", ".1%")))
