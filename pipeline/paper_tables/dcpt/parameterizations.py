"""Tables 1 to 4 and 14 to 21 of the D-CPT paper: its five forms of the law, by domain, on what they were fitted to and
on what they were not."""

from __future__ import annotations

import functools
from itertools import product

import numpy as np
import pandas as pd

from fitting import PointsError, fit, held_out
from fitting.parallel import over_cores
from pipeline.paper_tables.dcpt.points import CORPORA, Material, assembled, mean_scores, scores

FORMS = {"L1": "dcpt-l1", "L2": "dcpt-l2", "L3": "dcpt", "L4": "dcpt-l4", "L5": "dcpt-l5"}
"""The paper's name -> ours."""
SPLITS = ("all", "each-size", "step-thirds", "ratio-pairs")
"""all: judged on the points that were fitted; the others as `fitting.folds` has them: each size, each third of the
steps and each pair of ratios left out in turn, the mean over the folds."""


@functools.lru_cache(maxsize=len(SPLITS))
def by_domain(material: Material, split: str) -> pd.DataFrame:
    """Every form on every domain and corpus.

    Returns:
        Columns parameterization, domain, corpus, metric, value; a form that cannot be fitted there has no row.

    Source: Que et al. 2024, sec. 4.2, app. J.
    """
    cells = list(product(material.domains, CORPORA))
    jobs = [(form, *cell) for form in FORMS for cell in cells]
    found: list[dict[str, float] | str] = []

    def told(own: dict[str, float] | str) -> None:
        found.append(own)
        if len(found) % len(cells) == 0:
            form, judged = jobs[len(found) - 1][0], "all points" if split == "all" else f"held out by {split}"
            said = _said(found[-len(cells) :])
            material.log(f"{form} ({FORMS[form]}), {judged}: {len(cells)} cells, {said}")

    over_cores(lambda job: _score(material.fitted(*job[1:]), FORMS[job[0]], split), jobs, each=told)
    return assembled(jobs, found, ("parameterization", "domain", "corpus"))


def over_domains(material: Material, split: str) -> pd.DataFrame:
    """The mean over the domains of `by_domain`: columns parameterization, corpus, metric, value."""
    keys = ["parameterization", "corpus", "metric"]
    found = by_domain(material, split)
    mean = found.groupby(keys, sort=False)["value"].mean().reset_index()
    mean.attrs["note"] = f"Mean over {len(material.domains)} domains. {found.attrs['note']}".strip()
    return mean


def one_metric(material: Material, split: str, metric: str) -> pd.DataFrame:
    """The rows of `by_domain` of a metric."""
    found = by_domain(material, split)
    return found[found["metric"] == metric].reset_index(drop=True)


def _score(points: pd.DataFrame, law: str, split: str) -> dict[str, float] | str:
    try:
        if split == "all":
            fitted = fit(points, law, bootstrap=0)
            return scores(points["loss"].to_numpy(float), fitted.predict(points))
        return mean_scores(held_out(points, law, split))
    except PointsError as reason:
        return str(reason)


def _said(found: list[dict[str, float] | str]) -> str:
    values = [own["r2"] for own in found if isinstance(own, dict)]
    return f"mean R2 {np.mean(values):.4f}" if values else "none could be fitted"
