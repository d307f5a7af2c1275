"""Are runs of 1,200 steps of a real base model what runs of 40 and of 120 steps predict? docs/results/base-model-1200.

    python -m docs.studies.base_model_1200             # the tables of the page, from predicted.csv
    python -m docs.studies.base_model_1200 predict     # predicted.csv again, in two minutes
    python -m docs.studies.base_model_1200 designs     # which runs for the fit tell most, in twenty minutes

Predictions of each domain are those of `cptlaw predict`: by its own short runs alone, and with the losses on general
of the long runs on the other three domains (`general_from`).
"""

import shutil
import sys
import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from docs.studies.law_errors import RESULTS as KEPT
from docs.studies.law_errors import markdown
from docs.studies.verdicts import judged, long_ends, predicted
from training.durable import as_counted_lines, read_lines_whole

RESULTS = KEPT / "base-model-1200"
DOMAINS = ("law", "headers", "medical", "music")
LENGTHS = (40, 120)
"""Steps of the runs for the fit."""
KEYS = ["domain", "domain_ratio", "corpus"]
ASKED = (("law", 0.992), ("law", 0.842), ("headers", 0.912), ("headers", 0.762))
"""Domain and ratio of the runs that a bar of the registration is about."""
DESIGNS: tuple[tuple[tuple[int, float], ...], ...] = (
    ((40, 0.1), (40, 0.5), (40, 0.9)),
    ((120, 0.9), (40, 0.1)),
    ((120, 0.5), (40, 0.1)),
    ((120, 0.9), (40, 0.5)),
    ((120, 0.5), (40, 0.9)),
    ((120, 0.1), (40, 0.9)),
    ((120, 0.1), (40, 0.5)),
    ((120, 0.5), (40, 0.1), (40, 0.9)),
    ((120, 0.9), (40, 0.1), (40, 0.5)),
    ((120, 0.9), (120, 0.1)),
    ((120, 0.1), (120, 0.5), (120, 0.9)),
)
"""Steps and domain ratio of runs for the fit."""


def ends_of(domain: str) -> pd.DataFrame:
    """The last losses of a domain's long runs."""
    ends = long_ends(RESULTS / f"{domain}-1200").sort_values(KEYS[1:], ascending=False)
    return ends.assign(domain=domain)


def earlier_words(domain: str, earlier: bool) -> list[str]:
    """The words of a question that takes the loss on general from the long runs on other domains."""
    others = ",".join(str(RESULTS / f"{other}-1200") for other in DOMAINS if other != domain)
    return [f"general_from=[{others}]"] * earlier


def predictions() -> pd.DataFrame:
    """A row a prediction, with whether the long runs on other domains counted (`earlier`)."""
    tables = []
    for steps, earlier, domain in product(LENGTHS, (False, True), DOMAINS):
        table = predicted(RESULTS / f"{domain}-{steps}", ends_of(domain), earlier_words(domain, earlier))
        tables.append(table.assign(of_steps=steps, earlier=earlier))
    return pd.concat(tables)[["of_steps", "earlier", *KEYS, "before", "predicted", "low", "high"]].round(5)


def some_runs(study: Path, domain: str, runs: Sequence[tuple[int, float]]) -> None:
    """A study of some of the kept runs of a domain."""
    shutil.copytree(RESULTS / f"{domain}-{LENGTHS[-1]}", study)
    points, plan = [], []
    for steps, ratio in runs:
        kept = RESULTS / f"{domain}-{steps}"
        table = pq.read_table(kept / "points.parquet")
        points.append(table.filter(pc.equal(table["ratio"], ratio)))
        names = {*points[-1]["run"].to_pylist()}
        plan += [line for line in read_lines_whole(kept / "plan.jsonl") if line["run"] in names]
    pq.write_table(
        pa.concat_tables(points).replace_schema_metadata(points[0].schema.metadata), study / "points.parquet"
    )
    (study / "plan.jsonl").write_text(as_counted_lines(plan))


def designs() -> str:
    """A table with rows for each of `DESIGNS`: how well it tells the long runs by both open laws."""
    lines = []
    for runs, earlier in product(DESIGNS, (False, True)):
        tables = []
        with tempfile.TemporaryDirectory() as folder:
            for domain in DOMAINS:
                some_runs(study := Path(folder) / domain, domain, runs)
                words = ["law=[transfer-open-saturating,transfer-open]", *earlier_words(domain, earlier)]
                tables.append(predicted(study, ends_of(domain), words))
        name = " and ".join(f"{steps} at {ratio:g}" for steps, ratio in runs)
        for corpus, of_loss in pd.concat(tables).groupby("corpus", sort=False):
            errors, half = of_loss["error"].abs(), of_loss["half_width"].mean()
            shown = (f"{errors.mean():.1%}", f"{errors.max():.0%}", of_loss["near"].sum(), of_loss["inside"].sum())
            lines.append((name, "yes" if earlier else "", corpus, *shown, f"{half:.0%}"))
    heads = ("runs for the fit", "with other domains", "loss on", "mean error", "largest", "near", "inside")
    return markdown((*heads, "half-width"), lines)


def verdict() -> pd.DataFrame:
    """A row a prediction: the last loss that was measured, the error, and whether it was near and inside."""
    ends = pd.concat([ends_of(domain) for domain in DOMAINS])[[*KEYS, "step", "measured"]]
    table = pd.read_csv(RESULTS / "predicted.csv").sort_values(["earlier", "of_steps"], kind="stable")
    return judged(table.merge(ends, on=KEYS, validate="many_to_one"))


def page(table: pd.DataFrame) -> str:
    """The tables of the page: errors of each loss, and of each way."""
    others = table["earlier"].map({True: ", other domains", False: ""})
    table["way"] = "by " + table["of_steps"].astype(str) + " steps" + others
    table["asked"] = table["near"] & table.set_index(KEYS[:2]).index.isin(ASKED)
    lines = []
    for (domain, ratio, corpus), rows in table.groupby(KEYS, sort=False):
        first, words = rows.iloc[0], []
        for row in rows.itertuples():
            said = ", near" * row.near + ", out" * (not row.inside)
            words.append(f"{row.error:+.1%}{said} ({row.half_width:.1%})")
        losses = (f"{first['before']:.3f}", f"{first['measured']:.3f}", first["step"])
        lines.append((domain, f"{ratio:g}", corpus, *losses, *words))
    heads = ("domain", "domain ratio", "loss on", "before", "measured", "at step", *table["way"].unique())
    of_each, lines = markdown(heads, lines), []
    for (way, corpus), rows in table.groupby(["way", "corpus"], sort=False):
        near = (f"{rows['near'].sum()} of {len(rows)}", rows["asked"].sum(), rows["inside"].sum())
        lines.append((way, corpus, f"{rows['error'].abs().mean():.1%}", *near, f"{rows['half_width'].mean():.1%}"))
    heads = ("runs for the fit", "loss on", "mean error", "near", "of the 4 asked", "inside", "interval, upper side")
    return f"{of_each}\n\n{markdown(heads, lines)}"


def main(part: str = "") -> None:
    """Print the tables of the page, or that of the designs; with `predict` make the predictions again."""
    if part == "predict":
        predictions().to_csv(RESULTS / "predicted.csv", index=False)
    print(designs() if part == "designs" else page(verdict()))


if __name__ == "__main__":
    main(*sys.argv[1:])
