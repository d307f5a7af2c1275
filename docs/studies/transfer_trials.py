"""How far does the transfer law hold? Held-out errors of laws on the transfer trials, and on runs that came later.

    python -m docs.studies.transfer_trials          # the trials: each law against transfer-anchored, over 60 cells
    python -m docs.studies.transfer_trials kept     # usages-small and dcpt-six-small
    python -m docs.studies.transfer_trials pairs    # general text with medical text and with music

The trials are read from CPTLAW_PUBLIC_DATA. docs/results/transfer-law.csv has the cells of laws that are not in
`fitting.LAWS` too: D-CPT and dynamics laws given the loss before CPT, and forms of the transfer law that were not kept.
"""

import sys
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import pandas as pd

from docs.studies import law_errors
from fitting import Fold, held_out
from fitting.parallel import over_cores
from fitting.schedule import Schedules

ANCHORED = "transfer-anchored"
TRANSFER = (ANCHORED, "transfer-scaled", "transfer-replay")
LAWS = (*TRANSFER, "transfer-rate", "transfer-saturating", "transfer", "dcpt", "dcpt-free")
SPLITS = ("ratio", "tokens", "size", "size-and-tokens")
BASE = f"schedule == 'cos' and peak == {law_errors.FAST} and steps == 360"
"""The one schedule of all sizes and ratios."""
INTERIOR = f"{BASE} and share in [0.1, 0.25, 0.5, 0.75, 0.9]"
OTHER_PEAK = f"schedule == 'cos' and peak == {law_errors.SLOW} and steps == 360"
QUESTIONS = {
    "a larger size": (f"{BASE} and not largest", f"{BASE} and largest"),
    "a larger size for longer": (f"{BASE} and not largest and step <= 180", f"{BASE} and largest and step > 180"),
    "360 steps to 800": ("steps == 360", "steps == 800 and step > 360"),
    "peak 1e-3 to 3e-4": (BASE, OTHER_PEAK),
    "peak 3e-4 to 1e-3": (OTHER_PEAK, INTERIOR),
    "cosine to constant": (BASE, "schedule == 'const'"),
    "cosine to WSD": (BASE, "schedule == 'wsd'"),
    "ratios between": (f"{BASE} and share in [0.1, 0.5, 0.9]", f"{BASE} and share in [0.25, 0.75]"),
    "little domain": (f"{BASE} and share in [0.25, 0.5, 0.75, 0.9]", f"{BASE} and share in [0.02, 0.03, 0.05, 0.1]"),
    "little general": (f"{BASE} and share in [0.1, 0.25, 0.5, 0.75]", f"{BASE} and share == 0.9"),
    "no domain": (INTERIOR, f"{BASE} and share == 0"),
    "no general": (INTERIOR, f"{BASE} and share == 1"),
}
"""Question -> the points that are fitted, the points that are judged."""


class Cell(NamedTuple):
    """A question about a series: points, what is fitted and judged of them, and over what errors are averaged first."""

    series: str
    kind: str
    question: str
    points: pd.DataFrame
    folds: str | list[Fold]
    schedules: Schedules | None = None
    average: str = "split"

    def errors(self, law: str) -> pd.DataFrame:
        """Mean error and bias of a law, both relative, and the number of points, for each run or split."""
        judged = held_out(self.points, law, self.folds, self.schedules, few=self.schedules is None)
        return (
            law_errors.with_errors(judged)
            .groupby(self.average)
            .agg(error=("error", "mean"), bias=("relative_error", "mean"), points=("loss", "size"))
        )


def cells_of_trials() -> Iterator[Cell]:
    """The cells of the trials; their errors are averaged run by run."""
    for series, (question, masks) in product(law_errors.trials(), QUESTIONS.items()):
        points = series.points.assign(largest=series.points["N"] == series.points["N"].max())
        fitted, judged = (points.eval(mask) for mask in masks)
        if points.loc[fitted, "share"].nunique() > 1 and judged.any():
            folds = law_errors.one_fold(question, fitted, judged)
            yield Cell(series.name, series.kind, question, points, folds, series.schedules, "run")


def cells_of_kept() -> Iterator[Cell]:
    """The kept series and the splits of a recommendation."""
    for series, split in product(law_errors.kept_series(), SPLITS):
        yield Cell(f"{series.source}: {series.name}", series.kind, split, series.points, split)


def cells_of_pairs() -> Iterator[Cell]:
    """The two pairs: the splits of the runs with the first peak, no general text, and the other peak."""
    for pair, corpus in product(("medical", "music"), ("general", "domain")):
        points = law_errors.kept_points(f"pairs-{pair}", law_errors.FIRST_STEP)
        points = points[points["corpus"] == corpus].reset_index(drop=True)
        other = points["variant"] == "slow"
        domain = 1 - points["r"] if corpus == "general" else points["r"]
        inner = ~other & (domain > 0.05) & (domain < 0.95)
        first = points[~other].reset_index(drop=True)
        yield from (Cell(pair, corpus, split, first, split) for split in SPLITS)
        masks = {
            "no general": (inner, ~other & (domain > 0.95)),
            "peak 1e-3 to 3e-4": (~other, other),
            "peak 3e-4 to 1e-3": (other, inner),
        }
        yield from (
            Cell(pair, corpus, name, points, law_errors.one_fold(name, *parts)) for name, parts in masks.items()
        )


def measured(cells: list[Cell], laws: tuple[str, ...]) -> pd.DataFrame:
    """A row a cell: series, kind, question, and the mean relative error of each law."""
    rows = over_cores(lambda at: (*cells[at][:3], *(cells[at].errors(law)["error"].mean() for law in laws)),
                      range(len(cells)))  # fmt: skip
    return pd.DataFrame([*rows], columns=["series", "kind", "question", *laws])


def against_anchored(table: pd.DataFrame) -> pd.DataFrame:
    """Law -> cells in which transfer-anchored has the smaller error; geometric means of the law's over its error."""
    rows = {}
    for law in table.columns[3:]:
        times = table[law] / table[ANCHORED]
        of_kind = {kind: law_errors.geometric_mean(times[table["kind"] == kind]) for kind in ("general", "domain")}
        cells = f"{(times > 1).sum()} of {times.notna().sum()}"
        rows[law] = {"cells": cells, "times": law_errors.geometric_mean(times), **of_kind}
    return pd.DataFrame(rows).T


def main(part: str = "trials") -> None:
    """Measure and print the errors of each cell, and each law against transfer-anchored."""
    if part == "trials" and not law_errors.has_trials():
        sys.exit(f"no transfer_trials in CPTLAW_PUBLIC_DATA ({law_errors.DATA})")
    cells = {"trials": cells_of_trials, "kept": cells_of_kept, "pairs": cells_of_pairs}[part]
    table = measured([*cells()], LAWS if part == "trials" else TRANSFER)
    print(table.to_markdown(index=False, floatfmt=".4f"), end="\n\n")
    print(against_anchored(table).to_markdown(floatfmt=".2f"))


if __name__ == "__main__":
    main(*sys.argv[1:])
