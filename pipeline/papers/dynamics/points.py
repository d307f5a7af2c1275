"""The input of the learning-dynamics paper's tables: points of both phases, and the learning rates of every run."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fitting import Fit, PointsError, fit
from fitting.parallel import over_cores
from fitting.schedule import Schedules
from pipeline.papers.table import PaperStudy, StudyReader
from pipeline.plan.runs import estimate, planned_runs
from pipeline.study.collect import schedules
from pipeline.study.fitted_points import EARLY
from pipeline.study.folder import PlannedRun, StudyError

CORPORA = ("D_pt", "D_cpt")
"""The paper's names of the corpus of pre-training and of continual pre-training."""
PAPERS_LAMBDA = 0.999


@dataclass(frozen=True, eq=False)
class ScheduleStudy:
    """A study with several schedules."""

    points: pd.DataFrame
    """Points of all runs, as `pipeline.study.collect` gives them."""
    plan: Mapping[str, PlannedRun]
    """Name -> run."""
    schedules: Schedules
    """Name -> learning rates."""
    corpora: Mapping[str, str]
    """Name in CORPORA -> name in the study."""
    from_step: int = 1
    """First step of continual runs that is fitted."""
    cache: dict[FitRequest, Fit | str] = field(default_factory=dict)
    """Finished fits, or the reason why there is none."""

    @functools.cached_property
    def runs(self) -> pd.DataFrame:
        """A row per continual run with points.

        Columns: run, variant, role, seed, model, ratio (of the domain), parent (run, '' for an open model), transfer
        (steps of the parent), potential (the parent's last rate over its peak), peak, rewarmed (whether the rate rises
        or jumps at the start), pieces (equal for equal schedules) and form (equal up to the peak).
        """
        by_hash = {run.spec.hash: run for run in self.plan.values()}
        rows = []
        for name in self.points.loc[self.points["phase"] == "continual", "run"].unique():
            run, schedule = self.plan[name], self.schedules[name]
            if run.role == "confirm" and not run.variant:
                continue  # Of the study's own answer: no table asks for it, and it may be as a held-out run is.
            spec, past = run.spec, schedule.pretrain
            peak, first = float(schedule.rates.max()), spec.schedule[0]
            rows.append({
                "run": name, "variant": run.variant, "role": run.role, "seed": spec.seed, "model": run.model,
                # Exact until here, as in pipeline.study.collect.
                "ratio": float(1 - Fraction(spec.mixture.get(self.corpora["D_pt"], "0"))),
                "parent": by_hash[run.parent].name if run.parent else "",
                "transfer": spec.initial.step, "potential": schedule.before / past.max() if past is not None else 0.0,
                "peak": peak, "rewarmed": first.start is not None or peak > schedule.before * (1 + 1e-9),
                "pieces": str((spec.schedule, spec.steps)),
                "form": str(([(p.shape, p.steps, p.share, p.power) for p in spec.schedule], spec.steps)),
            })  # fmt: skip
        if not rows:
            raise PointsError("no continual run has points yet")
        return pd.DataFrame(rows)

    @functools.cached_property
    def models(self) -> list[str]:
        """Names of the models, the smallest first."""
        size = self.points.groupby("model")["N"].first()
        return [str(name) for name in size.sort_values().index if name in set(self.runs["model"])]

    def fitted_runs(self, model: str | None = None, ratio: float | None = None) -> pd.DataFrame:
        """The rows of `runs` of role fit, of a model and at a domain ratio."""
        runs = self.runs[self.runs["role"] == "fit"]
        runs = runs if model is None else runs[runs["model"] == model]
        return runs if ratio is None else runs[np.isclose(runs["ratio"], ratio)]

    def on(self, corpus: str, runs: pd.DataFrame, pretraining: bool = True) -> pd.DataFrame:
        """Points on a corpus of CORPORA of some rows of `runs`, and of their pre-training."""
        points = self.points[self.points["corpus"] == self.corpora[corpus]]
        after = points[points["run"].isin(runs["run"]) & (points["step"] >= max(self.from_step, 1))]
        if not pretraining:
            return after.reset_index(drop=True)
        before = points[points["run"].isin(runs["parent"])]
        before = before[before["step"] >= EARLY * before["run"].map(self.steps).astype(float)]
        return pd.concat([before, after], ignore_index=True)

    def steps(self, run: str) -> int:
        """Length of a run."""
        return self.plan[run].spec.steps

    def at_end(self, corpus: str, runs: pd.DataFrame) -> pd.DataFrame:
        """The point of each of some rows of `runs` on a corpus at its last step, by the run."""
        points = self.on(corpus, runs, pretraining=False)
        return points[points["step"] == points["run"].map(self.steps)].set_index("run", drop=False)

    def curve(self, corpus: str, run: str) -> pd.DataFrame:
        """step and loss of a continual run from step 0 on."""
        points = self.points[(self.points["run"] == run) & (self.points["corpus"] == self.corpora[corpus])]
        return points.sort_values("step")[["step", "loss"]]


