"""Which law predicts the runs of a base model? The errors of docs/base-model.md, from the points of a study.

    python -m docs.studies.base_model_laws docs/results/base-model-law

Prints, for each law and corpus, the error on what was held out of the runs for the fit, and on the confirmation runs at
their last step, both also as a part of the change of the loss. Each law is fitted as `cptlaw fit` does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fitting import LAWS as EVERY
from fitting import Fit, Fold, fit, fit_shared, held_out
from fitting.schedule import Schedules, with_areas
from pipeline.goals.registry import question_of_study
from pipeline.study.collect import of_domain, read_points, schedules
from pipeline.study.fits import shared_folds
from pipeline.study.folder import study_of

LAWS = {"transfer-anchored": ("rho",), "transfer-open": (), "transfer-open-saturating": ()}
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
        """The judged points of all folds, as `fitting.held_out` gives them."""
        options = {"schedules": self.rates, "few": True, "unknown": LAWS[law]}
        if common := EVERY[law].shared:
            return held_out(self.fitted, law, parts, shared=common, **options)
        tables = []
        for corpus in self.corpora:
            own = (self.fitted["corpus"] == corpus).to_numpy()
            of_corpus = [Fold(one.label, one.fitted[own], one.judged[own]) for one in parts]
            tables.append(held_out(self.fitted[own], law, of_corpus, **options))
        return pd.concat(tables)


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


def confirmed_errors(fitted: Fit, runs: pd.DataFrame, rates: Schedules) -> np.ndarray:
    """Relative error at the last step of each run, in their order."""
    last = runs.loc[runs.groupby("run", sort=False)["step"].idxmax()]
    return fitted.predict(with_areas(last, rates, fitted.params["lambda"])) / last["loss"].to_numpy() - 1


def main(folder: Path) -> None:
    """Print the errors of a study."""
    runs = Runs.of(folder)
    for law in LAWS:
        tested = {name: runs.held_out(law, parts) for name, parts in splits(runs)}
        for corpus, fitted in runs.fits(law).items():
            longer = runs.confirmed[runs.confirmed["corpus"] == corpus]
            last = longer.loc[longer.groupby("run", sort=False)["step"].idxmax()]
            errors = confirmed_errors(fitted, longer, runs.rates)
            after = f"{', '.join(f'{error:+.2%}' for error in errors)}, {_of_change(errors, last)} of the change"
            held = []
            for name, rows in tested.items():
                own = rows[rows["corpus"] == corpus]
                errors = own["relative_error"].to_numpy(float)
                held.append(f"{name} {np.abs(errors).mean():.2%}, {_of_change(errors, own)}")
            values = ", ".join(f"{name} {fitted.params[name]:.3g}" for name in ("C2", "lambda"))
            print(f"{corpus} {law}: {'; '.join(held)}; confirmed {after}; {values}")


def _of_change(errors: np.ndarray, rows: pd.DataFrame) -> str:
    change = (rows["loss_before"] - rows["loss"]).abs().to_numpy() / rows["loss"].to_numpy()
    return f"{np.mean(np.abs(errors) / change):.1%}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
