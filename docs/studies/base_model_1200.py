"""Are runs of 1,200 steps of a real base model what runs of 40 and of 120 steps predict? docs/results/base-model-1200.

    python -m docs.studies.base_model_1200             # the tables of the page, from predicted.csv
    python -m docs.studies.base_model_1200 predict     # predicted.csv again, in two minutes
    python -m docs.studies.base_model_1200 designs     # which runs for the fit tell most, in twenty minutes

Predictions of each domain are those of `cptlaw predict`: by its own short runs alone, and with the losses on general
of the long runs on the other three domains (`general_from`).
"""

import itertools
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from docs.studies.long_runs import judged
from pipeline.goals.ratio.answering_laws import answering_laws
from pipeline.goals.registry import goal_of
from pipeline.question.loading import question_of_study
from pipeline.study.context import context_of
from training.durable import as_counted_lines, read_lines_whole

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


def designs() -> Iterator[str]:
    """A row of a table for each of `DESIGNS`: how well it tells the long runs by both open laws."""
    yield "| runs for the fit | with other domains | loss on | mean error | largest | near | inside | half-width |"
    yield "|---" * 8 + "|"
    for runs, earlier in itertools.product(DESIGNS, (False, True)):
        rows = []
        with tempfile.TemporaryDirectory() as folder:
            for domain in RATIOS:
                others = ",".join(str(RESULTS / f"{other}-1200") for other in RATIOS if other != domain)
                some_runs(study := Path(folder) / domain, domain, runs)
                words = ["law=[transfer-open-saturating,transfer-open]"] + [f"general_from=[{others}]"] * earlier
                context = context_of(question_of_study(study, words))
                goal_of(context.question).fit(context, lambda _: None)
                laws, target = answering_laws(context.fresh()), context.fresh().target
                for end in ends_of(domain).itertuples():
                    loss, low, high = laws.loss(target, end.corpus, end.domain_ratio)
                    before = target.before[end.corpus]
                    told = {"before": before, "predicted": loss, "low": low, "high": high, "measured": end.measured}
                    rows.append({"corpus": end.corpus, **told})
        name = " and ".join(f"{steps} at {ratio:g}" for steps, ratio in runs)
        for corpus, of in judged(pd.DataFrame(rows)).groupby("corpus", sort=False):
            half, error = (of["high"] / of["predicted"] - 1).mean(), of["error"].abs()
            cells = [name, "yes" if earlier else "", corpus, f"{error.mean():.1%}", f"{error.max():.0%}"]
            yield f"| {' | '.join(map(str, [*cells, of['near'].sum(), of['inside'].sum(), f'{half:.0%}']))} |"


def ends_of(domain: str) -> pd.DataFrame:
    """The last losses of a domain's long runs."""
    points = pd.read_parquet(RESULTS / f"{domain}-1200" / "points.parquet")
    ends = points[points["step"] == points.groupby("run")["step"].transform("max")].assign(domain=domain)
    return ends.rename(columns={"ratio": "domain_ratio", "loss": "measured"})[[*KEYS, "step", "measured"]]


def verdict() -> pd.DataFrame:
    """A row a prediction: the last loss that was measured, the error, and whether it was near and inside."""
    ends = pd.concat([ends_of(domain) for domain in RATIOS])
    return judged(pd.read_csv(RESULTS / "predicted.csv").merge(ends, on=KEYS, validate="many_to_one"))


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
    for line in designs() if "designs" in sys.argv else page(verdict()):
        print(line, flush=True)
