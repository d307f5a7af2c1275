"""The least error that any choice of a part of a pool's runs can be expected to have, by the noise of the runs.

    python -m docs.studies.design_floor

The choice knows the law, its parameters at the fit of the whole pool, and the noise: run by run that which takes most
from the variance of the answer, by linear propagation from the parameters. Residuals of the whole fit are taken for
noise, that of a run and that of its points. The error is that to the answer of the whole pool, which has these runs,
too, so the variance of the whole answer is subtracted.
"""

import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd

import fitting
from docs.studies.design_criteria import TOLERANCE
from docs.studies.design_pools import Pool, pools
from fitting.design.answer_draws import answer_draws, losses_at, residuals_at
from fitting.design.features import Features
from fitting.design.inputs import read_outputs, run_rows, thinned
from fitting.parallel import over_cores
from fitting.uncertainty.posterior import Posterior

BUDGETS = (0.05, 0.1, 0.2, 0.25)
"""Parts of the pool's cost."""
POWERS = (0.4, 1.0)
"""Powers of the cost that a gain is divided by; the better choice counts."""
STEP = 1e-4


@dataclass(frozen=True, eq=False)
class Linear:
    """A pool near the fit of all its runs.

    `gradient` (t, p) of the answer; `information` (runs, p, p) of each run; `prior` (p, p); `costs` (runs,); `noise`
    of a run.
    """

    gradient: np.ndarray
    information: np.ndarray
    prior: np.ndarray
    costs: np.ndarray
    noise: float

    def variance(self, information: np.ndarray) -> float:
        """Mean variance of the answers."""
        return float(np.trace(self.gradient @ np.linalg.solve(information, self.gradient.T)) / len(self.gradient))

    def least_variance(self, budget: float) -> float:
        """The least variance found for a part of the cost."""
        found = []
        for power in POWERS:
            information, spent, runs = self.prior.copy(), 0.0, list[int]()
            while affordable := [
                run
                for run, cost in enumerate(self.costs)
                if run not in runs and spent + cost <= budget * self.costs.sum()
            ]:
                before = self.variance(information)
                gains = [
                    (before - self.variance(information + self.information[run])) / self.costs[run] ** power
                    for run in affordable
                ]
                best = affordable[int(np.argmax(gains))]
                information, spent = information + self.information[best], spent + self.costs[best]
                runs.append(best)
            found.append(self.variance(information))
        return min(found)


def linear(pool: Pool) -> Linear:
    """The pool's answer and its losses as linear functions of the parameters."""
    output = read_outputs(pool.laws, pool.runs, pool.question)[0]
    law, groups = output.laws[0], [thinned(rows) for rows in run_rows(pool.runs)]
    table = output.table(pool.runs, law).assign(loss=pool.runs[output.loss]).iloc[np.concatenate(groups)]
    table = table if "run" in table else table.assign(run=np.arange(len(table)))
    fit = fitting.fit(table, law, bootstrap=0, few=True)
    level = float(pool.runs[output.loss].mean())
    middle = np.array([fit.params[p.name] for p in law.parameters])
    moved, widths = [middle], []
    for number, p in enumerate(law.parameters):
        start = [p.coordinate(value) for value in p.prior or p.start] if not p.linear else [0.0, level]
        step = STEP * max(abs(middle[number]), 1e-3 * level) if p.linear else STEP * np.ptp(start)
        widths.append(np.ptp(start) / step)
        for sign in (1, -1):
            values = middle.copy()
            at = values[number] if p.linear else p.coordinate(values[number])
            values[number] = at + sign * step if p.linear else np.clip(p.value(at + sign * step), p.low, p.high)
            moved.append(values)
    values, columns = np.array(moved), output.columns(pool.runs, law)
    features, split = Features.of(columns, columns), len(law.linear)
    ones, nothing = np.ones(len(values)), np.zeros((len(values), len(features.phases)))
    both = [(Posterior(law, values[:, :split], values[:, split:], ones, 0.0, fit.scale, nothing), features)]
    losses = residuals_at(pool.runs, output, both)
    target = pool.target
    asked = answer_draws(pool.question, target, output, both) if pool.question else losses_at(target, output, both)
    slopes, gradient = ((every[1::2] - every[2::2]).T / 2 for every in (losses, asked.values))
    measured = pool.runs[output.loss].to_numpy()
    residuals = (measured / fit.scale if fit.scale else np.log(measured)) - losses[0]
    of_runs = np.array([residuals[rows].mean() for rows in groups])
    run_variance = max(of_runs.var() * len(groups) / max(len(groups) - len(widths), 1), 1e-12)
    within = [np.var(residuals[rows], ddof=1) for rows in groups if len(rows) > 1]
    point_variance = (float(np.mean(within)) if within else 0.0) + 1e-3 * run_variance
    information = []
    for rows in groups:
        covariance = run_variance + point_variance * np.eye(len(rows))
        information.append(slopes[rows].T @ np.linalg.solve(covariance, slopes[rows]))
    costs = np.array([pool.runs["cost"].to_numpy()[rows].max() for rows in run_rows(pool.runs)])
    prior = np.diag(np.array(widths) ** -2.0)
    return Linear(gradient, np.array(information), prior, costs, float(np.sqrt(run_variance)))


def floor(pool: Pool) -> dict[str, float | str]:
    """Expected error over what is allowed, by part of the cost, and the standard deviation of the whole answer."""
    near, allowed = linear(pool), TOLERANCE[pool.name.split()[-1]]
    whole = near.variance(near.prior + near.information.sum(axis=0))
    row: dict[str, float | str] = {"pool": pool.name, "noise of a run": near.noise, "whole": np.sqrt(whole) / allowed}
    for budget in BUDGETS:
        row[f"{budget:.0%}"] = np.sqrt(2 / np.pi * max(near.least_variance(budget) - whole, 0.0)) / allowed
    return row


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    rows = pd.DataFrame([*over_cores(floor, pools())]).set_index("pool")
    parts = rows[[f"{budget:.0%}" for budget in BUDGETS]]
    rows.loc["median"], rows.loc["within what is allowed"] = rows.median(), (parts <= 1).sum()
    print(rows.round(3).to_markdown())
