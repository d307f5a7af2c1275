"""Points of a study of several domains whose laws are known."""

import numpy as np
import pandas as pd

from tests.fitting.synthetic import TRUE, grid, measured

DOMAINS = {
    "code": (1.10, 0.80), "math": (0.62, 0.92), "law": (1.62, 0.86),
    "chemistry": (1.24, 1.00), "music": (0.65, 1.16), "medical": (1.88, 0.78),
}  # fmt: skip
"""Domain -> E and C of its truth, which is otherwise that of tests/fitting/synthetic.py; made up. C is above what the
law's monotone constraint asks, so that the truth is one that it can have."""


def study_points(
    domains: tuple[str, ...],
    ratios: tuple[float, ...] = (0.0, 0.2, 0.5, 0.8, 1.0),
    steps: tuple[int, ...] = (1, 5, 10, 11, 25, 50, 100, 150, 200),
    noise: float = 0.002,
) -> pd.DataFrame:
    """Three sizes; runs without a domain are those of all; losses before training too. Columns as collect's."""
    parts = []
    for number, domain in enumerate(domains):
        E, C = DOMAINS[domain]
        frame = grid(ratios=ratios)
        frame = frame[(frame["step"] / 1000).isin(steps)]
        # A loss before training, as of a run of half a two-hundredth.
        first = frame[frame["step"] == 1000].assign(step=0, D=500 * 131_072e-9)
        frame = pd.concat([first, frame], ignore_index=True)
        alone = frame["r"] == 0
        named = frame["N"].astype(str) + "-" + np.where(alone, "general", domain + frame["r"].astype(str))
        shares = {f"mixture.{name}": np.where(alone, 0.0, np.nan) for name in domains if name != domain}
        shares |= {"mixture.general": 1 - frame["r"], f"mixture.{domain}": frame["r"]}
        for corpus, r, truth in (
            (domain, frame["r"], {"E": E, "C": C}),
            ("general", 1 - frame["r"], {"E": 2.3, "C": 0.8, "A": 0.6}),
        ):
            own = frame.assign(r=r, corpus=corpus, run=named, **shares)
            parts.append(measured(own, "dcpt", {**TRUE["dcpt"], **truth}, noise, seed=2 * number))
    points = pd.concat(parts, ignore_index=True).drop_duplicates(["run", "corpus", "step"])
    points["D"] = points["D"].where(points["step"] > 0, 0.0)
    return points.assign(phase="continual", role="fit").reset_index(drop=True)
