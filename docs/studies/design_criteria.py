"""How close a part of a pool's runs comes to the answer of the whole pool, by what chooses them.

    python -m docs.studies.design_criteria [REPEATS [POOL]]

prints the table of docs/choosing.md, of pools with POOL in their name (ratio: those whose answer is one). REPEATS (0)
repeats of each choice are measured first where docs/results/design.csv, a row a choice, lacks them. One fitter for all
(`fitting.fit`). A repeat leaves out a fifth of the candidates at random. Runs are chosen in three rounds, each from the
points of those before. Criteria in that file that are not here lost, and were measured by this program of commit
61b7403a.
"""

import contextlib
import sys
import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd

import fitting
from docs.studies.design_pools import Pool, pools
from docs.studies.law_errors import RESULTS
from fitting.design.answer_draws import answer_draws, losses_at
from fitting.design.design import design_task
from fitting.design.features import Features
from fitting.design.inputs import read_outputs, run_rows, thinned
from fitting.design.selection import choose
from fitting.parallel import over_cores
from fitting.uncertainty.posterior import Posterior

KEPT = RESULTS / "design.csv"
KEY = ["pool", "criterion", "repeat", "budget"]
BUDGETS, LAST = (0.05, 0.1, 0.2), 0.25
"""Parts of the pool's cost; the last for our own choice alone."""
ROUNDS = (1 / 3, 2 / 3, 1.0)
WORST = 99.0
TOLERANCE = {"ratio": 0.02, "loss": 0.001, "size": 0.02}
"""Allowed error by the last word of a pool's name: of a ratio, relative of a loss, relative of a size."""
OURS = "ours: V per cost^0.4 from the prior"
BLIND: dict[str, Callable[[np.ndarray, np.random.Generator], np.ndarray]] = {
    "random": lambda costs, rng: rng.permutation(len(costs)),
    "cheapest first": lambda costs, rng: np.argsort(costs, kind="stable"),
    "random, weighted by 1 / cost": lambda costs, rng: np.argsort(-np.log(rng.random(len(costs))) * costs),
}


def answer_of(pool: Pool, points: pd.DataFrame) -> np.ndarray:
    """The answer (t,) of fits to some of the runs."""
    values = []
    for output in read_outputs(pool.laws, pool.runs, pool.question)[: 1 if pool.question else None]:
        law = output.laws[0]
        table = output.table(points, law).assign(loss=points[output.loss])
        table = table.iloc[np.sort(np.concatenate([thinned(rows) for rows in run_rows(table)]))]
        table = table if "run" in table else table.assign(run=np.arange(len(table)))
        fit = fitting.fit(table, law.name if law.name in fitting.LAWS else law, bootstrap=0, few=True)
        coefficients, psi = (
            np.array([[fit.params[p.name] for p in group]]) for group in (fit.equation.linear, fit.equation.nonlinear)
        )
        x = output.columns(pool.runs, law)
        features = Features.of(x, x)
        nothing = np.zeros((1, len(features.phases)))
        one = [(Posterior(law, coefficients, psi, np.ones(1), 0.0, fit.scale, nothing), features)]
        question = (pool.target, output, one)
        found = answer_draws(pool.question, *question) if pool.question else losses_at(*question)
        values.append(found.values[0])
    return np.concatenate(values)


def choice(pool: Pool, criterion: str, repeat: int, budget: float) -> tuple[pd.DataFrame, float]:
    """The points of the runs chosen for a part of the pool's cost, and the half-width expected."""
    groups = run_rows(pool.runs)
    costs = np.array([pool.runs["cost"].to_numpy()[rows].max() for rows in groups])
    rng = np.random.default_rng([repeat, 17])
    kept = np.sort(rng.permutation(len(groups))[: int(0.8 * len(groups))])
    limit, width = budget * costs.sum(), np.nan
    chosen: list[int] = []

    def points(runs: list[int]) -> pd.DataFrame:
        return pool.runs.iloc[np.concatenate([groups[run] for run in runs])] if runs else pool.runs.iloc[:0]

    for run in kept[BLIND[criterion](costs[kept], rng)] if criterion in BLIND else ():
        if costs[chosen].sum() + costs[run] <= limit:
            chosen.append(int(run))
    for part in () if criterion in BLIND else ROUNDS:
        spent = costs[chosen].sum()
        left = [int(run) for run in kept if run not in chosen]
        if spent >= part * limit or not left or costs[left].min() > limit - spent:
            continue
        measured, candidates = points(chosen) if chosen else None, points(left).reset_index(drop=True)
        task = design_task(pool.laws, measured, candidates, pool.target, "cost", pool.question, repeat)
        for place, variances, _ in choose(task.draws, task.rows, task.runs.costs, task.score(), limit - spent, 256):
            if costs[chosen].sum() >= part * limit:
                break
            chosen.append(left[place])
            width = task.half_width(variances)
    return points(chosen), width


def measure(repeats: int, only: str = "") -> None:
    """Add to the kept table what it lacks."""
    warnings.simplefilter("ignore")
    table = pd.read_csv(KEPT)
    done = {tuple(key) for key in table[KEY].itertuples(index=False)}
    every = {pool.name: pool for pool in pools() if only in pool.name}
    whole = {name: answer_of(pool, pool.runs) for name, pool in every.items()}

    def judge(key: tuple[str, str, int, float]) -> tuple:
        pool = every[key[0]]
        (runs, width), error = choice(pool, *key[1:]), WORST
        if len(runs):
            with contextlib.suppress(fitting.PointsError):
                error = float(np.mean(np.abs(answer_of(pool, runs) - whole[pool.name])))
                error /= TOLERANCE[pool.name.split()[-1]]
        return (*key, min(error, WORST), width)

    def keep(line: tuple) -> None:
        pd.DataFrame([line], columns=table.columns).to_csv(KEPT, mode="a", header=False, index=False)

    keys = [
        (pool, criterion, repeat, budget)
        for repeat in range(1, repeats + 1)
        for budget in (0.1, 0.05, 0.2, LAST)
        for criterion in ((OURS,) if budget == LAST else (OURS, *BLIND))
        for pool in every
    ]
    over_cores(judge, [key for key in keys if key not in done], each=keep)


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Criterion -> by budget the median (geometric mean) of the pools' median errors, and how many are within 1."""
    medians = table.groupby(["criterion", "budget", "pool"])["error"].median().unstack()
    rows = {}
    for criterion in dict.fromkeys([OURS, *table["criterion"]]):
        rows[criterion] = {}
        for budget in BUDGETS:
            errors = medians.loc[(criterion, budget)]
            mean = np.exp(np.log(errors.clip(lower=0.1)).mean())
            rows[criterion][f"{budget:.0%}"] = f"{errors.median():.2f} ({mean:.2f})"
            rows[criterion][f"within at {budget:.0%}"] = f"{(errors <= 1).sum()} of {len(errors)}"
    return pd.DataFrame(rows).T


def main(repeats: str = "0", only: str = "") -> None:
    """Measure what is wanting, and print the table."""
    if int(repeats):
        measure(int(repeats), only)
    kept = pd.read_csv(KEPT).drop_duplicates(KEY)
    print(summary(kept[kept["pool"].str.contains(only)]).to_markdown())


if __name__ == "__main__":
    main(*sys.argv[1:])
