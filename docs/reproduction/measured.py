"""Measure on public losses and on kept points: docs/results/reproduction.csv.

    python -m docs.reproduction.measured

Needs the folder of public data in CPTLAW_PUBLIC_DATA (default ../shared/data); what is not there keeps its old value;
and the papers' numbers in CPTLAW_PAPER_TABLES.
"""

from __future__ import annotations

import json
import sys
from itertools import product

import numpy as np
import pandas as pd

import fitting
from docs.reproduction.book import MEASURED
from docs.reproduction.tested_causes import (
    constraint,
    last_design,
    later_inflection,
    open_models,
    schedules,
    search_power,
    seed_noise,
    seed_ties,
    seeded_potentials,
    six_domains,
    transient,
)
from docs.studies.law_errors import DATA
from pipeline.paper_tables.catalogue import READINGS
from pipeline.paper_tables.dcpt.fits import FORMS
from pipeline.paper_tables.dcpt.points import CORPORA
from pipeline.paper_tables.table import PAPERS_VARIABLE, paper_folder
from tests.fitting.test_public_bars import TRAIN, annealed, errors_on_other_schedules


def annealing() -> dict[str, float]:
    """Eq. 1 of the dynamics fitted to three public curves, judged on six of other schedules."""
    points, schedules = annealed(TRAIN)
    r2, mae = errors_on_other_schedules(fitting.fit(points, "annealing", bootstrap=0))
    free = fitting.fit(points, "annealing", schedules=schedules, bootstrap=0)
    return {"annealing R2": r2, "annealing error": mae, "annealing lambda": free.params["lambda"]}


def published_optima() -> dict[str, float]:
    """AutoScale's own optima at three scales: how straight they are, and the middle one from the other two."""
    content = json.loads((DATA / "autoscale_gpt2_large/autoscale_ddo.json").read_text())
    tokens = {scale: np.array(values) for scale, values in content["autoscale_tokens_B"].items()}
    scales = list(tokens)
    total = np.log([tokens[scale].sum() for scale in scales])
    r2 = [np.corrcoef(total, np.log([tokens[scale][at] for scale in scales]))[0, 1] ** 2 for at in range(7)]
    answer = fitting.autoscale(tokens["0.3B"], tokens["1.2B"], 0.6)
    missed = np.abs(answer.shares - tokens["0.6B"] / tokens["0.6B"].sum()).max()
    return {"log-log R2": float(np.median(r2)), "log-log R2, least": float(min(r2)), "0.6B share": float(missed)}


def epsilon() -> dict[str, float]:
    """The median eps of L3 over the domains and corpora of the last six-domain study."""
    points = six_domains(READINGS["six"].experiment)
    fits = (fitting.fit(points.fitted(*cell), FORMS["L3"], bootstrap=0) for cell in product(points.domains, CORPORA))
    return {"epsilon": float(np.median([fit.params["eps"] for fit in fits]))}


PARTS = (("lr_schedules_25m", annealing), ("autoscale_gpt2_large", published_optima))
"""Folder of the public data, and what measures on it."""

if __name__ == "__main__":
    if paper_folder(None) is None:
        sys.exit(f"{PAPERS_VARIABLE}: give the folder of the papers' numbers")
    numbers = pd.read_csv(MEASURED).set_index("name")["value"].to_dict() if MEASURED.exists() else {}
    for folder, measure in PARTS:
        if (DATA / folder).exists():
            numbers |= measure()
        else:
            print(f"no {folder}: {measure.__name__} is left as it was")
    numbers |= seed_noise()
    numbers |= seed_ties(numbers["seed sd"])
    for test in (
        epsilon,
        transient,
        constraint,
        last_design,
        schedules,
        seeded_potentials,
        open_models,
        later_inflection,
        search_power,
    ):
        numbers |= test()
    pd.DataFrame(numbers.items(), columns=["name", "value"]).to_csv(MEASURED, index=False, float_format="%.6g")
    print(f"{len(numbers)} numbers in {MEASURED}")
