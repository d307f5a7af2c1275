"""The run that an answer is for, as the laws read it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fitting import LAWS, Fit, LawAverage, with_areas
from fitting.law_average import own_column
from fitting.schedule import ANNEALING, FORWARD, Schedule
from pipeline.question.phases import pieces
from pipeline.question.schema import PhaseConfig, Question
from pipeline.study.folder import IMPORTED, PlannedRun, StudyError, study_of
from training.schedule import learning_rates

KNOTS = 40
"""Lengths whose schedule is worked out; between them its areas go by straight lines."""


@dataclass(frozen=True)
class Target:
    """The run that the answer is for."""

    model: str
    N: float
    """Its non-embedding parameters, billions."""
    D: float
    """Tokens of the continual phase, billions."""
    steps: int
    rate_before: float
    """Last learning rate before it."""
    before: dict[str, float]
    """Corpus -> loss before it, nats per token."""
    rho: dict[str, float]
    """Corpus -> ratio of it in pre-training; NaN: not known."""
    s1_pretrain: float
    """Summed learning rate of pre-training; NaN: not known."""
    phase: PhaseConfig
    """Its continual phase, whose schedule and batch it has."""
    tokens_per_step: int
    """Tokens of a step of it."""
    pretrain: np.ndarray | None = None
    """Learning rates (steps,) of pre-training; None: not known."""
    given_rates: np.ndarray | None = None
    """Learning rates (steps,) of the run; None: those of its phase."""

    def lasting(self, steps: int) -> Target:
        """The same with a continual phase of so many steps."""
        return dataclasses.replace(self, steps=steps, D=steps * self.tokens_per_step / 1e9)

    def columns(self, corpus: str, fit: Fit | LawAverage) -> dict[str, float]:
        """The columns of a law, or of several, at the end of the run, the ratio apart."""
        return {str(name): float(value) for name, value in self.along(corpus, fit, [self.steps]).iloc[0].items()}

    def along(self, corpus: str, fit: Fit | LawAverage, steps: Sequence[int]) -> pd.DataFrame:
        """The same after some steps of the run, a row a step."""
        if isinstance(fit, LawAverage):
            tables = {law: self.along(corpus, one, steps) for law, one in fit.fits.items()}
            return pd.DataFrame({own_column(law, str(name)): of[name] for law, of in tables.items() for name in of})
        schedule = Schedule(self.rates, self.rate_before, self.pretrain)
        at = pd.DataFrame({"run": self.model, "step": [*steps]})
        at = with_areas(at, {self.model: schedule}, fit.decay, LAWS[fit.law].s2.rate_power)
        areas = {name: at[name] for name in (*FORWARD, *ANNEALING) if name in at}
        pretraining = {"s2_pretrain": 0.0, **areas, "s1_pretrain": self.s1_pretrain}
        before = {"loss_before": self.before[corpus], "rho": self.rho[corpus]}
        return pd.DataFrame({"N": self.N, "D": at["step"] * (self.tokens_per_step / 1e9), **pretraining, **before})

    def columns_by_length(
        self, corpus: str, fit: Fit | LawAverage, least: float, most: float
    ) -> Callable[[np.ndarray], dict[str, np.ndarray]]:
        """The columns of a law at the ends of runs of D billions of tokens (n,) from `least` to `most`, N, D apart."""
        step = self.tokens_per_step / 1e9
        steps = np.unique(np.clip(np.round(np.geomspace(least, most, KNOTS) / step).astype(int), 1, None))
        ends = [self.lasting(int(count)).columns(corpus, fit) for count in steps]
        known = {name: np.array([end[name] for end in ends]) for name in ends[0] if name not in ("N", "D")}
        return lambda D: {name: np.interp(D, steps * step, values) for name, values in known.items()}

    @property
    def rates(self) -> np.ndarray:
        """Its learning rates (steps,)."""
        if self.given_rates is not None:
            return self.given_rates
        return learning_rates(pieces(dataclasses.replace(self.phase, steps=self.steps)), self.steps, self.rate_before)


def ends_of_pretraining(points: pd.DataFrame) -> pd.DataFrame:
    """The last points of each pre-training, where continual runs start; of its branches, which begin later, none."""
    past = points[points["phase"] == "pretrain"]
    begin = past.groupby("run")["step"].transform("min")
    past = past[begin == begin.groupby(past["model"]).transform("min")]
    return past[past["step"] == past.groupby("run")["step"].transform("max")]


def find_target(question: Question, points: pd.DataFrame, model: str | None = None) -> Target:
    """A model's facts, from the measured points before its continual phase, and the length of a confirmation run.

    The points are those of the domain that is asked about; without a name the model is `question.model`. Raises
    StudyError: they were not measured.
    """
    name = model or question.model.name
    of_model = points[points["model"] == name]
    if "variant" in of_model:
        of_model = of_model[of_model["variant"] == ""]
    before = ends_of_pretraining(of_model)
    if not before.empty:
        rho = dict(zip(before["corpus"], before["r"]))
        rate = float(before["learning_rate"].iloc[0])
        rates = learning_rates(pieces(question.pretrain), question.pretrain.steps)
    else:
        before = of_model[of_model["step"] == 0].drop_duplicates("corpus")
        rho = dict(zip(before["corpus"], before["rho"]))
        rate, rates = 0.0, None
    losses = dict(zip(before["corpus"], before["loss"]))
    if lacking := [corpus for corpus in (question.corpora.general, question.corpora.domain) if corpus not in losses]:
        study, names = study_of(question), ", ".join(points["model"].unique())
        plan = study.read_plan() if study.plan_file.exists() else []
        remedy = "train its pre-training, then collect"
        if question.model.path == IMPORTED:
            remedy = f"give model.name= of a model that was imported: {names}"
        elif name not in {run.model for run in plan}:
            remedy = f"models of this study: {names}; another one needs ladder=[...] in cptlaw plan"
        raise StudyError(f"{name}: no loss on {', '.join(lacking)} before the continual phase; {remedy}")
    n, s1_pretrain = (float(before[column].iloc[0]) for column in ("N", "s1_pretrain"))
    steps, step, phase = question.target.steps, question.tokens_per_step(), question.target_phase
    return Target(name, n, steps * step / 1e9, steps, rate, losses, rho, s1_pretrain, phase, step, rates)


def other_batch(plan: Sequence[PlannedRun], tokens_per_step: int) -> str:
    """That runs for the fit have other tokens a step than the run that is asked about; empty: none has."""
    batches = sorted({run.spec.tokens_per_step for run in plan if run.role == "fit"} or {tokens_per_step})
    if batches == [tokens_per_step]:
        return ""
    of_fit = " and ".join(f"{batch:,}" for batch in dict.fromkeys((batches[0], batches[-1])))
    asked = f"{tokens_per_step:,} tokens a step are asked about"
    return f"no law reads the batch: {asked}, the runs for the fit have {of_fit}"
