"""Held-out errors of the transfer laws on two pairs whose runs had no part in the choice of any form.

General text with medical text and with music, by `experiment=transfer-pairs`; points of docs/results. The splits ratio,
tokens, size, and size and tokens are those of a recommendation, of the runs with the first peak; "no general" is all
domain, "peak" the runs with the other. S2 is that of the kept points.

    python -m docs.studies.transfer_pairs
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import product

import numpy as np
import pandas as pd

import fitting
from docs.studies.transfer_points import ROOT
from fitting.parallel import over_cores

PAIRS = ("medical", "music")
SPLITS = ("ratio", "tokens", "size", "size-and-tokens")
JUDGED = ("transfer-anchored", "transfer-scaled", "transfer-replay")
FIRST_STEP = 5
SLOW = "slow"


def cells() -> Iterator[tuple[str, str, str, pd.DataFrame, pd.DataFrame]]:
    """Pair, corpus (general, domain), question, points that are fitted and points that are judged."""
    for pair, corpus in product(PAIRS, ("general", "domain")):
        points = pd.read_parquet(ROOT / f"docs/results/pairs-{pair}/points.parquet")
        own = (points["phase"] == "continual") & (points["corpus"] == corpus) & (points["step"] >= FIRST_STEP)
        points = points[own].reset_index(drop=True)
        slow = points["variant"] == SLOW
        base = points[~slow].reset_index(drop=True)
        for split in SPLITS:
            (fold,) = fitting.folds(base, split)
            yield pair, corpus, split, base[fold.fitted], base[fold.judged]
        domain = 1 - base["r"] if corpus == "general" else base["r"]
        inner = (domain > 0.05) & (domain < 0.95)
        yield pair, corpus, "no general", base[inner], base[domain > 0.95]
        yield pair, corpus, "peak 1e-3 to 3e-4", base, points[slow]
        yield pair, corpus, "peak 3e-4 to 1e-3", points[slow], base[inner]


def measured() -> pd.DataFrame:
    """A row a cell: the mean relative error of each law on the points that are held out."""

    def judge(job: tuple) -> dict[str, object]:
        pair, corpus, question, known, held = job
        row: dict[str, object] = {"pair": pair, "corpus": corpus, "question": question}
        for law in JUDGED:
            fit = fitting.fit(known, law, bootstrap=0, few=True)
            row[law] = float(np.mean(np.abs(fit.predict(held) / held["loss"].to_numpy() - 1)))
        return row

    return pd.DataFrame([*over_cores(judge, list(cells()))])


def times(table: pd.DataFrame) -> pd.DataFrame:
    """Geometric mean over cells of each law's error over that of the first, by corpus and over all."""
    ratios = np.log(table[[*JUDGED]].div(table[JUDGED[0]], axis=0))
    by = ratios.groupby(table["corpus"]).mean()
    by.loc["both"] = ratios.mean()
    return np.exp(by)


if __name__ == "__main__":
    table = measured()
    shown = table.assign(**{law: (100 * table[law]).map("{:.2f}%".format) for law in JUDGED})
    sys.stdout.write(f"{shown.to_markdown(index=False)}\n\n{times(table).round(2).to_markdown()}\n")
