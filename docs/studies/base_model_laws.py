"""Which law predicts the runs of a base model? The errors of docs/base-model.md, from the points of a study.

    python -m docs.studies.base_model_laws docs/results/base-model-law

Prints, for each corpus and law, the error on what was held out of the runs for the fit, and on the confirmation runs at
their last step; then the same of one fit to both corpora with a common lambda.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from fitting import Fit, Fold, fit, fit_shared, folds, held_out
from fitting.schedule import Schedules, with_areas
from pipeline.question.loading import question_of_study
from pipeline.study.collect import of_domain, read_points, schedules
from pipeline.study.folder import study_of

LAWS = {"transfer-anchored": ("rho",), "transfer-open": (), "transfer-open-saturating": ()}
"""Law -> columns that are fitted as a parameter."""


def splits(points: pd.DataFrame, rates: Schedules) -> Iterator[tuple[str, list[Fold]]]:
    """What is held out of the points of a corpus: later steps, a ratio, a peak, each run in turn."""
    first = int(points["step"].min())
    yield (
        f"steps after {first}",
        [Fold("late", (points["step"] <= first).to_numpy(), (points["step"] > first).to_numpy())],
    )
    yield "a ratio", folds(points, "ratio")
    peaks = points["run"].map(lambda run: float(np.max(rates[run].rates)))
    for name, values in (("a peak", peaks), ("each run", points["run"])):
        if values.nunique() > 1:
            yield name, [Fold(str(v), (values != v).to_numpy(), (values == v).to_numpy()) for v in values.unique()]


def held_out_error(points: pd.DataFrame, law: str, parts: list[Fold], rates: Schedules) -> float:
    """Mean relative error of the loss on what was held out."""
    errors = held_out(points, law, parts, rates, 0, unknown=LAWS[law], few=True)["relative_error"]
    return float(errors.abs().mean())


def confirmed_errors(fitted: Fit, runs: pd.DataFrame, rates: Schedules) -> list[float]:
    """Relative error at the last step of each run, in their order."""
    last = runs.loc[runs.groupby("run", sort=False)["step"].idxmax()]
    return list(fitted.predict(with_areas(last, rates, fitted.params["lambda"])) / last["loss"].to_numpy() - 1)


def main(folder: Path) -> None:
    """Print the errors of a study."""
    question = question_of_study(folder, [])
    study = study_of(question)
    points, rates = of_domain(read_points(study), question), schedules(study.read_plan())
    points = points[points["step"] > 0]
    fitted, confirmed = points[points["role"] == "fit"], points[points["role"] == "confirm"]
    for corpus in (question.corpora.general, question.corpora.domain):
        own, runs = fitted[fitted["corpus"] == corpus], confirmed[confirmed["corpus"] == corpus]
        for law, unknown in LAWS.items():
            errors = {name: held_out_error(own, law, parts, rates) for name, parts in splits(own, rates)}
            after = confirmed_errors(
                fit(own, law, schedules=rates, unknown=unknown, few=True, bootstrap=0), runs, rates
            )
            print(corpus, law, *(f"{name} {error:.2%};" for name, error in errors.items()), _signed(after))
    for law in ("transfer-open", "transfer-open-saturating"):
        for corpus, one in fit_shared(fitted, law, (), schedules=rates, bootstrap=0).items():
            runs = confirmed[confirmed["corpus"] == corpus]
            print(corpus, law, f"one lambda {one.params['lambda']:.3f};", _signed(confirmed_errors(one, runs, rates)))


def _signed(errors: list[float]) -> str:
    return "confirmed " + ", ".join(f"{error:+.2%}" for error in np.asarray(errors))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
