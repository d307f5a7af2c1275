"""All 2,580 fits behind tables 1 to 4 and 14 to 21 of the D-CPT paper, on synthetic points of its size.

5 laws x 6 domains x 2 corpora x 43 splits: all points, 3 sizes, 3 thirds of the steps, 36 pairs of ratios. Each fit is
searched for by itself; then the pairs of one cell a law as `fitting.held_out` fits them, with one search for all.
"""

import multiprocessing
import os
import time
from itertools import product

import numpy as np
import pandas as pd

import fitting
from tests.benchmarks import Row, row
from tests.fitting.synthetic import TRUE, grid, measured

LAWS = ("dcpt-l1", "dcpt-l2", "dcpt", "dcpt-l4", "dcpt-l5")
SPLITS = ("each-size", "step-thirds", "ratio-pairs")
DOMAINS = {
    "code": (1.10, 0.30), "math": (0.62, 0.42), "law": (1.62, 0.36),
    "chemistry": (1.24, 0.50), "music": (0.65, 0.66), "medical": (1.88, 0.28),
}  # fmt: skip
"""Domain -> E and C of its truth, which is otherwise that of tests/fitting/synthetic.py; made up."""
WORKERS = 2


def points_of(domain: str, corpus: str) -> pd.DataFrame:
    """5,400 points of a corpus: 3 sizes x 9 ratios x 200 evaluations, 0.3% noise."""
    E, C = DOMAINS[domain]
    moved = {"E": E, "C": C} if corpus == "domain" else {"E": 2.3, "C": C / 2, "A": 0.6}
    seed = 2 * list(DOMAINS).index(domain) + (corpus == "domain")
    return measured(grid(), "dcpt", {**TRUE["dcpt"], **moved}, noise=0.003, seed=seed)


def fit_43(job: tuple[str, str, str]) -> tuple[str, list[float], list[float]]:
    """The law, and of its fit to all points and to each fold: seconds, and mean relative error where it is judged."""
    law, domain, corpus = job
    points = points_of(domain, corpus)
    everything = np.ones(len(points), dtype=bool)
    parts = [(everything, everything)]
    parts += [(fold.fitted, fold.judged) for split in SPLITS for fold in fitting.folds(points, split)]
    seconds, missed = [], []
    for fitted, judged in parts:
        start = time.perf_counter()
        fit = fitting.fit(points[fitted], law, bootstrap=0)
        seconds.append(time.perf_counter() - start)
        loss = points["loss"].to_numpy()[judged]
        missed.append(float(np.abs(fit.predict(points[judged]) / loss - 1).mean()))
    return law, seconds, missed


def pairs_of_ratios(law: str) -> tuple[float, float, float]:
    """Seconds of one cell's 36 folds by `held_out` and by a `fit` each, and how far their predictions lie apart."""
    points = points_of("code", "domain")
    start = time.perf_counter()
    together = fitting.held_out(points, law, "ratio-pairs")
    shared = time.perf_counter() - start
    start, alone = time.perf_counter(), []
    for fold in fitting.folds(points, "ratio-pairs"):
        alone.append(fitting.fit(points[fold.fitted], law, bootstrap=0).predict(points[fold.judged]))
    each = time.perf_counter() - start
    return shared, each, float(np.abs(together["predicted"].to_numpy() / np.concatenate(alone) - 1).max())


def measure(domains: int = len(DOMAINS), workers: int = WORKERS) -> list[Row]:
    """Seconds of all fits; there is no peer that has them."""
    jobs = list(product(LAWS, list(DOMAINS)[:domains], ("general", "domain")))
    start = time.perf_counter()
    os.environ["OMP_NUM_THREADS"] = "1"  # a worker a core: threads of theirs would only be in the way
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        found = pool.map(fit_43, jobs, chunksize=1)
    whole = time.perf_counter() - start
    count = sum(len(seconds) for _, seconds, _ in found)
    meaning = f"{count:,} fits of 5,400 points, {workers} processes; bar: 120 s"
    rows = [row("all fits of the tables", whole, "s", meaning)]
    for law in LAWS:
        seconds = [second for name, own, _ in found if name == law for second in own]
        missed = [value for name, _, own in found if name == law for value in own[1:]]
        held_out = f"median of its mean held-out errors {np.median(missed):.2%}"
        meaning = f"mean of {len(seconds)} fits, longest {max(seconds) * 1e3:.0f} ms; {held_out}"
        rows.append(row(f"a fit of {law}", float(np.mean(seconds)) * 1e3, "ms", meaning))
        shared, each, apart = pairs_of_ratios(law)
        meaning = f"36 folds of a cell, searched once; peer: each by itself; predictions within {apart:.1e}"
        rows.append(row(f"pairs of ratios, {law}", shared, "s", meaning, each, lower_is_better=True))
    return rows
