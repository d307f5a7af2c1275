"""How close a part of a pool's runs comes to the answer of the whole pool, by the criterion that chooses them.

    python -m docs.studies.design_criteria [REPEATS [POOL]]

prints the table of docs/choosing.md. REPEATS (0) repeats of each choice, of pools with POOL in their name, are measured
first where docs/results/design.csv, a row a choice, lacks them. One fitter for all (`fitting.fit`). A repeat leaves out
a fifth of the candidates at random. Runs are chosen in three rounds, each from the points of those before.
"""

import sys
import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd

import fitting
from docs.studies.design_pools import Pool, pools
from docs.studies.law_errors import RESULTS
from fitting.design.answer_draws import answer_draws, losses_at
from fitting.design.design import COST_POWER, Task, design_task
from fitting.design.features import Features
from fitting.design.inputs import LossColumn, Points, Runs, read_outputs, read_points, run_rows, thinned
from fitting.design.selection import Draws, Score, choose
from fitting.parallel import over_cores
from fitting.uncertainty.posterior import Posterior

KEPT = RESULTS / "design.csv"
COLUMNS = ["pool", "criterion", "repeat", "budget", "error", "half_width"]
BUDGETS, LAST = (0.05, 0.1, 0.2), 0.25
"""Parts of the pool's cost; the last for our own choice alone."""
ROUNDS = (1 / 3, 2 / 3, 1.0)
WORST = 99.0
TOLERANCE = {"ratio": 0.02, "loss": 0.001, "size": 0.02}
"""Allowed error by the last word of a pool's name: of a ratio, relative of a loss, relative of a size."""


def answer_of(pool: Pool, points: pd.DataFrame) -> np.ndarray:
    """The answer (t,) of fits to some of the runs."""
    values = []
    for output in read_outputs(pool.laws, pool.runs, pool.question)[: 1 if pool.question else None]:
        law = output.laws[0]
        table = output.table(points, law).assign(loss=points[output.loss])
        table = table.iloc[np.sort(np.concatenate([thinned(rows) for rows in run_rows(table)]))]
        table = table if "run" in table else table.assign(run=np.arange(len(table)))
        fit = fitting.fit(table, law, bootstrap=0, few=True)
        coefficients, psi = (
            np.array([[fit.params[p.name] for p in group]]) for group in (fit.equation.linear, fit.equation.nonlinear)
        )
        x = output.columns(pool.runs, law)
        features = Features.of(x, x)
        nothing = np.zeros((1, len(features.phases)))
        one = [(Posterior(law, coefficients, psi, np.ones(1), 0.0, fit.scale, nothing), features)]
        target = pool.target
        found = (
            losses_at(target, output, one) if not pool.question else answer_draws(pool.question, target, output, one)
        )
        values.append(found.values[0])
    return np.concatenate(values)


def _information(task: Task, determinant: bool) -> Score:
    """D-optimality: information on the parameters; or the disagreement of the draws on the runs; both over the cost."""

    def score(outputs: list[Draws], chosen: list[int]) -> np.ndarray:
        total = np.zeros(len(task.rows))
        for output in outputs:
            for first in range(0, len(task.rows), 256):
                rows = task.rows[first : first + 256]
                there = rows >= 0
                losses = np.where(there, output.losses[:, rows], 0.0)
                inner = np.einsum("kib,kic->ibc", losses, losses, optimize=True) / len(losses)
                scaled = np.eye(rows.shape[1]) + inner / output.noise.mean()
                part = np.linalg.slogdet(scaled)[1] if determinant else np.einsum("ibb->i", inner) / there.sum(axis=1)
                total[first : first + 256] += part
        return total / task.runs.costs

    return score


def _linearised(task: Task) -> Task:
    """The draws as linear functions of the parameters."""
    draws = []
    for one, parameters in zip(task.draws, task.parameters, strict=True):
        basis = np.linalg.qr(parameters - parameters.mean(axis=0))[0]
        losses, answers = (basis @ (basis.T @ values) for values in (one.losses, one.answers))
        draws.append(replace(one, losses=losses, answers=answers))
    return replace(task, draws=draws)


