"""Tables 1, 6 and 7 of AutoScale, from a study of weights: down-stream scores, perplexities and saved steps."""

import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from fitting import PointsError
from pipeline.goals.weights.artifacts import WeightsConfirmation, WeightsRecommendation
from pipeline.papers.table import PaperStudy, PaperTable, StudyReader
from pipeline.papers.verdict import HOLDS, IN_ORDER, NOT_HERE, UNKNOWN
from training.durable import read_json

METHODS = {
    "AutoScale": "autoscale",
    "DoReMi": "doremi",
    "Data Mixing Laws": "data-mixing",
    "LLaMA": "given",
    "Uniform": "uniform",
}
"""How the paper's name of a method begins -> ours; weights that the question gives stand for LLaMA's."""
SCORES = ("acc", "pct_stereotype")
"""Metrics of lm-eval that are a task's score: the first that it has. The second is that of crows_pairs."""
MEANS = {"mean": "mean", "geometric": "exp of the mean loss", "worst": "worst domain"}
"""Ways to sum up perplexities. The paper's average is the arithmetic mean; the order may differ by the other."""


@dataclass(frozen=True, eq=False)
class Weighed:
    """Weights of every method, trained at the target."""

    comparison: WeightsConfirmation
    given: tuple[str, ...]
    """Methods whose weights the question gives, in the place of LLaMA's."""
    scores: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    """Method -> task -> score of each seed, as `cptlaw evaluate` left them; empty: none were evaluated."""
    search: tuple[WeightsRecommendation, pd.DataFrame] | None = None
    """The search for them, and the points of all runs; None: no figures."""

    def named(self, method: str) -> str:
        """A method's name in the tables."""
        return "given" if method in self.given[:1] else method

    @property
    def note(self) -> str:
        """Whose weights the given ones are."""
        return f"given: weights of the question ({self.given[0]}), in the place of LLaMA's." if self.given else ""


def scores(weighed: Weighed) -> pd.DataFrame:
    """Accuracy on down-stream tasks: method, task, value, the mean over the seeds (table 1)."""
    by_method = [(weighed.named(method), tasks) for method, tasks in weighed.scores.items()]
    rows = [(name, task, float(np.mean(values))) for name, tasks in by_method for task, values in tasks.items()]
    if not rows:
        raise PointsError("no down-stream task was evaluated: cptlaw evaluate STUDY evaluate.tasks=[next]")
    table = pd.DataFrame(rows, columns=["method", "task", "value"])
    mean = table.groupby("method", sort=False)["value"].mean().reset_index().assign(task="Avg")
    table = pd.concat([table, mean], ignore_index=True)
    table.attrs["note"] = weighed.note
    means = [np.mean([*tasks.values()], axis=0) for tasks in weighed.scores.values()]
    if min(map(len, means)) > 1:
        # Of a difference between two methods' means over the seeds.
        noise = float(np.sqrt(2 * np.mean([np.var(seeds, ddof=1) / len(seeds) for seeds in means])))
        apart = float(np.ptp([seeds.mean() for seeds in means]))
        table.attrs["note"] += f" Two methods' averages differ by {noise:.4f} by chance (standard error)."
        if apart < 2 * noise:
            why = f"The methods' averages lie within {apart:.4f}, less than twice the {noise:.4f} of chance."
            table.attrs["verdict"] = UNKNOWN, why
    return table


def perplexities(weighed: Weighed) -> pd.DataFrame:
    """Perplexity by method and domain, and summed up in three ways: domain, method, value (table 6)."""
    by_method = [(weighed.named(row.method), row.losses) for row in weighed.comparison.methods]
    rows = [(domain, name, math.exp(loss)) for name, losses in by_method for domain, loss in losses.items()]
    parts = pd.DataFrame(rows, columns=["domain", "method", "value"]).groupby("method", sort=False)
    table = pd.concat([_with_sums(of_method) for _, of_method in parts], ignore_index=True)
    table.attrs["note"] = f"Mean over {weighed.comparison.seeds} seeds. {weighed.note}".strip()
    return table


