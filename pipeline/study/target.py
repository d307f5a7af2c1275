"""The run that an answer is for, as the laws read it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fitting import LAWS, Fit, LawAverage, with_areas
from fitting.law_average import own_column
from fitting.schedule import ANNEALING, FORWARD, Schedule
from pipeline.question.design import target_steps
from pipeline.question.goal import tokens_per_step
from pipeline.question.phases import pieces
from pipeline.question.schema import Question
from pipeline.study.folder import StudyError
from training.schedule import learning_rates

KNOTS = 40
"""Lengths whose schedule is worked out; between them its areas go by straight lines."""


@dataclass(frozen=True)
class Target:
    """The run that the answer is for."""

    model: str
    """Name of the model."""
    N: float
    """Its non-embedding parameters, billions."""
    D: float
    """Tokens of the continual phase, billions."""
    steps: int
    """Steps of the continual phase."""
    rate_before: float
    """Last learning rate before it."""
    before: dict[str, float]
    """Corpus -> loss before it, nats per token."""
    rho: dict[str, float]
    """Corpus -> share of it in pre-training; NaN: not known."""
    s1_pretrain: float
    """Summed learning rate of pre-training; NaN: not known."""
    pretrain: np.ndarray | None = None
    """Learning rates (steps,) of pre-training; None: not known."""


def find_target(question: Question, points: pd.DataFrame, model: str | None = None) -> Target:
    """A model's facts, from the measured points before its continual phase, and the length of a confirmation run.

    The points are those of the domain that is asked about; without a name the model is `question.model`.

    Raises:
        StudyError: they were not measured.
    """
    name = model or question.model.name
    of_model = points[points["model"] == name]
    if "variant" in of_model:
        of_model = of_model[of_model["variant"] == ""]
    pretrained = of_model[of_model["phase"] == "pretrain"]
    if not pretrained.empty:
        before = pretrained[pretrained["step"] == pretrained["step"].max()]
        rho = dict(zip(before["corpus"], before["r"]))
        rate = float(before["learning_rate"].iloc[0])
        rates = learning_rates(pieces(question.pretrain), question.pretrain.steps)
    else:
        before = of_model[of_model["step"] == 0].drop_duplicates("corpus")
        rho = dict(zip(before["corpus"], before["rho"]))
        rate, rates = 0.0, None
    losses = dict(zip(before["corpus"], before["loss"]))
    if lacking := [corpus for corpus in (question.corpora.general, question.corpora.domain) if corpus not in losses]:
        problem = f"{name}: no loss on {', '.join(lacking)} before the continual phase"
        raise StudyError(f"{problem}; train its pre-training, then collect")
    steps = target_steps(question)
    n, s1_pretrain = (float(before[column].iloc[0]) for column in ("N", "s1_pretrain"))
    return Target(name, n, steps * tokens_per_step(question) / 1e9, steps, rate, losses, rho, s1_pretrain, rates)


def lasting(question: Question, target: Target, steps: int) -> Target:
    """The same with a continual phase of so many steps."""
    return dataclasses.replace(target, steps=steps, D=steps * tokens_per_step(question) / 1e9)


def target_columns(question: Question, target: Target, corpus: str, fit: Fit | LawAverage) -> dict[str, float]:
    """The columns of a law, or of several, at the end of the target's run, the ratio apart."""
    if isinstance(fit, LawAverage):
        every = {law: target_columns(question, target, corpus, one) for law, one in fit.fits.items()}
        return {own_column(law, name): value for law, columns in every.items() for name, value in columns.items()}
    end = pd.DataFrame({"run": [target.model], "step": [target.steps]})
    schedule = Schedule(_rates(question, target), target.rate_before, target.pretrain)
    at = with_areas(end, {target.model: schedule}, fit.params.get("lambda", 0.999), LAWS[fit.law].rate_power)
    areas = {name: float(at[name].iloc[0]) for name in (*FORWARD, *ANNEALING) if name in at}
    pretraining = {"s2_pretrain": 0.0, **areas, "s1_pretrain": target.s1_pretrain}
    return {
        "N": target.N,
        "D": target.D,
        **pretraining,
        "loss_before": target.before[corpus],
        "rho": target.rho[corpus],
    }


def summed_rate(question: Question, target: Target, part: float) -> float:
    """S1 after that part of the steps of the target's run."""
    return float(_rates(question, target)[: round(part * target.steps)].sum())


def _rates(question: Question, target: Target) -> np.ndarray:
    """Learning rates (steps,) of the target's run."""
    phase = dataclasses.replace(question.continual, steps=target.steps)
    return learning_rates(pieces(phase), target.steps, target.rate_before)


def columns_by_length(
    question: Question, target: Target, corpus: str, fit: Fit | LawAverage, least: float, most: float
) -> Callable[[np.ndarray], dict[str, np.ndarray]]:
    """The columns of a law at the ends of runs of D billions of tokens (n,) from `least` to `most`, N and D apart."""
    step = tokens_per_step(question) / 1e9
    steps = np.unique(np.clip(np.round(np.geomspace(least, most, KNOTS) / step).astype(int), 1, None))
    ends = [target_columns(question, lasting(question, target, int(count)), corpus, fit) for count in steps]
    known = {name: np.array([end[name] for end in ends]) for name in ends[0] if name not in ("N", "D")}
    return lambda D: {name: np.interp(D, steps * step, values) for name, values in known.items()}
