"""Pythia-70M continued on Pile and Python: losses that others measured, at one size, with a schedule nobody printed.

Assumed: a constant rate, so that S1 counts steps (in units of 10,000), and 20,000 steps of pre-training at the same
rate; the term of S2 is a line in steps. The loss before is not among the points, so that the law is `transfer`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

import fitting
from docs.studies.transfer_points import DATA

PATH = "pile_python_cpt/ct_tidy.csv"
LAWS = {"transfer": {"F": 0.0, "g": 0.5}, "dcpt-free": {"A": 0.0, "alpha": 0.5}, "dcpt": {"A": 0.0, "alpha": 0.5}}
"""Law -> what is fixed, as there is one size only."""


@dataclass(frozen=True)
class Public:
    """One law on one corpus: R2 of all points; mean relative error of each ratio left out, of the second half of the
    steps left out; how many parameters were searched."""

    corpus: str
    law: str
    parameters: int
    r2: float
    ratio: pd.Series
    later: pd.Series


def public() -> Iterator[Public]:
    """Every law on both corpora. Yields nothing where the points are not there."""
    if not (DATA / PATH).exists():
        return
    table = pd.read_csv(DATA / PATH)
    walked = table["step"] / 1e4
    for corpus in ("pile", "python"):
        points = pd.DataFrame(
            {
                "run": table["r_python"],
                **{"step": table["step"], "N": 0.07, "D": walked, "s1": walked, "s2": walked, "s1_pretrain": 2.0},
                **{"r": table[f"r_{corpus}"], "rho": float(corpus == "pile"), "loss": table[f"loss_{corpus}"]},
            }
        )
        for law, fixed in LAWS.items():
            whole = fitting.fit(points, law, fix=fixed, bootstrap=0)
            ratio = {r: _missed(points, points["r"] != r, law, fixed) for r in points["r"].unique()}
            late = points["step"] > points["step"].max() / 2
            yield Public(
                corpus,
                law,
                len(whole.params) - len(whole.fixed),
                whole.metrics["r2"],
                pd.concat(ratio.values()),
                _missed(points, ~late, law, fixed),
            )


def _missed(points: pd.DataFrame, fitted: pd.Series, law: str, fixed: dict[str, float]) -> pd.Series:
    fit, rest = fitting.fit(points[fitted], law, fix=fixed, bootstrap=0), points[~fitted]
    return pd.Series(np.abs(fit.predict(rest) / rest["loss"] - 1)).groupby(rest["run"]).mean()