class FitRequest(NamedTuple):
    """A fit that a table needs, of a law to a corpus of CORPORA; None: all models, all domain ratios."""

    law: str
    corpus: str
    model: str | None = None
    ratio: float | None = None
    decay: float | None = None
    """lambda; None: it is fitted."""


def fits(study: ScheduleStudy, requests: Iterable[FitRequest]) -> list[Fit | str]:
    """The requested fits, or the reason why there is none; each is made once for all tables, on all cores."""
    requests = list(requests)
    new = [request for request in dict.fromkeys(requests) if request not in study.cache]
    study.cache.update(zip(new, over_cores(functools.partial(_attempt, study), new), strict=True))
    return [study.cache[request] for request in requests]


def fitted(study: ScheduleStudy, request: FitRequest) -> Fit:
    """One of `fits`; PointsError where there is none."""
    (result,) = fits(study, [request])
    if isinstance(result, str):
        raise PointsError(result)
    return result


def fit_to(study: ScheduleStudy, points: pd.DataFrame, law: str, **options: Any) -> Fit:
    """A law fitted to points of the study; options as in `fitting.fit`."""
    return fit(points, law, schedules=study.schedules, bootstrap=0, **options)


def _attempt(study: ScheduleStudy, request: FitRequest) -> Fit | str:
    law, corpus, model, ratio, decay = request
    points = study.on(corpus, study.fitted_runs(model, ratio), pretraining=law.startswith("dynamics"))
    try:
        # Its problem holds functions, which cannot be sent between processes.
        fix = {} if decay is None else {"lambda": decay}
        return dataclasses.replace(fit_to(study, points, law, fix=fix), optimum=None)
    except PointsError as reason:
        return str(reason)


def relative_error(measured: pd.Series, losses: np.ndarray) -> float:
    """Mean of the absolute relative errors."""
    return float(np.abs(losses / measured.to_numpy(float) - 1).mean())


def _read(source: PaperStudy) -> ScheduleStudy:
    question, points = source.question, source.points
    has_plan = source.study.plan_file.exists() and not question.tables.points
    plan = source.study.read_plan() if has_plan else planned_runs(estimate(question))
    rates = schedules(plan)

    def key(variant: str, name: str) -> tuple[str, str]:
        # Without their corpora runs have other hashes; variant and the rest of the name identify them.
        return variant, name if has_plan else name[:-9]

    variant = points["variant"] if "variant" in points else pd.Series("", points.index)
    names = {key(variant, name): str(name) for variant, name in zip(variant, points["run"])}
    planned = {names[at]: run for run in plan if (at := key(run.variant, run.name)) in names}
    # Confirmation runs without a variant are not part of these tables.
    runs = points[(points["phase"] == "continual") & ((points["role"] == "fit") | (variant != ""))]
    if unknown := sorted({*runs["run"]} - {*planned}):
        counted = f"{len(unknown)} of {runs['run'].nunique()} continual runs"
        raise StudyError(f"{counted} are not of the question, like {unknown[0]}: plan it again")
    return ScheduleStudy(
        points[points["run"].isin(list(planned))],
        {name: dataclasses.replace(run, name=name) for name, run in planned.items()},
        {name: rates[run.name] for name, run in planned.items()},
        {"D_pt": question.corpora.general, "D_cpt": question.corpora.domain},
        question.tables.from_step,
    )


READING = StudyReader(
    "dynamics-small",
    lambda question: bool(question.variants),
    _read,
    lambda source: f"{len(source.points):,} points of {source.points['run'].nunique()} runs under several schedules.",
)
"""Points of both phases under several schedules: points.parquet and plan.jsonl."""
