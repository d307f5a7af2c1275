"""Held-out errors of the transfer laws on the kept studies, whose runs had no part in the choice of any form.

14 series: both corpora of usages-small, and general and domain of each of the six domains of dcpt-six-small. The splits
are those of a recommendation (`fitting.folds`). S2 is that of the kept points.
"""

from collections.abc import Iterator
from itertools import product

import numpy as np
import pandas as pd

import fitting
from docs.studies.transfer_points import ROOT
from pipeline.paper_tables.dcpt.points import DomainPoints

SPLITS = ("ratio", "tokens", "size", "size-and-tokens")
JUDGED = ("transfer-anchored", "transfer-scaled", "transfer-replay")
DOMAINS = ("chemistry", "code", "law", "math", "medical", "music")
FIRST_STEP = 5


def kept_series() -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Name, kind and points of each series."""
    for corpus, points in _fitted("usages-small").groupby("corpus"):
        yield f"usages-small: {corpus}", "general" if corpus == "general" else "domain", points
    six = DomainPoints(_fitted("dcpt-six-small"), "general", DOMAINS, from_step=FIRST_STEP)
    for domain, (letter, kind) in product(DOMAINS, (("G", "general"), ("D", "domain"))):
        name = f"general ({domain})" if kind == "general" else domain
        yield f"dcpt-six-small: {name}", kind, six.fitted(domain, letter)


def kept_rows() -> Iterator[dict[str, object]]:
    """A row of the results for each series, split and law: the mean relative error of the points held out."""
    for (name, kind, points), split, law in product(kept_series(), SPLITS, JUDGED):
        judged = fitting.held_out(points[points["step"] >= FIRST_STEP].reset_index(drop=True), law, split)
        errors = np.abs(judged["predicted"] / judged["measured"] - 1)
        named = {"section": "kept study", "series": name, "kind": kind, "question": split, "law": law}
        yield {**named, "value": errors.mean(), "points": len(errors)}


def _fitted(study: str) -> pd.DataFrame:
    points = pd.read_parquet(ROOT / "docs" / "results" / study / "points.parquet")
    return points[(points["phase"] == "continual") & (points["role"] == "fit") & (points["step"] > 0)]
