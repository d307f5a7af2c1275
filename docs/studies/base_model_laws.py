"""Which law predicts the runs of a base model? The errors of docs/base-model.md, from the points of a study.

    python -m docs.studies.base_model_laws docs/results/base-model-law
    python -m docs.studies.base_model_laws docs/results/base-model-peaks peaks

Prints, for each law and corpus, the error on what was held out of the runs for the fit, and on the confirmation runs at
their last step, both also as a part of the change of the loss. With `peaks` it is the error at each peak learning rate,
of the open laws fitted to the runs at the others. Each law is fitted as `cptlaw fit` does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from docs.studies.law_errors import last_points, with_errors
from fitting import LAWS as EVERY
from fitting import Fit, Fold, fit, fit_shared, held_out
from fitting.schedule import Schedules
from pipeline.goals.registry import question_of_study
from pipeline.study.collect import of_domain, read_points, schedules
from pipeline.study.fits import shared_folds
from pipeline.study.folder import study_of

OPEN = ("transfer-open", "transfer-open-saturating")
LAWS = {"transfer-anchored": ("rho",), **dict.fromkeys(OPEN, ())}
"""Law -> columns that are fitted as a parameter."""


@dataclass(frozen=True, eq=False)
class Runs:
    """The points of a study's continual runs after step 0: those for the fit, and those that confirm; their rates."""

    fitted: pd.DataFrame
    confirmed: pd.DataFrame
    rates: Schedules
    corpora: tuple[str, str]

    @classmethod
    def of(cls, folder: Path) -> Runs:
        """The runs of a kept study."""
        question = question_of_study(folder, [])
        study = study_of(question)
        points = of_domain(read_points(study), question)
        points = points[(points["step"] > 0) & (points["phase"] == "continual")]
        of_role = {role: rows.reset_index(drop=True) for role, rows in points.groupby("role")}
        nothing = points.iloc[:0]
        rates = schedules(study.read_plan())
        corpora = (question.corpora.general, question.corpora.domain)
        return cls(of_role["fit"], of_role.get("confirm", nothing), rates, corpora)

    def peaks(self) -> pd.Series:
        """The peak learning rate of each point's run."""
        return self.fitted["run"].map(lambda run: float(np.max(self.rates[run].rates)))

    def fits(self, law: str) -> Mapping[str, Fit]:
        """Corpus -> fit."""
        options = {"schedules": self.rates, "few": True, "bootstrap": 0, "unknown": LAWS[law]}
        if common := EVERY[law].shared:
            return fit_shared(self.fitted, law, common, **options)
        return {corpus: fit(rows, law, **options) for corpus, rows in self.fitted.groupby("corpus")}

    def held_out(self, law: str, parts: list[Fold]) -> pd.DataFrame:
        """The judged points of all folds, as `with_errors` has them."""
        options = {"schedules": self.rates, "few": True, "unknown": LAWS[law]}
        if common := EVERY[law].shared:
            return with_errors(held_out(self.fitted, law, parts, shared=common, **options))
        tables = []
        for corpus in self.corpora:
            own = (self.fitted["corpus"] == corpus).to_numpy()
            of_corpus = [Fold(one.label, one.fitted[own], one.judged[own]) for one in parts]
            tables.append(held_out(self.fitted[own], law, of_corpus, **options))
        return with_errors(pd.concat(tables))


def parted(values: pd.Series) -> list[Fold]:
    """A fold for each value, which it holds out."""
    return [Fold(str(one), (values != one).to_numpy(), (values == one).to_numpy()) for one in values.unique()]


def splits(runs: Runs) -> Iterator[tuple[str, list[Fold]]]:
    """What is held out of the runs for the fit: later steps, a ratio, a peak, each run in turn."""
    points, first = runs.fitted, int(runs.fitted["step"].min())
    late = (points["step"] > first).to_numpy()
    yield f"steps after {first}", [Fold("late", ~late, late)]
    yield "a ratio", shared_folds(points, points, "ratio", runs.corpora[1])
    for name, values in (("a peak", runs.peaks()), ("each run", points["run"])):
        if values.nunique() > 1:
            yield name, parted(values)


def confirmed(fitted: Fit, runs: pd.DataFrame, rates: Schedules) -> pd.DataFrame:
    """The last points of runs as `with_errors` has them."""
    last = last_points(runs)
    predicted = fitted.predict(last, rates)
    relative = predicted / last["loss"] - 1
    return with_errors(last.assign(predicted=predicted, measured=last["loss"], relative_error=relative))


def errors(runs: Runs) -> Iterator[str]:
    """A line for each law and corpus."""
    for law in LAWS:
        tested = {name: runs.held_out(law, parts) for name, parts in splits(runs)}
        for corpus, fitted in runs.fits(law).items():
            held = []
            for name, rows in tested.items():
                own = rows[rows["corpus"] == corpus]
                held.append(f"{name} {own['error'].mean():.2%}, {own['of_change'].mean():.1%}")
            last = confirmed(fitted, runs.confirmed[runs.confirmed["corpus"] == corpus], runs.rates)
            after = ", ".join(f"{error:+.2%}" for error in last["relative_error"])
            values = ", ".join(f"{name} {fitted.params[name]:.3g}" for name in ("C2", "lambda"))
            of_change = f"{last['of_change'].mean():.1%} of the change"
            yield f"{corpus} {law}: {'; '.join(held)}; confirmed {after}, {of_change}; {values}"


def peaks(runs: Runs) -> pd.DataFrame:
    """Columns corpus, peak, law, error and of_change, both relative."""
    tables = [runs.held_out(law, parted(runs.peaks())).assign(law=law) for law in OPEN]
    table = pd.concat(tables).rename(columns={"split": "peak"}).astype({"peak": float})
    return table.groupby(["corpus", "peak", "law"])[["error", "of_change"]].mean().reset_index()


def main(folder: str, part: str = "") -> None:
    """Print the errors of a study, or those at each peak."""
    runs = Runs.of(Path(folder))
    if part == "peaks":
        print(peaks(runs).to_markdown(index=False, floatfmt=("", "g", "", ".2%", ".1%")))
    else:
        print(*errors(runs), sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
