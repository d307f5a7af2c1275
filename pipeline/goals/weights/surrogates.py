"""Laws of the loss of one corpus at a mixture of many, and their errors on held-out mixtures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import pandas as pd

from fitting import Fit, Longer, PointsError, areas, fit
from fitting.schedule import Schedules
from pipeline.goals.weights.random_mixtures import last_points
from training.schedule import learning_rates
from training.spec import RunSpec

SURROGATES = ("data-mixing", "dcpt", "transfer-anchored")
"""Inputs of data-mixing: the weights of all corpora (run length by LENGTH); of dcpt: the weight of the corpus, and
tokens; of transfer-anchored: the weight of the corpus, the schedule and the loss before CPT."""
LENGTH = "transfer-anchored"
"""The law that scales a loss of data-mixing, which has no input for run length, to another length."""
ONE_SIZE = {"A": 0.0, "alpha": 0.3}
"""Parameters of dcpt that are not identified with one model size: the size term is a part of E."""
HELD_OUT = 3
"""Every third mixture is held out."""
EARLIER = 2 / 3
"""Fraction of the steps that the split `later` is fitted to."""


@dataclass(frozen=True, eq=False)
class RandomRuns:
    """Runs at random mixtures of one length from one model, and how surrogates are fitted to the losses of a corpus."""

    points: pd.DataFrame
    """Points on all corpora."""
    spec: RunSpec
    """Spec of one of the runs, whose mixture is not read."""
    schedules: Schedules
    """Run -> its learning rates."""
    from_step: Mapping[str, int] = field(default_factory=dict)
    """Law -> first step that is fitted, at least 1."""
    bootstrap: int = 0
    """Refits, for intervals."""
    seed: int = 0
    """Seed of the fits, and of the mixtures that are held out."""

    def on(self, corpus: str) -> pd.DataFrame:
        """The points on a corpus."""
        return self.points[self.points["corpus"] == corpus]

    def fit(self, law: str, points: pd.DataFrame, bootstrap: int | None = None) -> Fit:
        """A surrogate fitted to some points of one corpus; data-mixing reads the last of each run.

        Raises:
            PointsError: too few runs, or too few evaluations of each.
        """
        refits = self.bootstrap if bootstrap is None else bootstrap
        if law == "data-mixing":
            return fit(last_points(points), law, bootstrap=refits, seed=self.seed)
        points = points[points["step"] >= max(self.from_step.get(law, 0), 1)]
        if law == "dcpt":
            return fit(points, law, fix=ONE_SIZE, bootstrap=refits, seed=self.seed)
        decay = fit(points, law, schedules=self.schedules, bootstrap=0, seed=self.seed).params["lambda"]
        # One lambda for all refits, so that the end of a run has one s2.
        return fit(points, law, schedules=self.schedules, fix={"lambda": decay}, bootstrap=refits, seed=self.seed)

    def fit_length(
        self, points: pd.DataFrame, target: RunSpec, step: int | None = None, bootstrap: int | None = None
    ) -> Longer:
        """The factor by which a corpus's loss changes from a step of the runs (None: the last) to the target's end."""
        law = self.fit(LENGTH, points, bootstrap)
        return Longer(law, end_columns(law, points, self.spec, step), end_columns(law, points, target))

    def held_out_errors(self) -> pd.DataFrame:
        """The errors of each surrogate at the end of mixtures that it was not fitted to.

        Returns:
            Columns law, split ("mixtures": fitted to all steps of the others; "later": to the first two thirds of their
            steps; data-mixing reads the last of them, and LENGTH extrapolates), corpus, error (mean absolute relative
            error) and reason ("", or why it could not be fitted).
        """
        return pd.DataFrame(self._errors())

    def _errors(self) -> Iterator[dict]:
        weights = sorted(name for name in map(str, self.points.columns) if name.startswith("mixture."))
        mixture = self.points.groupby(weights, sort=True).ngroup().to_numpy()
        order = np.random.default_rng(self.seed).permutation(mixture.max() + 1)
        held = np.isin(mixture, order[::HELD_OUT])
        early = (self.points["step"] <= EARLIER * self.points["step"].max()).to_numpy()
        splits, corpora = {"mixtures": ~held, "later": ~held & early}, map(str, self.points["corpus"].unique())
        for law, split, corpus in product(SURROGATES, splits, corpora):
            row = {"law": law, "split": split, "corpus": corpus, "error": float("nan"), "reason": ""}
            of_corpus = (self.points["corpus"] == corpus).to_numpy()
            fitted, ends = self.points[splits[split] & of_corpus], last_points(self.points[held & of_corpus])
            try:
                surrogate = self.fit(law, fitted, bootstrap=0)
                predicted = surrogate.predict(ends.assign(**end_columns(surrogate, self.on(corpus), self.spec)))
                if law == "data-mixing" and split == "later":
                    last = int(self.points.loc[early, "step"].max())
                    longer = self.fit_length(fitted, self.spec, last, bootstrap=0)
                    predicted = predicted * longer.factor(ends["r"].to_numpy(dtype=float))
            except PointsError as reason:
                yield {**row, "reason": str(reason)}
            else:
                yield {**row, "error": float(np.abs(predicted / ends["loss"].to_numpy(dtype=float) - 1).mean())}


def end_columns(law: Fit, points: pd.DataFrame, spec: RunSpec, step: int | None = None) -> dict[str, float]:
    """The inputs of a surrogate other than weights, at the end of a run, or after a step; `points` are of a corpus."""
    step = step or spec.steps
    rates = learning_rates(spec.schedule, spec.steps, spec.learning_rate_before)
    s1, s2 = areas(rates, law.constants.get("lambda", 0.999), spec.learning_rate_before)
    known = {name: float(points[name].mean()) for name in ("N", "loss_before", "rho", "s1_pretrain")}
    known |= {"D": step * spec.tokens_per_step / 1e9, "s1": float(s1[step - 1]), "s2": float(s2[step - 1])}
    return {name: value for name, value in known.items() if name in law.equation.columns}
