"""How far does the saturating open law see on base models, how far several? docs/base-model.md.

    python -m docs.studies.open_laws [FILE.csv]

Fits kept studies by one law, by both open laws, and by these and transfer-open-read, as `cptlaw fit` does, and predicts
the ends of their long runs with the interval that `cptlaw predict` prints: of SmolLM2-135M and Gemma-3-270M at three
times the fitted length (docs/results/base-model-NAME), of SmolLM2-135M at 7.5 (base-model-300), ten and thirty times
(base-model-1200), and of small models that were pre-trained and settled at twenty times (long-runs). All predictions go
to FILE.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from docs.studies.base_model_1200 import DOMAINS, RESULTS
from docs.studies.law_errors import markdown
from docs.studies.verdicts import long_ends, predicted

KEPT = RESULTS.parent
_BOTH = "transfer-open-saturating,transfer-open"
LAWS = ("transfer-open-saturating", _BOTH, f"{_BOTH},transfer-open-read")
THREE_TIMES = ("law", "law-again", "math", "medical", "code", "chemistry", "music", "gemma")
SETTLED = ("long-runs", "long-runs-low", "long-runs-2.9m", "long-runs-2.9m-peak", "long-runs-other-domains")


def asked() -> Iterator[tuple[str, Path, Path, list[str]]]:
    """Name of a set, study with the runs for the fit, study with the long runs, and words of the question."""
    for name in THREE_TIMES:
        yield "3 times", KEPT / f"base-model-{name}", KEPT / f"base-model-{name}", []
    for name in ("chemistry", "math"):
        yield "7.5 times", KEPT / f"base-model-{name}", KEPT / "base-model-300" / name, ["target.steps=300"]
    for steps, times in ((120, 10), (40, 30)):
        for domain in DOMAINS:
            yield f"{times} times", RESULTS / f"{domain}-{steps}", RESULTS / f"{domain}-1200", []
    for name in SETTLED:
        yield "20 times, settled", KEPT / name, KEPT / name, []


def predictions(law: str) -> Iterator[pd.DataFrame]:
    """A row for each loss at the end of a long run: error and upper half-width in percent, whether it is inside."""
    for name, fitted, long, words in asked():
        ends = predicted(fitted, long_ends(long), [f"law=[{law}]", *words])
        kind = ends["corpus"].where(ends["corpus"] == "general", "domain")
        ends = ends.assign(set=name, study=fitted.name, law=law, **{"loss on": kind})
        # Of the logarithm, as the laws' own errors.
        ends["error"] = 100 * np.log(ends["predicted"] / ends["measured"])
        ends["half_width"] = 100 * np.log(ends["high"] / ends["predicted"])
        yield ends[["set", "study", "law", "loss on", "domain_ratio", "error", "half_width", "inside"]]


def main(file: str | None = None) -> None:
    """Print a row for each set, loss and way; all predictions to a file."""
    table = pd.concat([rows for law in LAWS for rows in predictions(law)])
    if file:
        table.round(3).to_csv(file, index=False)
    lines = []
    for (name, kind, law), rows in table.groupby(["set", "loss on", "law"], sort=False):
        errors, half = rows["error"].abs(), rows["half_width"].mean()
        shown = (f"{errors.mean():.2f}%", f"{errors.quantile(0.9):.1f}%", f"{half:.1f}%", rows["inside"].sum())
        lines.append((name, kind, law.replace(",", " and "), len(rows), *shown))
    heads = ("set", "loss on", "laws", "losses", "mean error", "90% of errors within", "half-width", "inside")
    print(markdown(heads, lines))


if __name__ == "__main__":
    main(*sys.argv[1:])
