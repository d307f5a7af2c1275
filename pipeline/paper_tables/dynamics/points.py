"""What the learning-dynamics paper's tables are made from: points of both phases, and every run's learning rates."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fitting import LAWS, Fit, PointsError, fit, with_areas
from fitting.parallel import over_cores
from fitting.schedule import Schedules
from pipeline.paper_tables.table import Reading, Source
from pipeline.plan.runs import placeholder_manifest, planned_runs
from pipeline.question.schema import Question
from pipeline.study.folder import PlannedRun, StudyError

CORPORA = ("D_pt", "D_cpt")
"""As the paper writes the corpus of pre-training and the one after it."""
PAPERS_LAMBDA = 0.999
EARLY = 1 / 8
"""Share of a pre-training before whose end no point is fitted: the law is not one of the first steps."""


@dataclass(frozen=True, eq=False)
class Dynamics:
    """A study of schedules."""

    points: pd.DataFrame
    """Points of all runs, as `pipeline.study.collect` gives them."""
    plan: Mapping[str, PlannedRun]
    """Name -> run."""
    schedules: Schedules
    """Name -> learning rates."""
    corpora: Mapping[str, str]
    """Of CORPORA -> its name."""
    from_step: int = 1
    """First step of continual runs that is fitted."""
    log: Callable[[str], object] = lambda line: None
    """Is given a line for each thing done."""
    known: dict[Asked, Fit | str] = field(default_factory=dict)
    """Fits that were made, or why there is none."""

    @functools.cached_property
    def runs(self) -> pd.DataFrame:
        """A row a continual run with points: run, variant, role, model, share (of the domain), parent (run, '' for a
        model that was brought along), transfer (steps of it), potential (its last rate over its peak), peak, rewarmed
        (whether it leaves the last rate upwards or at a jump), pieces and form (alike: the same schedule; the same
        but for its peak)."""
        by_hash = {run.spec.hash: run for run in self.plan.values()}
        rows = []
        for name in self.points.loc[self.points["phase"] == "continual", "run"].unique():
            run, schedule = self.plan[name], self.schedules[name]
            spec, past = run.spec, schedule.pretrain
            parent = by_hash[run.parent].name if run.parent else ""
            peak, first = float(schedule.rates.max()), spec.schedule[0]
            rows.append({
                "run": name, "variant": run.variant, "role": run.role, "model": run.model,
                "share": _share(run, self.corpora["D_pt"]), "parent": parent,
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

    def fitted_runs(self, model: str | None = None, share: float | None = None) -> pd.DataFrame:
        """The rows of `runs` that fits may see, of a model and at a share."""
        own = self.runs[self.runs["role"] == "fit"]
        own = own if model is None else own[own["model"] == model]
        return own if share is None else own[np.isclose(own["share"], share)]

    def on(self, corpus: str, runs: pd.DataFrame, pretraining: bool = True) -> pd.DataFrame:
        """Points on a corpus of CORPORA of some rows of `runs`, and of the pre-trainings that they continue."""
        own = self.points[self.points["corpus"] == self.corpora[corpus]]
        after = own[own["run"].isin(runs["run"]) & (own["step"] >= max(self.from_step, 1))]
        if not pretraining:
            return after.reset_index(drop=True)
        before = own[own["run"].isin(runs["parent"])]
        before = before[before["step"] >= EARLY * before["run"].map(self.steps).astype(float)]
        return pd.concat([before, after], ignore_index=True)

    def steps(self, run: str) -> int:
        """Length of a run."""
        return self.plan[run].spec.steps

    def ends(self, corpus: str, runs: pd.DataFrame) -> pd.DataFrame:
        """`runs` with a column loss: theirs on a corpus at their last step."""
        own = self.on(corpus, runs, pretraining=False)
        last = own[own["step"] == own["run"].map(self.steps)].set_index("run")["loss"]
        return runs.assign(loss=runs["run"].map(last)).dropna(subset="loss")

    def curve(self, corpus: str, run: str) -> pd.DataFrame:
        """step and loss of a continual run from step 0 on."""
        own = self.points[(self.points["run"] == run) & (self.points["corpus"] == self.corpora[corpus])]
        return own.sort_values("step")[["step", "loss"]]


class Asked(NamedTuple):
    """A fit that a table needs."""

    law: str
    """Name in fitting.LAWS."""
    corpus: str
    """Of CORPORA."""
    model: str | None = None
    """None: all models."""
    share: float | None = None
    """Of the domain in the runs; None: all."""
    held: float | None = None
    """lambda; None: it is fitted."""


def fits(given: Dynamics, asked: Iterable[Asked]) -> list[Fit | str]:
    """Fits to what fits may see, or why there is none; each is made once for all tables, on all cores."""
    asked = list(asked)
    todo = [one for one in dict.fromkeys(asked) if one not in given.known]
    given.known.update(zip(todo, over_cores(functools.partial(_attempt, given), todo), strict=True))
    return [given.known[one] for one in asked]


def fitted(given: Dynamics, asked: Asked) -> Fit:
    """One of `fits`.

    Raises:
        PointsError: there is none.
    """
    (found,) = fits(given, [asked])
    if isinstance(found, str):
        raise PointsError(found)
    return found


def fit_to(given: Dynamics, points: pd.DataFrame, law: str, held: float | None = None, **options: Any) -> Fit:
    """A law fitted to points of the study; options as in `fitting.fit`."""
    fix = {**options.pop("fix", {}), **({} if held is None else {"lambda": held})}
    return fit(points, law, **{"schedules": given.schedules, "bootstrap": 0, **options}, fix=fix)


def _attempt(given: Dynamics, asked: Asked) -> Fit | str:
    law, corpus, model, share, held = asked
    points = given.on(corpus, given.fitted_runs(model, share), pretraining=law.startswith("dynamics"))
    try:
        # Between processes it goes without its problem, which is made of functions.
        return dataclasses.replace(fit_to(given, points, law, held), optimum=None)
    except PointsError as reason:
        return str(reason)


def predicted(found: Fit, points: pd.DataFrame, schedules: Schedules) -> np.ndarray:
    """Losses (n,), nats a token, at points of runs whose learning rates are known."""
    frame = with_areas(points, schedules, lambda_of(found), LAWS[found.law].rate_power)
    return found.predict(frame)


def lambda_of(found: Fit) -> float:
    """The decay of S2, fitted or given."""
    return {**found.constants, **found.params}.get("lambda", PAPERS_LAMBDA)


def relative_error(measured: pd.Series, losses: np.ndarray) -> float:
    """Mean of the absolute relative errors.

    >>> round(relative_error(pd.Series([2.0, 4.0]), np.array([2.2, 4.0])), 6)
    0.05
    """
    return float(np.abs(losses / measured.to_numpy(float) - 1).mean())


def _share(run: PlannedRun, general: str) -> float:
    # Exact until here, as in pipeline.study.collect.
    return float(1 - Fraction(run.spec.mixture.get(general, "0")))


def _read(source: Source) -> Dynamics:
    from pipeline.study.collect import schedules

    question, points = source.question, source.points
    kept = source.study.plan_file.exists() and not question.tables.points
    plan = source.study.read_plan() if kept else planned_runs(question, placeholder_manifest(question), "fp32")
    rates = schedules(plan)
    # Without their corpora runs have other hashes; the rest of a name, and the variant, tell them apart.
    variant = points["variant"] if "variant" in points else pd.Series("", points.index)
    there = {(variant, name if kept else name[:-9]): str(name) for variant, name in zip(variant, points["run"])}
    ours = {run.name: there.get((run.variant, run.name if kept else run.name[:-9]), "") for run in plan}
    named = {ours[run.name]: run for run in plan if ours[run.name]}
    # A confirmation is told by no variant; what it confirms is not asked here.
    runs = points[(points["phase"] == "continual") & ((points["role"] == "fit") | (variant != ""))]
    if lost := sorted({*runs["run"]} - {*named}):
        total = runs["run"].nunique()
        raise StudyError(
            f"{len(lost)} of {total} continual runs are not of the question, like {lost[0]}: plan it again"
        )
    corpora = {"D_pt": question.corpora.general, "D_cpt": question.corpora.domain}
    own = points[points["run"].isin(list(named))]
    renamed = {name: dataclasses.replace(run, name=name) for name, run in named.items()}
    known: Schedules = {name: rates[run.name] for name, run in named.items()}
    return Dynamics(own, renamed, known, corpora, question.tables.from_step, source.log)


def _has_schedules(question: Question) -> bool:
    return bool(question.variants)


def _said(source: Source) -> str:
    points = source.points
    return f"{len(points):,} points of {points['run'].nunique()} runs under several schedules."


DYNAMICS = Reading("dynamics-small", _has_schedules, _read, _said)
"""Points of both phases under several schedules: points.parquet and plan.jsonl."""
