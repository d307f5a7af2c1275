"""Are runs of 1,200 steps of a real base model what runs of 40 and of 120 steps predict? docs/results/base-model-1200.

    python -m docs.studies.base_model_1200             # the tables of the page, from predicted.csv
    python -m docs.studies.base_model_1200 predict     # predicted.csv again, in two minutes

Predictions of each domain are those of `cptlaw predict`: by its own short runs alone, and with the losses on general
of the long runs on the other three domains (`general_from`).
"""

import shutil
import sys
import tempfile
from pathlib import Path

import pandas as pd

from docs.studies.long_runs import judged
from pipeline.goals.ratio.answering_laws import answering_laws
from pipeline.goals.registry import goal_of
from pipeline.question.loading import question_of_study
from pipeline.study.context import context_of

RESULTS = Path(__file__).parents[1] / "results" / "base-model-1200"
RATIOS = {"law": (0.992, 0.842, 0.5), "headers": (0.912, 0.762, 0.5), "medical": (0.95, 0.5), "music": (0.95, 0.5)}
"""Domain -> domain ratios of its long runs."""
LENGTHS = (40, 120)
"""Steps of the runs for the fit."""
KEYS = ["domain", "domain_ratio", "corpus"]
ASKED = {("law", 0.992), ("law", 0.842), ("headers", 0.912), ("headers", 0.762)}
"""Domain and ratio of the runs that a bar of the registration is about."""


def predictions() -> pd.DataFrame:
    """A row a prediction, with whether the long runs on other domains counted (`earlier`)."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        studies = Path(folder) / "studies"
        shutil.copytree(RESULTS, studies)
        for steps in LENGTHS:
            for earlier in (False, True):
                for domain, ratios in RATIOS.items():
                    others = [str(studies / f"{other}-1200") for other in RATIOS if other != domain]
                    words = [f"general_from=[{','.join(others)}]"] if earlier else []
                    context = context_of(question_of_study(studies / f"{domain}-{steps}", words))
                    goal_of(context.question).fit(context, lambda _: None)
                    laws = answering_laws(context.fresh())
                    target = context.fresh().target
                    for ratio in ratios:
                        for corpus in laws.corpora:
                            loss, low, high = (round(number, 5) for number in laws.loss(target, corpus, ratio))
                            of_run = {"of_steps": steps, "earlier": earlier, "domain": domain, "domain_ratio": ratio}
                            of_loss = {"before": round(target.before[corpus], 5), "predicted": loss}
                            rows.append({**of_run, "corpus": corpus, **of_loss, "low": low, "high": high})
    return pd.DataFrame(rows)


def verdict() -> pd.DataFrame:
    """A row a prediction: the last loss that was measured, the error, and whether it was near and inside."""
    tables = [pd.read_parquet(RESULTS / f"{name}-1200" / "points.parquet").assign(domain=name) for name in RATIOS]
    long, table = pd.concat(tables), pd.read_csv(RESULTS / "predicted.csv")
    ends = long[long["step"] == long.groupby(["domain", "run"])["step"].transform("max")]
    ends = ends.rename(columns={"ratio": "domain_ratio", "loss": "measured"})[[*KEYS, "step", "measured"]]
    return judged(table.merge(ends, on=KEYS, validate="many_to_one"))


def page(table: pd.DataFrame) -> list[str]:
    """The tables of the page: errors of each loss, and of each way."""
    ways = [(steps, earlier) for earlier in (False, True) for steps in LENGTHS]
    names = [f"by {steps} steps{', other domains' if earlier else ''}" for steps, earlier in ways]
    lines = [f"| domain | domain ratio | loss on | before | measured | at step | {' | '.join(names)} |"]
    lines.append("|---" * (6 + len(ways)) + "|")
    for (domain, ratio, corpus), rows in table.groupby(KEYS, sort=False):
        first = rows.iloc[0]
        cells = [
            domain,
            f"{ratio:g}",
            corpus,
            *(f"{first[name]:.3f}" for name in ("before", "measured")),
            first["step"],
        ]
        for steps, earlier in ways:
            row = rows[(rows["of_steps"] == steps) & (rows["earlier"] == earlier)].iloc[0]
            half = row["high"] / row["predicted"] - 1
            cells.append(
                f"{row['error']:+.1%}{', near' * bool(row['near'])}{', out' * (not row['inside'])} ({half:.1%})"
            )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    lines += ["", "| runs for the fit | loss on | mean error | near | of the 4 asked | inside | interval, upper side |"]
    lines.append("|---" * 7 + "|")
    for (steps, earlier), name in zip(ways, names, strict=True):
        of_way = table[(table["of_steps"] == steps) & (table["earlier"] == earlier)]
        for corpus, rows in of_way.groupby("corpus", sort=False):
            asked = rows[[pair in ASKED for pair in zip(rows["domain"], rows["domain_ratio"], strict=True)]]
            width = (rows["high"] / rows["predicted"] - 1).mean()
            cells = [name, corpus, f"{rows['error'].abs().mean():.1%}", f"{rows['near'].sum()} of {len(rows)}"]
            cells += [str(asked["near"].sum()), str(rows["inside"].sum()), f"{width:.1%}"]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    if "predict" in sys.argv:
        predictions().to_csv(RESULTS / "predicted.csv", index=False)
    print("\n".join(page(verdict())))
