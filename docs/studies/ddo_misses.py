"""Why are the losses at the target missed that DDO's curves predict? A row for each mixture that was compared.

    python -m docs.studies.ddo_misses docs/results/autoscale-mix
    python -m docs.studies.ddo_misses docs/results/joint-domains.csv

The curves of the largest scale at the target, for equal weights and for those of every method. The miss of equal
weights, the base of the curves, is that of length alone. What is beside it grows with the predicted gain over equal
weights if the gains of single domains, which the curves add up, overlap. A .csv has runs that tell: by how much the
loss falls with three times the tokens of one domain, of another, and of both.
"""

import sys
from pathlib import Path

import pandas as pd
from scipy.stats import sem, spearmanr, t

from pipeline.goals.weights.artifacts import DesignFit, WeightsConfirmation, WeightsRecommendation
from pipeline.study.folder import Study


def predicted(design: DesignFit, tokens: dict[str, float]) -> float:
    """The average loss by the curves of a design, as `fitting.mixtures.ddo.DDO.loss_at`."""
    change = 0.0
    for name, curve in design.coefficients.items():
        x = tokens[name] / (design.base[name] * design.tokens)
        change += (x + curve.a) ** -curve.b - (1 + curve.a) ** -curve.b
    return design.base_value * (1 + change)


def misses(study: Study) -> pd.DataFrame:
    """Columns gain (predicted, over equal weights), predicted, measured, miss (relative); by gain.

    Mixtures without a domain are left out: below a third of its tokens nothing was run.
    """
    comparison = WeightsConfirmation.read(study)
    design = WeightsRecommendation.read(study).proposals[0].details.designs[-1]
    rows = {}
    for row in comparison.methods:
        if min(row.weights[name] for name in design.base) <= 0:
            continue
        tokens = {name: weight * comparison.target.tokens for name, weight in row.weights.items()}
        rows[row.method] = (expected := predicted(design, tokens), row.value, expected / row.value - 1)
    table = pd.DataFrame.from_dict(rows, "index", columns=["predicted", "measured", "miss"])
    table.insert(0, "gain", table.loc["uniform", "predicted"] - table["predicted"])
    return table.sort_values("gain")


def overlap(runs: pd.DataFrame) -> tuple[float, float, float, float]:
    """Sum of the falls by each domain alone; what the fall by both lacks of it, and its 90% interval over the seeds."""
    loss = runs.pivot(index="seed", columns=["web", "code"], values="loss")
    base, web, code, both = (loss[key].to_numpy() for key in ((1, 1), (3, 1), (1, 3), (3, 3)))
    falls = (base - web) + (base - code)
    lacking = falls - (base - both)
    mean, side = lacking.mean(), sem(lacking) * t.ppf(0.95, len(lacking) - 1)
    return float(falls.mean()), float(mean), float(mean - side), float(mean + side)


def main(path: str) -> None:
    """Print the misses of a study, or the overlap of the runs of a .csv."""
    if path.endswith(".csv"):
        falls, mean, low, high = overlap(pd.read_csv(path))
        print(f"{path}: sum of the falls {falls:.4f}; both fall by {mean:.4f} ({low:.4f} to {high:.4f}) less")
        print(f"{mean / falls:.1%} of the sum")
        return
    table = misses(Study(Path(path)))
    found = spearmanr(table["gain"], table["miss"])
    print(f"{path}\n{table.to_markdown(floatfmt=('', '.3f', '.4f', '.4f', '+.2%'))}")
    print(f"rank correlation of miss and gain {found.statistic:.2f} (p = {found.pvalue:.2g})")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        main(argument)
