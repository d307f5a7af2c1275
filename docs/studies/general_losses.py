"""How much does the loss on general text depend on the domain? The measurements behind `general_from`.

    python -m docs.studies.general_losses

Of the kept studies of SmolLM2-135M on six domains it takes runs of 20 and 40 steps that are alike but for the domain,
and says how far their last losses on general are apart. Then it predicts the confirmation runs of 120 steps of each
domain, by its own runs alone and with those of the other five, their confirmation runs among them; two minutes.
"""

import shutil
import tempfile
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

from pipeline.goals.ratio.answering_laws import answering_laws
from pipeline.goals.registry import goal_of
from pipeline.question.loading import question_of_study
from pipeline.study.context import context_of
from pipeline.study.target import find_target

RESULTS = Path(__file__).parents[1] / "results"
STUDIES = ("law", "math", "medical", "code", "chemistry", "music")
KEYS = ["ratio", "steps", "peak"]


def ends() -> pd.DataFrame:
    """The last loss on general of each run of the kept studies of 20 and 40 steps, a row a run."""
    parts = []
    for name in STUDIES:
        points = pd.read_parquet(RESULTS / f"base-model-{name}" / "points.parquet")
        rows = points[(points["corpus"] == "general") & (points["role"] == "fit")]
        last = rows[rows["step"] == rows.groupby("run")["step"].transform("max")]
        parts.append(last.assign(domain=name, steps=last["step"], peak=last["s1"].round(5)))
    return pd.concat(parts)


def differences() -> pd.DataFrame:
    """A row a pair of runs that differ in the domain alone: its domain ratio, and by how much of the loss."""
    rows = []
    for (ratio, steps, _), runs in ends().groupby(KEYS):
        for one, other in combinations(runs.drop_duplicates("domain").itertuples(), 2):
            rows.append({"ratio": ratio, "steps": steps, "difference": abs(np.log(one.loss / other.loss))})
    return pd.DataFrame(rows)


def predictions() -> pd.DataFrame:
    """A row a loss on general of a confirmation run: its error, the interval's half-width, whether others counted."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        studies = {name: Path(folder) / name for name in STUDIES}
        for name, study in studies.items():
            shutil.copytree(RESULTS / f"base-model-{name}", study)
        for name, study in studies.items():
            others = ",".join(str(other) for other in studies.values() if other != study)
            for words in ([], [f"general_from=[{others}]"]):
                context = context_of(question_of_study(study, words))
                goal_of(context.question).fit(context, lambda _: None)
                points = context.points
                long = points[(points["role"] == "confirm") & (points["corpus"] == "general")]
                for _, row in long[long["step"] == long["step"].max()].iterrows():
                    # Their cosine ends at a tenth of the peak.
                    laws = answering_laws(context.fresh()).at_peak(round(10 * row["learning_rate"], 7))
                    loss, low, high = laws.loss(find_target(laws.question, laws.points), "general", row["ratio"])
                    errors = {"error": loss / row["loss"] - 1, "half_width": high / loss - 1}
                    inside = low <= row["loss"] <= high
                    rows.append(
                        {"domain": name, "earlier": bool(words), "ratio": row["ratio"], **errors, "inside": inside}
                    )
    return pd.DataFrame(rows)


if __name__ == "__main__":
    found = differences()
    for low, high in ((0.01, 0.6), (0.6, 0.99), (0.99, 1.0)):
        part = found[found["ratio"].between(low, high)]["difference"]
        print(f"domain ratio {low:g} to {high:g}: {len(part)} pairs, mean {part.mean():.2%}, at most {part.max():.2%}")
    below = found[found["ratio"].between(0.01, 0.99)]["difference"]
    print(f"ratios below 1: 90% of {len(below)} pairs within {below.quantile(0.9):.2%}")
    predicted = predictions()
    print(predicted.to_string(index=False, float_format="{:.4f}".format))
    for earlier, rows in predicted.groupby("earlier"):
        way = "with five other domains" if earlier else "by its own runs"
        mean, width = rows["error"].abs().mean(), rows["half_width"].mean()
        print(f"{way}: mean error {mean:.2%}, {rows['inside'].sum()} of {len(rows)} inside, half-width {width:.1%}")