def _places(outputs: list[LossColumn], points: list[Points], runs: Runs) -> tuple[np.ndarray, np.ndarray]:
    """Candidate runs (their last points) and measured points in coordinates of length 1."""
    last = runs.frame.iloc[[rows[-1] for rows in runs.rows]]
    axes = []
    for output, known in zip(outputs, points, strict=True):
        for law in output.laws:
            there = output.columns(last, law)
            seen = output.columns(known.frame, law) if len(known.frame) else {name: np.zeros(0) for name in there}
            axes += [(there[name], seen[name] if len(known.frame) else np.zeros(0)) for name in there]
    count = min(len(seen) for _, seen in axes)
    places, measured, known_axes = [], [], set()
    for there, seen in axes:
        both = np.concatenate([there, seen[:count]])
        key = both.tobytes()
        if key in known_axes or np.ptp(both) == 0:
            continue
        known_axes.add(key)
        both = np.log(both) if both.min() > 0 and both.max() / both.min() > 10 else both
        both = (both - both.min()) / np.ptp(both)
        places.append(both[: len(there)])
        measured.append(both[len(there) :])
    if not places:
        return np.zeros((len(last), 1)), np.zeros((count, 1))
    return np.array(places).T, np.array(measured).T


def _distance_per_cost(places: np.ndarray, known: np.ndarray, costs: np.ndarray) -> Score:
    """The score of a run: its distance from all that is measured or chosen, over a power of its cost.

    `places` (runs, d) and `known` (n, d) in coordinates of length 1.
    """

    def score(outputs: list[Draws], chosen: list[int]) -> np.ndarray:
        distance = np.ones(len(places))
        for place in (*known, *places[chosen]):
            distance = np.minimum(distance, np.linalg.norm(places - place, axis=1))
        return (distance + 1e-9) / costs**COST_POWER

    return score


def _spread_first(task: Task, distance: Score, score: Score) -> Score:
    """Runs far from the others while points are wanting, then those of the score."""

    def chosen_score(outputs: list[Draws], chosen: list[int]) -> np.ndarray:
        wanting = sum(len(task.runs.rows[run]) for run in chosen) < task.lacking
        return (distance if wanting else score)(outputs, chosen)

    return chosen_score


CRITERIA: dict[str, Callable[[Task, Score], tuple[Task, Score]]] = {
    "ours: V per cost^0.4 from the prior": lambda task, _: (task, task.score()),
    "V per cost^0.4, spread first": lambda task, far: (task, _spread_first(task, far, task.score(0.4))),
    "V per cost, spread first": lambda task, far: (task, _spread_first(task, far, task.score(1.0))),
    "V linearised per cost, spread first": lambda task, far: (
        _linearised(task),
        _spread_first(task, far, task.score(1.0)),
    ),
    "D-optimal per cost, spread first": lambda task, far: (task, _spread_first(task, far, _information(task, True))),
    "disagreement per cost, spread first": lambda task, far: (
        task,
        _spread_first(task, far, _information(task, False)),
    ),
}
"""Criterion -> the task that it chooses from and its score, by a task and a score of distances."""
BLIND: dict[str, Callable[[np.ndarray, np.random.Generator], np.ndarray]] = {
    "random": lambda costs, rng: rng.permutation(len(costs)),
    "cheapest first": lambda costs, rng: np.argsort(costs, kind="stable"),
    "random, weighted by 1 / cost": lambda costs, rng: np.argsort(-np.log(rng.random(len(costs))) * costs),
}


