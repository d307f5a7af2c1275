"""Measure on public losses and on kept points: docs/results/reproduction.csv.

    python -m docs.reproduction.measured

Needs the folder of public data in CPTLAW_PUBLIC_DATA (default ../shared/data); what is not there keeps its old value;
and the papers' numbers in CPTLAW_PAPER_TABLES.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from itertools import product

import numpy as np
import pandas as pd

import fitting
from docs.reproduction.book import MEASURED, RESULTS, TENTH, TENTH_VERDICTS
from docs.studies.transfer_points import DATA
from pipeline.paper_tables.catalogue import READINGS, TABLES
from pipeline.paper_tables.dcpt.fits import FORMS
from pipeline.paper_tables.dcpt.points import CORPORA, DomainPoints
from pipeline.paper_tables.make import tables_of
from pipeline.paper_tables.show import verdicts
from pipeline.paper_tables.table import PAPERS_VARIABLE, Source, paper_folder
from pipeline.question.loading import question_of_study
from pipeline.study.folder import Study
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


def kept(**changes: float) -> DomainPoints:
    """The points of the kept six-domain study, with changed fields."""
    folder = RESULTS / READINGS["six"].experiment
    return dataclasses.replace(READINGS["six"].read(Source(Study(folder), question_of_study(folder, []))), **changes)


def epsilon() -> dict[str, float]:
    """The median eps of L3 over the domains and corpora of the kept six-domain study."""
    points = kept()
    fits = (fitting.fit(points.fitted(*cell), FORMS["L3"], bootstrap=0) for cell in product(points.domains, CORPORA))
    return {"epsilon": float(np.median([fit.params["eps"] for fit in fits]))}


def constraint() -> dict[str, float]:
    """Mean R2 of L3 over the domains with its constraint (eq. 26) and without; all runs, and those with a tenth."""
    means = {}
    laws = {"dcpt": FORMS["L3"], "dcpt-free": "dcpt-free"}
    for least, law, corpus in product((0.0, TENTH), laws, CORPORA):
        points = kept(min_ratio=least)
        fits = (fitting.fit(points.fitted(domain, corpus), laws[law], bootstrap=0) for domain in points.domains)
        means[f"{law} {corpus} {least:g}"] = float(np.mean([fit.metrics["r2"] for fit in fits]))
    return means


def judge_without_near_zero() -> None:
    """Write the verdicts of the six-domain tables from runs with a tenth or more of the corpus that is predicted."""
    if (papers := paper_folder(None)) is None:
        sys.exit(f"{PAPERS_VARIABLE}: give the folder of the papers' numbers")
    names = [name for name, table in TABLES.items() if READINGS[table.reads] is READINGS["six"]]
    reads = {TABLES[name].reads for name in names}
    results = tables_of(dict.fromkeys(reads, kept(min_ratio=TENTH)), names, papers, print)
    verdicts(results).to_csv(RESULTS / TENTH_VERDICTS, index=False)


PARTS = (("lr_schedules_25m", annealing), ("autoscale_gpt2_large", published_optima))
"""Folder of the public data, and what measures on it."""

if __name__ == "__main__":
    numbers = pd.read_csv(MEASURED).set_index("name")["value"].to_dict() if MEASURED.exists() else {}
    for folder, measure in PARTS:
        if (DATA / folder).exists():
            numbers |= measure()
        else:
            print(f"no {folder}: {measure.__name__} is left as it was")
    numbers |= epsilon() | constraint()
    pd.DataFrame(numbers.items(), columns=["name", "value"]).to_csv(MEASURED, index=False, float_format="%.6g")
    print(f"{len(numbers)} numbers in {MEASURED}")
    judge_without_near_zero()
