"""How often a 90% interval holds the truth, on points whose law and noise are known.

python -m tests.benchmarks.coverage [repeats] [draws] [law …]
"""

import sys

import numpy as np
import pandas as pd

import fitting
from fitting.laws import LAWS
from tests.fitting.synthetic import TRUE, measured, small_plan

RUN_NOISE = 0.002
POINT_NOISE = 0.002


def coverage(law: str, repeats: int = 200, bootstrap: int = 100, level: float = 0.9) -> dict[str, float]:
    """Share of repeats in which the interval holds the true parameter, the true loss and a new run's measured
    loss.

    Key "loss" is the mean over the plan's points and held-out cells of the true loss within the bootstrap's
    own quantiles; "measured" that of a new, noisy run within `predict_interval`.
    """
    plan, truth = small_plan(law), TRUE[law]
    cells = plan.iloc[:: max(1, len(plan) // 40)].reset_index(drop=True).assign(run=lambda f: np.arange(len(f)))
    true_loss = measured(cells, law, truth, 0.0)["loss"].to_numpy()
    hits = []
    for repeat in range(repeats):
        points = measured(plan, law, truth, POINT_NOISE, seed=repeat, run_noise=RUN_NOISE)
        fit = fitting.fit(points, law, bootstrap=bootstrap, seed=repeat)
        row: dict[str, float] = {
            name: float(low <= truth[name] <= high) for name, (low, high) in fit.intervals(level).items()
        }
        low, high = np.quantile(fit.predict_draws(cells), [(1 - level) / 2, (1 + level) / 2], axis=0)
        row["loss"] = float(np.mean((low <= true_loss) & (true_loss <= high)))
        new = measured(cells, law, truth, POINT_NOISE, seed=10_000 + repeat, run_noise=RUN_NOISE)["loss"].to_numpy()
        low, high = fit.predict_interval(cells, level)
        row["measured"] = float(np.mean((low <= new) & (new <= high)))
        hits.append(row)
    return pd.DataFrame(hits).mean().round(3).to_dict()


if __name__ == "__main__":
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    draws = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    for name in sys.argv[3:] or list(LAWS):
        print(name, coverage(name, repeats, draws), flush=True)