def choice(pool: Pool, criterion: str, repeat: int, budget: float) -> tuple[np.ndarray, float]:
    """The runs (numbers) chosen for a part of the pool's cost, and the half-width expected."""
    groups = run_rows(pool.runs)
    costs = np.array([pool.runs["cost"].to_numpy()[rows].max() for rows in groups])
    rng = np.random.default_rng([repeat, 17])
    kept = np.sort(rng.permutation(len(groups))[: int(0.8 * len(groups))])
    limit = budget * costs.sum()
    chosen: list[int] = []
    if criterion in BLIND:
        return affordable(kept[BLIND[criterion](costs[kept], rng)], costs, limit), np.nan
    width = np.nan
    for part in ROUNDS:
        spent = costs[chosen].sum()
        left = [int(run) for run in kept if run not in chosen]
        if spent >= part * limit or not left or costs[left].min() > limit - spent:
            continue
        measured = pool.runs.iloc[np.concatenate([groups[run] for run in chosen])] if chosen else None
        candidates = pool.runs.iloc[np.concatenate([groups[run] for run in left])].reset_index(drop=True)
        task = design_task(pool.laws, measured, candidates, pool.target, "cost", pool.question, repeat)
        outputs = read_outputs(pool.laws, candidates, pool.question)
        places = _places(outputs, [read_points(measured, output) for output in outputs], task.runs)
        task, score = CRITERIA[criterion](task, _distance_per_cost(*places, task.runs.costs))
        for place, variances in choose(task.draws, task.rows, task.runs.costs, score, limit - spent, 256):
            if costs[chosen].sum() >= part * limit:
                break
            chosen.append(left[place])
            width = task.half_width(variances)
    return np.array(chosen, dtype=int), width


def affordable(order: np.ndarray, costs: np.ndarray, most: float) -> np.ndarray:
    """Those of the runs, in this order, that a budget still pays for."""
    chosen: list[int] = []
    for run in order:
        if costs[chosen].sum() + costs[run] <= most:
            chosen.append(int(run))
    return np.array(chosen, dtype=int)


def results(repeats: int, only: str = "", criteria: tuple[str, ...] = ()) -> pd.DataFrame:
    """All rows of the kept table, measured where they are missing; `criteria`: these alone, () for all."""
    warnings.simplefilter("ignore")
    table = pd.read_csv(KEPT) if KEPT.exists() else pd.DataFrame(columns=COLUMNS)
    done = {tuple(key) for key in table[COLUMNS[:4]].itertuples(index=False)}
    every = {pool.name: pool for pool in pools() if only in pool.name}
    whole = {name: answer_of(pool, pool.runs) for name, pool in every.items()}

    def judge(key: tuple[str, str, int, float]) -> tuple:
        pool = every[key[0]]
        runs, width = choice(pool, *key[1:])
        error = WORST
        if len(runs):
            groups = run_rows(pool.runs)
            try:
                answer = answer_of(pool, pool.runs.iloc[np.concatenate([groups[run] for run in runs])])
                error = float(np.mean(np.abs(answer - whole[pool.name]))) / TOLERANCE[pool.name.split()[-1]]
            except fitting.PointsError:
                pass
        return (*key, min(error, WORST), width)

    def keep(line: tuple) -> None:
        pd.DataFrame([line], columns=COLUMNS).to_csv(KEPT, mode="a", header=not KEPT.exists(), index=False)

    keys = [
        (pool, criterion, repeat, budget)
        for repeat in range(1, repeats + 1)
        for budget in (0.1, 0.05, 0.2, LAST)
        for criterion in criteria or (*CRITERIA, *BLIND)
        for pool in every
        if budget != LAST or criterion.startswith("ours")
    ]
    over_cores(judge, [key for key in keys if key not in done], each=keep)
    return pd.read_csv(KEPT).drop_duplicates(COLUMNS[:4])


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Criterion -> for each budget the geometric mean over pools of the median error, and how many are within 1."""
    medians = table.groupby(["criterion", "budget", "pool"])["error"].median().unstack()
    rows = {}
    for criterion in (*CRITERIA, *BLIND):
        rows[criterion] = {}
        for budget in BUDGETS:
            if (criterion, budget) not in medians.index:
                continue
            errors = medians.loc[(criterion, budget)].dropna()
            if len(errors) < medians.shape[1]:
                continue
            mean = np.exp(np.log(errors.clip(lower=0.1)).mean())
            rows[criterion][f"{budget:.0%}"] = f"{errors.median():.2f} ({mean:.2f})"
            rows[criterion][f"within at {budget:.0%}"] = f"{(errors <= 1).sum()} of {len(errors)}"
    return pd.DataFrame(rows).T


if __name__ == "__main__":
    repeats, *only = sys.argv[1:] or ["0"]
    print(summary(results(int(repeats), *only)).to_markdown())
