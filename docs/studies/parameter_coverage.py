"""How often a 90% interval holds the truth, on points whose law and noise are known.

python -m docs.studies.parameter_coverage [repeats] [draws] [noise] [law …]
"""

import sys

import numpy as np
import pandas as pd

import fitting
from fitting.points import TAILS
from tests.fitting.synthetic import TRUE, grid, measured, small_plan

NOISES = {"points": (0.003, 0.0), "runs": (0.002, 0.002)}
"""Relative noise of each point and of each whole run."""
TRUTHS = {**TRUE, "dcpt": {**TRUE["dcpt"], "gamma": 0.6, "C": 0.4}, "dcpt-free-of-E": TRUE["dcpt"]}
"""At gamma = .2, as the tests have it, C (r + eps)^-gamma is nearly a constant: E, C and gamma are not identified, and
their intervals hold the truth more often than they say. That case is "dcpt-free-of-E"."""


def coverage(law: str, noise: str, repeats: int = 200, bootstrap: int = 100) -> pd.DataFrame:
    """Share of repeats in which the interval holds the true parameter, the true loss and a new run's measured loss.

    Columns: profile and bootstrap, the two methods of `Fit.intervals`; identified, the share of repeats that call the
    parameter so. Row "loss" is the mean over the plan's cells of the true loss within the bootstrap's own quantiles;
    "measured" that of a new, noisy run within `predict_interval`.
    """
    truth, (point_noise, run_noise) = TRUTHS[law], NOISES[noise]
    law = "dcpt" if law.startswith("dcpt-free-of") else law
    plan = grid(evaluations=50, every=4000) if law == "dcpt" else small_plan(law)
    cells = plan.iloc[:: max(1, len(plan) // 40)].reset_index(drop=True).assign(run=lambda f: np.arange(len(f)))
    true_loss = measured(cells, law, truth, 0.0)["loss"].to_numpy()
    hits: dict[str, list[dict[str, float]]] = {"profile": [], "bootstrap": [], "identified": []}
    for repeat in range(repeats):
        points = measured(plan, law, truth, point_noise, seed=repeat, run_noise=run_noise)
        fit = fitting.fit(points, law, bootstrap=bootstrap, seed=repeat)
        for method in ("profile", "bootstrap"):
            ends = fit.intervals(method).items()
            hits[method].append({name: float(low <= truth[name] <= high) for name, (low, high) in ends})
        hits["identified"].append({name: float(known) for name, known in fit.identified.items()})
        low, high = np.quantile(fit.predict_draws(cells), TAILS, axis=0)
        hits["bootstrap"][-1]["loss"] = float(np.mean((low <= true_loss) & (true_loss <= high)))
        new = measured(cells, law, truth, point_noise, seed=10_000 + repeat, run_noise=run_noise)["loss"].to_numpy()
        low, high = fit.predict_interval(cells)
        hits["bootstrap"][-1]["measured"] = float(np.mean((low <= new) & (new <= high)))
    return pd.DataFrame({name: pd.DataFrame(rows).mean() for name, rows in hits.items()}).round(3)


def main(repeats: str = "200", draws: str = "100", noise: str = "points", *laws: str) -> None:
    """Print the coverage of each law."""
    for name in laws or ("dcpt", "chinchilla", "dynamics"):
        found = coverage(name, noise, int(repeats), int(draws))
        print(f"{name}, noise of {noise}, {repeats} repeats\n{found}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
