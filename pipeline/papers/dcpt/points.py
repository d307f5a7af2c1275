"""The input of the D-CPT paper's tables: a study's continual points, by domain and corpus."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fitting import PointsError
from fitting.solver.objective import huber
from fitting.solver.problem import DELTA
from pipeline.papers.table import PaperStudy, StudyReader
from pipeline.question.presets import ladder_names
from pipeline.question.schema import Question

CORPORA = ("G", "D")
"""The paper's letters for the general corpus and the domain."""
METRICS = ("huber", "r2")
Scores = dict[str, float]
"""Metric -> value."""


@dataclass(frozen=True, eq=False)
class DomainPoints:
    """The points that the tables read."""

    points: pd.DataFrame
    """Points of the continual runs of role fit, step 0 included, as `pipeline.study.collect` gives them."""
    general: str
    domains: tuple[str, ...]
    from_step: int = 1
    """First step that is fitted."""
    min_ratio: float = 0.0
    """Runs with a smaller ratio of the validation corpus are not fitted."""
    log: Callable[[str], object] = lambda line: None

    def measured(self, domain: str, corpus: str) -> pd.DataFrame:
        """All points on a corpus (G or D) of runs on no other domain; those on general alone are every domain's."""
        others = [f"mixture.{other}" for other in self.domains if other != domain]
        elsewhere = (self.points.reindex(columns=others).fillna(0.0) > 0.0).any(axis=1)
        name = self.general if corpus == "G" else domain
        return self.points[~elsewhere & (self.points["corpus"] == name)]

    def fitted(self, domain: str, corpus: str) -> pd.DataFrame:
        """The points that a law is fitted to, at the steps at which all of these runs that got there were evaluated."""
        points = self.measured(domain, corpus)
        points = points[(points["step"] >= max(self.from_step, 1)) & (points["r"] >= self.min_ratio)]
        runs_at, ends = points.groupby("step")["run"].nunique(), np.sort(points.groupby("run")["step"].max())
        common = runs_at.index[runs_at == len(ends) - np.searchsorted(ends, runs_at.index)]
        return points[points["step"].isin(common)].reset_index(drop=True)


def _has_sizes(question: Question) -> bool:
    sizes = {*ladder_names(question), question.model.name}
    return not question.goal_kind.many_domains and not question.variants and len(sizes) > 1


def read_domain_points(source: PaperStudy) -> DomainPoints:
    """The points of a study that the tables read."""
    points, corpora, settings = source.points, source.question.corpora, source.question.tables
    domains = tuple(corpora.domains or [corpora.domain])
    continual = points[(points["phase"] == "continual") & (points["role"] == "fit")]
    return DomainPoints(continual, corpora.general, domains, settings.from_step, settings.min_ratio, source.log)


def _summary(source: PaperStudy) -> str:
    points, settings = source.points, source.question.tables
    return (
        f"{len(points):,} points of {points['run'].nunique()} runs. Fitted: points from step {settings.from_step} on, "
        f"of runs with a ratio of {settings.min_ratio:g} or more of the corpus that is predicted."
    )


READING = StudyReader("dcpt-six-annealed", _has_sizes, read_domain_points, _summary, fallback="dcpt-six-installed")
"""Points of several domains, each beside a general corpus."""


def at_ratio(points: pd.DataFrame, ratio: float) -> pd.DataFrame:
    """The points of the one measured ratio r that is nearest to a given one."""
    return points[points["r"] == min(points["r"].unique(), key=lambda r: abs(r - ratio), default=np.nan)]


def scores(measured: np.ndarray, predicted: np.ndarray) -> Scores:
    """R2 of the losses (n,), nats per token, and the summed Huber loss of their logarithms, delta 1e-3.

    >>> scores(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0]))
    {'huber': 0.0, 'r2': 1.0}
    """
    residuals, deviations = measured - predicted, measured - measured.mean()
    total = float(huber(np.log(predicted) - np.log(measured), DELTA).sum())
    return {"huber": total, "r2": float(1 - residuals @ residuals / (deviations @ deviations))}


def mean_scores(held_out: pd.DataFrame) -> Scores:
    """The mean over the folds of rows as `fitting.held_out` gives them."""
    folds = [scores(*fold[["measured", "predicted"]].to_numpy(float).T) for _, fold in held_out.groupby("split")]
    return {metric: float(np.mean([fold[metric] for fold in folds])) for metric in METRICS}


def score_table(
    jobs: Sequence[tuple], results: Iterable[Scores | str], names: Sequence[str], note: str = ""
) -> pd.DataFrame:
    """A row per job and metric: the parts of the job under their names, metric, value.

    A result is the scores of a job, or why it has none, which attrs["note"] lists behind the given note; PointsError
    where none has scores.
    """
    rows, errors = [], {}
    for job, result in zip(jobs, results, strict=True):
        if isinstance(result, str):
            errors.setdefault(result, []).append(" ".join(map(str, job)))
        else:
            rows += [(*job, *item) for item in result.items()]
    if not rows:
        raise PointsError(next(iter(errors)))
    table = pd.DataFrame(rows, columns=[*names, "metric", "value"])
    lacking = [f"No number for {', '.join(cells)}: {error}." for error, cells in errors.items()]
    table.attrs["note"] = " ".join(filter(None, [note, *lacking]))
    return table