def steps_saved(weighed: Weighed) -> pd.DataFrame:
    """Steps that AutoScale saves relative to equal weights, in percent: scale, metric, value (table 7).

    Of `compare`: the target over the step at which the loss is what equal weights end with; 0 where it never is.
    """
    comparison = weighed.comparison
    row = next((row for row in comparison.methods if row.method == "autoscale"), None)
    if row is None or comparison.reference != "uniform":
        raise PointsError("autoscale and uniform are not both among the methods")
    speed = row.speed
    assert row.difference is not None
    saved = 100 * (1 - 1 / speed.speed_up) if speed.speed_up is not None else 0.0
    table = pd.DataFrame([(comparison.target.steps, "percent saved", saved)], columns=["scale", "metric", "value"])
    ends = [100 * (1 - 1 / end) for end in (speed.speed_up_low, speed.speed_up_high) if end]
    interval = ", 90% interval {:.1f} to {:.1f}".format(*ends) if len(ends) == 2 else ""
    table.attrs["note"] = (
        f"Here: {speed.reached} of {comparison.seeds} seeds reached the loss of equal weights within the "
        f"{comparison.target.steps:,} steps{interval}; mean loss {row.difference:+.4f} nats beside them."
    )
    if row.low is not None and row.high is not None and row.low < 0 < row.high:
        table.attrs["verdict"] = UNKNOWN, f"Its difference to equal weights ({row.difference:+.4f} nats) may be chance."
    return table


def judge_scores(cells: pd.DataFrame) -> tuple[str, str]:
    """Table 1: whether AutoScale has the best average."""
    return _best(cells[cells["task"] == "Avg"], "average score", lower=False)


def judge_perplexities(cells: pd.DataFrame) -> tuple[str, str]:
    """Table 6: whether AutoScale has the lowest mean perplexity; its place by two more sums."""
    verdict, why = _best(cells[cells["domain"] == MEANS["mean"]], "mean perplexity", lower=True)
    others = (_best(cells[cells["domain"] == MEANS[way]], MEANS[way], lower=True)[1] for way in ("geometric", "worst"))
    return verdict, " ".join(dict.fromkeys((why, *others)))


def judge_saved(cells: pd.DataFrame) -> tuple[str, str]:
    """Table 7: whether AutoScale saves steps."""
    paper, ours = (cells.loc[cells[side].notna(), side] for side in ("paper", "ours"))
    if paper.empty or ours.empty:
        return UNKNOWN, "The paper's numbers are missing." if paper.empty else "Nothing was measured here."
    why = f"It saves {paper.min():.1f}% to {paper.max():.1f}% of the steps in the paper, {ours.iloc[0]:.1f}% here."
    if ours.iloc[0] <= 0:
        return NOT_HERE, f"{why} Equal weights were not reached."
    return (HOLDS if ours.iloc[0] >= paper.min() else IN_ORDER), why


def _best(cells: pd.DataFrame, what: str, lower: bool) -> tuple[str, str]:
    sides = (cells.dropna(subset=[side]).sort_values(side, ascending=lower) for side in ("paper", "ours"))
    paper, ours = (rows["method"].tolist() for rows in sides)
    if not paper:
        return UNKNOWN, "The paper's numbers are missing."
    if "autoscale" not in ours:
        return UNKNOWN, "AutoScale's weights were not compared here."
    theirs, here = (methods.index("autoscale") + 1 for methods in (paper, ours))
    why = (
        f"By {what} AutoScale is number {theirs} of {len(paper)} in the paper (best: {paper[0]}), "
        f"{here} of {len(ours)} here (best: {ours[0]})."
    )
    if here > theirs:
        return NOT_HERE, why
    same_order = [name for name in paper if name in ours] == [name for name in ours if name in paper]
    return (HOLDS if same_order else IN_ORDER), why


