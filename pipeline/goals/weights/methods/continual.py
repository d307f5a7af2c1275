"""Weights of several target domains and of general text for CPT, with a limit on the general loss.

The losses at random mixtures are predicted by the law, of several, that predicts held-out mixtures best.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import pandas as pd

from fitting import Fit, Longer, PointsError, areas, best_mixture, fit
from fitting.schedule import Schedules
from pipeline.goals.weights.artifacts import Proposal
from pipeline.goals.weights.methods.random_mixtures import (
    RandomMethod,
    finished_mixtures,
    last_points,
    law_proposal,
    points_of,
)
from pipeline.goals.weights.mixtures import Search
from pipeline.study.number_format import signed
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
        """A surrogate fitted to points of one corpus; data-mixing reads the last of each run. Raises PointsError."""
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
        """The mean absolute relative error of each surrogate at the end of mixtures that it was not fitted to.

        Columns law, split ("mixtures": fitted to all steps of the others; "later": to the first two thirds of their
        steps, from which LENGTH extrapolates for data-mixing), corpus, error and reason ("", or why it has no fit).
        """
        return pd.DataFrame(self._errors())

    def _errors(self) -> Iterator[dict[str, object]]:
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
    s1, s2 = areas(rates, law.decay, spec.learning_rate_before)
    known = {name: float(points[name].mean()) for name in ("N", "loss_before", "rho", "s1_pretrain")}
    known |= {"D": step * spec.tokens_per_step / 1e9, "s1": float(s1[step - 1]), "s2": float(s2[step - 1])}
    return {name: value for name, value in known.items() if name in law.equation.columns}


def _propose(search: Search) -> list[Proposal]:
    """The mixture of lowest average loss whose predicted loss increase on general is at most goal.tolerance."""
    question, weights, general = search.question, search.settings, search.question.corpora.general
    runs = finished_mixtures(search)
    target = search.run(search.base, weights.target, question.seed).spec
    from_step = {law: question.law[law].from_step for law in SURROGATES if law in question.law}
    random = RandomRuns(
        points_of(search, runs), runs[0].spec, search.context.schedules, from_step, question.bootstrap, question.seed
    )
    errors = random.held_out_errors()
    law = best_surrogate(errors, longer=target.steps > random.spec.steps)

    points = {domain: random.on(domain) for domain in search.domains}
    fits = {domain: random.fit(law, part) for domain, part in points.items()}
    lengths, notes = {}, []
    if law == "data-mixing" and target.steps != random.spec.steps:
        try:
            lengths = {domain: random.fit_length(part, target) for domain, part in points.items()}
        except PointsError as reason:
            notes = [f"weights and losses are those at {random.spec.steps} steps: {LENGTH}, for the length: {reason}"]
    before = float(points[general]["loss_before"].mean())
    answer = best_mixture(
        fits,
        search.values,
        limits={general: before * (1 + question.goal.tolerance)},
        high=search.largest_weights(weights.target),
        at={domain: end_columns(fits[domain], points[domain], target) for domain in search.domains},
        longer=lengths,
        average=weights.average,
    )
    increase, allowed = answer.predicted[general].value / before - 1, 100 * question.goal.tolerance
    losses = answer.predicted.items() if question.bootstrap > 0 else ()
    lines = [
        f"{general}: its loss is predicted to change by {signed(increase)}; allowed: {allowed:+.3g}%",
        *selection_notes(errors, law + (f", and {LENGTH} for the length" if lengths else "")),
        *notes,
    ]
    numbers = {
        "surrogate": law,
        "length": LENGTH if lengths else None,
        "held_out": errors.astype(object).where(errors.notna(), None).to_dict("records"),
        "general_before": before,
        "tolerance": question.goal.tolerance,
        "value": search.values,
        "intervals": {name: [loss.low, loss.high] for name, loss in losses},
    }
    return [law_proposal("continual", search, runs, fits, answer, lines, numbers)]


def best_surrogate(errors: pd.DataFrame, longer: bool) -> str:
    """The law with the lowest mean of `RandomRuns.held_out_errors`, of those that fit all corpora.

    Where the target is `longer` than the runs, the error on later steps decides. Raises PointsError: no law fits.
    """
    means = _mean_errors(errors)
    for split in ["later", "mixtures"] if longer else ["mixtures"]:
        if not (fitted := means[split].dropna()).empty:
            return str(fitted.idxmin())
    raise PointsError(f"no law could be fitted to the random mixtures: {errors['reason'].iloc[0]}")


def selection_notes(errors: pd.DataFrame, law: str) -> list[str]:
    """The chosen law, the mean held-out errors of all laws, and the reasons of those that could not be fitted."""
    names = {"mixtures": "held-out mixtures", "later": "their end, from the first two thirds of the steps"}
    lines = []
    for split, means in _mean_errors(errors).items():
        listed = ", ".join(f"{name} {error:.2%}" for name, error in means.dropna().sort_values().items())
        lines.append(f"mean error on {names[str(split)]}: {listed or 'no law could be fitted'}")
    failed = errors[errors["reason"] != ""].drop_duplicates(["law", "split"])
    lines += [f"{row.law} on {row.corpus} ({row.split}): {row.reason}" for row in failed.itertuples()]
    return [f"predicted by {law}", *lines]


def _mean_errors(errors: pd.DataFrame) -> pd.DataFrame:
    """Law -> mean error over the corpora on each split, NaN where a law could not be fitted."""
    return errors.pivot_table(
        index="law", columns="split", values="error", aggfunc=lambda values: values.mean(skipna=False), dropna=False
    )[["mixtures", "later"]]


CONTINUAL = RandomMethod(_propose)
"""Needs one and a half times as many mixtures as corpora, and a few: every third is held out."""
