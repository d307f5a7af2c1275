"""Measures what takes more than a moment, on public losses and on kept points: docs/results/reproduction.csv.

    python -m docs.reproduction.measured

Needs the folder of public data in CPTLAW_PUBLIC_DATA (default ../shared/data); what is not there keeps its old value.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pandas as pd

import fitting
from docs.reproduction.book import MEASURED, RESULTS
from docs.studies.transfer_points import DATA
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
    """The median eps of L3 over the domains and corpora of the kept six-domain study."""
    from pipeline.config import question_of_study
    from pipeline.study import Study
    from pipeline.tables.material import CORPORA, SIX
    from pipeline.tables.table import Source

    folder = RESULTS / SIX.experiment
    material = SIX.read(Source(Study(folder), question_of_study(folder, [])))
    cells = [material.fitted(domain, corpus) for domain in material.domains for corpus in CORPORA]
    return {"epsilon": float(np.median([fitting.fit(own, "dcpt", bootstrap=0).params["eps"] for own in cells]))}


PARTS: tuple[tuple[str, Callable[[], dict[str, float]]], ...] = (
    ("lr_schedules_25m", annealing),
    ("autoscale_gpt2_large", published_optima),
    (str(RESULTS / "dcpt-six-small" / "points.parquet"), epsilon),
)
"""What is read, below the public data or as it is, and what measures."""


def main() -> None:
    """Renew docs/results/reproduction.csv."""
    found = pd.read_csv(MEASURED).set_index("name")["value"].to_dict() if MEASURED.exists() else {}
    for needed, measure in PARTS:
        if (DATA / needed).exists():
            found |= measure()
        else:
            print(f"no {needed}: {measure.__name__} is left as it was")
    pd.DataFrame(found.items(), columns=["name", "value"]).to_csv(MEASURED, index=False, float_format="%.6g")
    print(f"{len(found)} numbers in {MEASURED}")


if __name__ == "__main__":
    main()
