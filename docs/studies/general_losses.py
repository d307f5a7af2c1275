"""How much does the loss on general text depend on the domain? The measurements behind `general_from`.

    python -m docs.studies.general_losses

Of the kept studies of SmolLM2-135M on six domains it takes runs of 20 and 40 steps that are alike but for the domain,
and says how far their last losses on general are apart. Then it predicts the confirmation runs of 120 steps of each
domain, by its own runs alone and with those of the other five, their confirmation runs among them; two minutes.
"""

from itertools import combinations

import numpy as np
import pandas as pd

from docs.studies.law_errors import RESULTS, kept_points, last_points
from docs.studies.verdicts import long_ends, predicted

STUDIES = {name: RESULTS / f"base-model-{name}" for name in ("law", "math", "medical", "code", "chemistry", "music")}


def differences() -> pd.DataFrame:
    """A row a pair of runs that differ in the domain alone: its domain ratio, and by how much of the loss."""
    parts = (last_points(kept_points(study.name)).assign(domain=name) for name, study in STUDIES.items())
    ends, rows = pd.concat(parts).query("corpus == 'general'"), []
    for (ratio, steps, _), runs in ends.groupby(["ratio", "step", ends["s1"].round(5)]):
        for one, other in combinations(runs.drop_duplicates("domain").itertuples(), 2):
            rows.append({"ratio": ratio, "steps": steps, "difference": abs(np.log(one.loss / other.loss))})
    return pd.DataFrame(rows)


def predictions() -> pd.DataFrame:
    """A row a loss on general of a confirmation run: its error, the interval's half-width, whether others counted."""
    tables = []
    for name, study in STUDIES.items():
        others = ",".join(str(other) for other in STUDIES.values() if other != study)
        for words in ([], [f"general_from=[{others}]"]):
            long = long_ends(study).query("corpus == 'general'")
            tables.append(predicted(study, long, words).assign(domain=name, earlier=bool(words)))
    return pd.concat(tables)[["domain", "earlier", "ratio", "error", "half_width", "inside"]]


if __name__ == "__main__":
    found = differences()
    for low, high in ((0.01, 0.6), (0.6, 0.99), (0.99, 1.0)):
        part = found[found["ratio"].between(low, high)]["difference"]
        print(f"domain ratio {low:g} to {high:g}: {len(part)} pairs, mean {part.mean():.2%}, at most {part.max():.2%}")
    below = found[found["ratio"].between(0.01, 0.99)]["difference"]
    print(f"ratios below 1: 90% of {len(below)} pairs within {below.quantile(0.9):.2%}")
    answers = predictions()
    print(answers.to_string(index=False, float_format="{:.4f}".format))
    for earlier, rows in answers.groupby("earlier"):
        way = "with five other domains" if earlier else "by its own runs"
        mean, width = rows["error"].abs().mean(), rows["half_width"].mean()
        print(f"{way}: mean error {mean:.2%}, {rows['inside'].sum()} of {len(rows)} inside, half-width {width:.1%}")
