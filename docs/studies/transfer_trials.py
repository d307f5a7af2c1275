"""How far does the transfer law hold? Held-out errors of laws on the transfer trials, and on runs that came later.

    python -m docs.studies.transfer_trials          # the trials: each law against transfer-anchored, over 60 cells
    python -m docs.studies.transfer_trials kept     # usages-small and dcpt-six-small
    python -m docs.studies.transfer_trials pairs    # general text with medical text and with music

The trials are read from CPTLAW_PUBLIC_DATA. docs/results/transfer-law.csv has the cells of laws that are not in
`fitting.LAWS` too: D-CPT and dynamics laws given the loss before CPT, and forms of the transfer law that were not kept.
"""

import sys
from collections.abc import Callable, Iterator
from itertools import product
from typing import NamedTuple

import pandas as pd

from docs.studies.law_errors import (
    DATA,
    FAST,
    FIRST_STEP,
    SLOW,
    Series,
    geometric_mean,
    has_trials,
    held_out_errors,
    kept_points,
    kept_series,
    one_fold,
    trials,
)
from fitting import Fold
from fitting.parallel import over_cores
from fitting.schedule import Schedules

Mask = Callable[[pd.DataFrame], pd.Series]

ANCHORED = "transfer-anchored"
TRANSFER = (ANCHORED, "transfer-scaled", "transfer-replay")
LAWS = (*TRANSFER, "transfer-rate", "transfer-saturating", "transfer", "dcpt", "dcpt-free")
SPLITS = ("ratio", "tokens", "size", "size-and-tokens")
INTERIOR = (0.1, 0.25, 0.5, 0.75, 0.9)


def base(p: pd.DataFrame) -> pd.Series:
    """Cosine from 1e-3 over 360 steps: the one schedule of all sizes and ratios."""
    return (p["schedule"] == "cos") & (p["peak"] == FAST) & (p["steps"] == 360)


def slow(p: pd.DataFrame) -> pd.Series:
    """Cosine from 3e-4 over 360 steps."""
    return (p["schedule"] == "cos") & (p["peak"] == SLOW) & (p["steps"] == 360)


def largest(p: pd.DataFrame) -> pd.Series:
    """Points of the largest size."""
    return p["N"] == p["N"].max()


def at_ratios(*ratios: float) -> Mask:
    """Points of the base schedule at these domain ratios."""
    return lambda p: base(p) & p["share"].isin(ratios)


QUESTIONS: dict[str, tuple[Mask, Mask]] = {
    "a larger size": (lambda p: base(p) & ~largest(p), lambda p: base(p) & largest(p)),
    "a larger size for longer": (
        lambda p: base(p) & ~largest(p) & (p["step"] <= 180),
        lambda p: base(p) & largest(p) & (p["step"] > 180),
    ),
    "360 steps to 800": (lambda p: p["steps"] == 360, lambda p: (p["steps"] == 800) & (p["step"] > 360)),
    "peak 1e-3 to 3e-4": (base, slow),
    "peak 3e-4 to 1e-3": (slow, at_ratios(*INTERIOR)),
    "cosine to constant": (base, lambda p: p["schedule"] == "const"),
    "cosine to WSD": (base, lambda p: p["schedule"] == "wsd"),
    "ratios between": (at_ratios(0.1, 0.5, 0.9), at_ratios(0.25, 0.75)),
    "little domain": (at_ratios(0.25, 0.5, 0.75, 0.9), at_ratios(0.02, 0.03, 0.05, 0.1)),
    "little general": (at_ratios(0.1, 0.25, 0.5, 0.75), at_ratios(0.9)),
    "no domain": (at_ratios(*INTERIOR), at_ratios(0.0)),
    "no general": (at_ratios(*INTERIOR), at_ratios(1.0)),
}
"""Question -> the points that are fitted, the points that are judged."""


def questions_of(series: Series) -> list[str]:
    """The questions that a series has runs for: two ratios or more to fit, and runs to hold out."""
    p = series.points
    return [
        name
        for name, (fitted, judged) in QUESTIONS.items()
        if p.loc[fitted(p), "share"].nunique() > 1 and judged(p).any()
    ]


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
        judged = held_out_errors(self.points, law, self.folds, self.schedules, few=self.schedules is None)
        return judged.groupby(self.average).agg(
            error=("error", "mean"), bias=("relative_error", "mean"), points=("loss", "size")
        )


def cells_of_trials() -> Iterator[Cell]:
    """The cells of the trials; their errors are averaged run by run."""
    for series in trials():
        for question in questions_of(series):
            folds = one_fold(question, *(mask(series.points) for mask in QUESTIONS[question]))
            yield Cell(series.name, series.kind, question, series.points, folds, series.schedules, "run")


def cells_of_kept() -> Iterator[Cell]:
    """The kept series and the splits of a recommendation."""
    for series, split in product(kept_series(), SPLITS):
        yield Cell(f"{series.source}: {series.name}", series.kind, split, series.points, split)


def cells_of_pairs() -> Iterator[Cell]:
    """The two pairs: the splits of the runs with the first peak, no general text, and the other peak."""
    for pair, corpus in product(("medical", "music"), ("general", "domain")):
        points = kept_points(f"pairs-{pair}", FIRST_STEP)
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
        yield from (Cell(pair, corpus, name, points, one_fold(name, *parts)) for name, parts in masks.items())


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
        of_kind = {kind: geometric_mean(times[table["kind"] == kind]) for kind in ("general", "domain")}
        cells = f"{(times > 1).sum()} of {times.notna().sum()}"
        rows[law] = {"cells": cells, "times": geometric_mean(times), **of_kind}
    return pd.DataFrame(rows).T


if __name__ == "__main__":
    part = sys.argv[1] if len(sys.argv) > 1 else "trials"
    if part == "trials" and not has_trials():
        sys.exit(f"no transfer_trials in CPTLAW_PUBLIC_DATA ({DATA})")
    cells = {"trials": cells_of_trials, "kept": cells_of_kept, "pairs": cells_of_pairs}[part]
    table = measured([*cells()], LAWS if part == "trials" else TRANSFER)
    print(
        table.to_markdown(index=False, floatfmt=".4f"), against_anchored(table).to_markdown(floatfmt=".2f"), sep="\n\n"
    )