def _with_sums(table: pd.DataFrame) -> pd.DataFrame:
    """The perplexities of domains by method, and those summed up by MEANS after them."""
    sums = [
        (way, method, value)
        for method, of in table.groupby("method", sort=False)["value"]
        for way, value in zip(MEANS.values(), (of.mean(), float(np.exp(np.log(of).mean())), of.max()), strict=True)
    ]
    return pd.concat([table, pd.DataFrame(sums, columns=table.columns)], ignore_index=True)


def _ours(rows: pd.DataFrame) -> pd.DataFrame:
    names = {name: ours for name in rows["method"] for begins, ours in METHODS.items() if name.startswith(begins)}
    return rows.replace({"method": names})


def _printed_perplexities(rows: pd.DataFrame) -> pd.DataFrame:
    domains = rows[~rows["domain"].isin(["Average", "Worst-domain"])]  # Averages of these same numbers.
    return _with_sums(_ours(domains)[["domain", "method", "value"]])


def _printed_saved(rows: pd.DataFrame) -> pd.DataFrame:
    rows = rows[rows["metric"] == "steps_saved"]
    steps = rows["data_scale_steps"].str.removesuffix("k").astype(int) * 1000
    return pd.DataFrame({"scale": steps, "metric": "percent saved", "value": 100 * rows["value"].astype(float) / steps})


def _read(source: PaperStudy) -> Weighed:
    comparison, results = WeightsConfirmation.read(source.study), {}
    for row in comparison.methods:
        for run in row.runs:
            for task, score in _of_last_step(source.study.runs / run / "tasks").items():
                results.setdefault(row.method, {}).setdefault(task, []).append(score)
    search = WeightsRecommendation.read(source.study), source.points
    return Weighed(comparison, tuple(source.question.weights.given), results, search)


def _of_last_step(folder: Path) -> dict[str, float]:
    """Task -> score, as `cptlaw evaluate` left them; of a task with several numbers of shots hellaswag_10shot, say."""
    files = {file: file.stem.split("-")[1:] for file in sorted(folder.glob("step-*.json"))}
    last = max((int(step) for step, *_ in files.values()), default=0)
    scored = list[tuple[str, str, float]]()
    for file, (step, *shots) in files.items():
        for task, metrics in (read_json(file)["results"] if int(step) == last else {}).items():
            scored += [(task, (shots or ["0"])[0], metrics[name]) for name in SCORES if name in metrics][:1]
    times = Counter(task for task, _, _ in scored)
    return {task if times[task] == 1 else f"{task}_{shots}shot": score for task, shots, score in scored}


def _summary(source: PaperStudy) -> str:
    target = WeightsConfirmation.read(source.study).target
    return f"Every method's weights were trained for {target.steps:,} steps, {target.tokens:,} tokens."


READING = StudyReader(
    *("autoscale-unequal", lambda question: question.goal_kind.many_domains, _read, _summary, ("recommend", "confirm")),
    fallback="autoscale-small",
)
"""The comparison of weights at the target."""
TABLES = {
    "autoscale-1": PaperTable(
        "Down-stream accuracy by method", "autoscale_table01_downstream_3B.csv", scores,
        ("method", "task"), "weights", ("task",), prints=_ours, judge=judge_scores),
    "autoscale-6": PaperTable(
        "Perplexity of each domain by method", "autoscale_table06_domain_perplexity_3B.csv", perplexities,
        ("domain", "method"), "weights", ("method",), prints=_printed_perplexities, judge=judge_perplexities),
    "autoscale-7": PaperTable(
        "Steps that AutoScale saves relative to equal weights", "autoscale_table07_bert_steps_saved.csv", steps_saved,
        ("scale", "metric"), "weights", ("metric",), prints=_printed_saved,
        columns=("data_scale_steps", "metric", "value"), judge=judge_saved),
}  # fmt: skip
