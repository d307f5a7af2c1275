"""What the D-CPT paper's tables are made from: a study's continual points, by domain and corpus."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fitting import PointsError
from fitting.solver.newton import huber
from fitting.solver.problem import DELTA
from pipeline.paper_tables.table import Reading, Source
from pipeline.question.goal import goal_of
from pipeline.question.schema import Question

CORPORA = ("G", "D")
"""As the paper writes general and domain."""
METRICS = ("huber", "r2")


@dataclass(frozen=True, eq=False)
class Material:
    """The points of a study that the tables read."""

    points: pd.DataFrame
    """Points of continual runs planned for the fit, step 0 included, as `pipeline.study.collect` gives them."""
    general: str
    """Name of the general corpus."""
    domains: tuple[str, ...]
    """Names of the domains."""
    from_step: int = 1
    """First step that is fitted."""
    min_ratio: float = 0.0
    """Least share of the corpus in the mixture whose runs are fitted."""
    log: Callable[[str], object] = lambda line: None
    """Is given a line for each thing done."""

    def measured(self, domain: str, corpus: str) -> pd.DataFrame:
        """All points on a corpus (G or D) of the runs that read no other domain; runs on general alone are every
        domain's."""
        others = [f"mixture.{other}" for other in self.domains if other != domain]
        elsewhere = (self.points.reindex(columns=others).fillna(0.0) > 0.0).any(axis=1)
        name = self.general if corpus == "G" else domain
        return self.points[~elsewhere & (self.points["corpus"] == name)]

    def fitted(self, domain: str, corpus: str) -> pd.DataFrame:
        """The points that a law is fitted to, at the steps that all of these runs were evaluated at."""
        own = self.measured(domain, corpus)
        own = own[(own["step"] >= max(self.from_step, 1)) & (own["r"] >= self.min_ratio)]
        everywhere = own.groupby("step")["run"].nunique() == own["run"].nunique()
        return own[own["step"].map(everywhere).astype(bool)].reset_index(drop=True)


def material_of(points: pd.DataFrame, question: Question, log: Callable[[str], object] = lambda line: None) -> Material:
    """What the tables read of a study's points: continual runs planned for the fit."""
    corpora, asked = question.corpora, question.tables
    domains = tuple(corpora.domains or [corpora.domain])
    chosen = points[(points["phase"] == "continual") & (points["role"] == "fit")]
    return Material(chosen, corpora.general, domains, asked.from_step, asked.min_ratio, log)


def _read(source: Source) -> Material:
    return material_of(source.points, source.question, source.log)


def _has_sizes(question: Question) -> bool:
    sizes = {*question.ladder, question.model.name}
    return not goal_of(question).many_domains and not question.variants and len(sizes) > 1


def _said(source: Source) -> str:
    points, asked = source.points, source.question.tables
    return (
        f"{len(points):,} points of {points['run'].nunique()} runs. Fitted: points from step {asked.from_step} on, of "
        f"runs with {asked.min_ratio:g} or more of the corpus that is predicted."
    )


SIX = Reading("dcpt-six-small", _has_sizes, _read, _said, otherwise="dcpt-six-installed")
"""Points of several domains, each beside a general corpus."""


def scores(measured: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """Metric -> value: R2 of the losses (n,), nats a token, and the summed Huber loss of their logarithms, delta 1e-3.

    >>> scores(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0]))
    {'huber': 0.0, 'r2': 1.0}
    """
    missed, spread = measured - predicted, measured - measured.mean()
    summed = float(huber(np.log(predicted) - np.log(measured), DELTA).sum())
    return {"huber": summed, "r2": float(1 - missed @ missed / (spread @ spread))}


def assembled(jobs: Sequence[tuple], found: Sequence[dict[str, float] | str], names: Sequence[str]) -> pd.DataFrame:
    """A row a job and metric: the job's parts under their names, metric, value; attrs["note"] says what has none.

    Args:
        jobs: what was tried.
        found: of each, its scores, or why it has none.
        names: of the parts of a job.

    Raises:
        PointsError: nothing has scores.
    """
    pairs = list(zip(jobs, found, strict=True))
    rows = [(*job, *item) for job, own in pairs if isinstance(own, dict) for item in own.items()]
    reasons: dict[str, list[str]] = {}
    for job, own in pairs:
        if isinstance(own, str):
            reasons.setdefault(own, []).append(" ".join(map(str, job)))
    if not rows:
        raise PointsError(next(iter(reasons)))
    table = pd.DataFrame(rows, columns=[*names, "metric", "value"])
    table.attrs["note"] = " ".join(f"No number for {', '.join(none)}: {reason}." for reason, none in reasons.items())
    return table


def mean_scores(judged: pd.DataFrame) -> dict[str, float]:
    """Metric -> mean over the folds, of rows as `fitting.held_out` gives them."""
    folds = [scores(*own[["measured", "predicted"]].to_numpy(float).T) for _, own in judged.groupby("split")]
    return {metric: float(np.mean([fold[metric] for fold in folds])) for metric in METRICS}
