"""How far does the saturating open law see on base models, and how far both open laws? docs/base-model.md.

    python -m docs.studies.open_laws [FILE.csv]

Fits kept studies by one law and by both, as `cptlaw fit` does, and predicts the ends of their long runs with the
interval that `cptlaw predict` prints: of SmolLM2-135M and Gemma-3-270M at three times the fitted length
(docs/results/base-model-NAME), of SmolLM2-135M at 7.5 (base-model-300), ten and thirty times (base-model-1200), and of
small models that were pre-trained and settled at twenty times (long-runs).
"""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from docs.studies.base_model_1200 import RATIOS, RESULTS
from pipeline.goals.ratio.answering_laws import answering_laws
from pipeline.goals.registry import goal_of
from pipeline.question.loading import question_of_study
from pipeline.study.collect import schedules
from pipeline.study.context import Context, context_of
from pipeline.study.target import find_target

KEPT = RESULTS.parent
LAWS = ("transfer-open-saturating", "transfer-open-saturating,transfer-open")
THREE_TIMES = ("law", "law-again", "math", "medical", "code", "chemistry", "music", "gemma")
SETTLED = ("long-runs", "long-runs-low", "long-runs-2.9m", "long-runs-2.9m-peak", "long-runs-other-domains")


def asked() -> Iterator[tuple[str, Path, Path, list[str]]]:
    """Name of a set, study with the runs for the fit, study with the long runs, and words of the question."""
    for name in THREE_TIMES:
        yield "3 times", KEPT / f"base-model-{name}", KEPT / f"base-model-{name}", []
    for name in ("chemistry", "math"):
        yield "7.5 times", KEPT / f"base-model-{name}", KEPT / "base-model-300" / name, ["target.steps=300"]
    for steps, times in ((120, 10), (40, 30)):
        for domain in RATIOS:
            yield f"{times} times", RESULTS / f"{domain}-{steps}", RESULTS / f"{domain}-1200", []
    for name in SETTLED:
        yield "20 times, settled", KEPT / name, KEPT / name, []


def long_ends(context: Context) -> pd.DataFrame:
    """The last point of each run that no fit sees, or of a study of long runs alone of each run, with its peak."""
    points = context.points[context.points["corpus"].isin(context.corpora) & (context.points["phase"] == "continual")]
    confirmed = points[points["role"] == "confirm"]
    points = points if confirmed.empty else confirmed
    ends = points.loc[points.groupby(["run", "corpus"], sort=False)["step"].idxmax()]
    rates = schedules(context.study.read_plan())
    peaks = {run: float(np.max(schedule.rates)) for run, schedule in rates.items()}
    return ends.assign(peak=ends["run"].map(peaks), steps=ends["run"].map(lambda run: len(rates[run].rates)))


def predictions(folder: Path, law: str) -> Iterator[dict]:
    """A row for each loss at the end of a long run: error and upper half-width in percent, whether it is inside."""
    for name, fitted, long, words in asked():
        study = folder / law / name / fitted.name
        if not study.exists():
            shutil.copytree(fitted, study)
        context = context_of(question_of_study(study, [f"law=[{law}]", *words]))
        goal_of(context.question).fit(context, lambda _: None)
        laws = answering_laws(context.fresh())
        for end in long_ends(context_of(question_of_study(long, []))).itertuples():
            own = laws.at_peak(end.peak)
            target = find_target(own.question, own.points).lasting(end.steps)
            loss, low, high = own.loss(target, end.corpus, end.ratio)
            kind = "general" if end.corpus == context.corpora[0] else "domain"
            error, half = 100 * np.log(loss / end.loss), 100 * np.log(high / loss)
            row = {"set": name, "study": fitted.name, "law": law, "loss on": kind, "domain_ratio": end.ratio}
            yield {**row, "error": error, "half_width": half, "inside": low <= end.loss <= high}


def main(file: str | None = None) -> None:
    """Print a row for each set, loss and way; all predictions to a file."""
    with tempfile.TemporaryDirectory() as folder:
        table = pd.DataFrame([row for law in LAWS for row in predictions(Path(folder), law)])
    if file:
        table.round(3).to_csv(file, index=False)
    print(
        "| set | loss on | laws | losses | mean error | 90% of errors within | half-width | inside |\n"
        + "|---" * 8
        + "|"
    )
    for (name, kind, law), rows in table.groupby(["set", "loss on", "law"], sort=False):
        errors = rows["error"].abs()
        cells = [
            name,
            kind,
            law.replace(",", " and "),
            len(rows),
            f"{errors.mean():.2f}%",
            f"{errors.quantile(0.9):.1f}%",
        ]
        cells += [f"{rows['half_width'].mean():.1f}%", rows["inside"].sum()]
        print(f"| {' | '.join(map(str, cells))} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
