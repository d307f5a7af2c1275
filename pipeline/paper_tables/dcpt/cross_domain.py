"""Tables 7 and 8 of the D-CPT paper: one law for all domains, told apart by how learnable each is."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd

from fitting import PointsError, fit, held_out
from fitting.parallel import over_cores
from pipeline.paper_tables.dcpt.points import CORPORA, Material, assembled, mean_scores, scores

REPRESENTATIONS = {f"K{number}": f"cross-domain-k{number}" for number in (1, 2, 3, 4)}
"""The paper's name -> ours."""
PARTS = 200
"""Evaluations of a run in the paper, every 1,000 of 200,000 steps: here a 200th of the run each."""


def effectiveness(material: Material) -> pd.DataFrame:
    """One fit to all domains, judged on the same points: representation, corpus, metric, value (table 7)."""
    return _scored(material, "all")


def generalizability(material: Material) -> pd.DataFrame:
    """The mean over every pair of domains left out: representation, corpus, metric, value (table 8)."""
    return _scored(material, "domain-pairs")


def learnability(material: Material, domain: str) -> dict[str, float]:
    """k1, k2 and k3 of a domain: its loss before, what the first 5 parts of a run gain, the bend over the first 11.

    Of the smallest model at the share nearest to a half, on the domain's own corpus; between two evaluations the loss
    is taken as a straight line.

    Source: Que et al. 2024, sec. 3.2, eq. 57, 58; where it is measured the paper does not say.
    """
    own = material.measured(domain, "D")
    own = own[own["N"] == own["N"].min()]
    share = min(own["r"].unique(), key=lambda r: abs(r - 0.5))
    run = own[own["r"] == share].sort_values("step")
    run = run[run["run"] == run["run"].iloc[0]]
    part = run["step"].max() / PARTS
    at = np.interp(part * np.array([0, 1, 5, 10, 11]), run["step"], run["loss"])
    # The sum of (58) telescopes.
    return {"k1": at[0], "k2": at[0] - at[2], "k3": ((at[4] - at[3]) - (at[1] - at[0])) / 10}


def _scored(material: Material, split: str) -> pd.DataFrame:
    jobs = list(product(REPRESENTATIONS, CORPORA))
    points = {corpus: _together(material, corpus) for corpus in CORPORA}

    def score(job: tuple[str, str]) -> dict[str, float] | str:
        representation, corpus = job
        law, own = REPRESENTATIONS[representation], points[corpus]
        try:
            if split == "all":
                return scores(own["loss"].to_numpy(float), fit(own, law, bootstrap=0).predict(own))
            return mean_scores(held_out(own, law, split))
        except PointsError as reason:
            return str(reason)

    table = assembled(jobs, over_cores(score, jobs), ("representation", "corpus"))
    told = (f"{domain} {learnability(material, domain)['k2']:.3f}" for domain in material.domains)
    note = f"k2, nats a token, of each domain: {', '.join(told)}. General is fitted with its domain's K."
    table.attrs["note"] = f"{note} {table.attrs['note']}".strip()
    return table


def _together(material: Material, corpus: str) -> pd.DataFrame:
    parts = []
    for domain in material.domains:
        own = material.fitted(domain, corpus)
        # A run on general text alone is one of every domain, each with its own K.
        parts.append(own.assign(domain=domain, run=own["run"] + f" {domain}", **learnability(material, domain)))
    return pd.concat(parts, ignore_index=True)
