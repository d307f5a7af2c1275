"""What a study has to show so far: all that a report is made from, and a sentence for what is not there."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from fitting import LAWS, Fit, LawAverage, PointsError, with_areas
from fitting.law_average import AVERAGE, LEAST_LOSS
from fitting.schedule import Schedules
from pipeline.goals.active.history import DesignRound, read_rounds
from pipeline.goals.registry import goal_of
from pipeline.question.design import with_peak
from pipeline.question.schema import LawConfig, Question
from pipeline.study.artifacts import Confirmation, ConfirmationRow, Outcome, Recommendation
from pipeline.study.collect import of_domain, read_points, schedules
from pipeline.study.fits import fit_file, read_back_test, read_fits
from pipeline.study.folder import PlannedRun, Study, StudyError
from pipeline.study.target import Target, find_target


@dataclass(frozen=True)
class Evidence:
    """A study's plan, points, fits and answers, as far as they exist."""

    study: Study
    """The folder."""
    question: Question
    """What was asked."""
    plan: list[PlannedRun]
    """The planned runs."""
    schedules: Schedules
    """Run -> learning rates."""
    points: pd.DataFrame | None = None
    """Collected points of the planned runs."""
    fits: dict[str, Mapping[str, Fit | LawAverage]] = field(default_factory=dict)
    """Law, or average, -> corpus -> fit, of the laws that are fitted to both corpora."""
    tested: pd.DataFrame | None = None
    """Predictions of held-out points, as `pipeline.study.fits.back_test` gives them."""
    target: Target | None = None
    """The run that the answer is for."""
    recommendation: Recommendation | None = None
    """Content of recommendation.json."""
    confirmations: list[ConfirmationRow] = field(default_factory=list)
    """Rows of confirmation.json."""
    outcome: Outcome | None = None
    """Whether they confirm the predicted optimum."""
    rounds: list[DesignRound] = field(default_factory=list)
    """Rounds in which runs of the plan were chosen, of design.jsonl."""
    missing: list[str] = field(default_factory=list)
    """A sentence for each thing that is not there yet, and how to get it."""

    @property
    def general(self) -> str:
        """Name of the general corpus."""
        return self.question.corpora.general

    @property
    def domain(self) -> str:
        """Name of the domain corpus."""
        return self.question.corpora.domain

    @property
    def corpora(self) -> tuple[str, str]:
        """General, then domain."""
        return self.general, self.domain

    @property
    def laws(self) -> list[str]:
        """The fitted laws, those that gave the answer first."""
        first = self.recommendation.law.values() if self.recommendation else ()
        return sorted(self.fits, key=lambda law: law not in first)

    def law_of(self, corpus: str) -> str:
        """The law that answered for a corpus, or the first; only where something is fitted."""
        law = self.recommendation.law[corpus] if self.recommendation else ""
        return law if law and (law in self.fits or not self.fits) else next(iter(self.fits))

    @property
    def domain_ratio(self) -> float | None:
        """Recommended domain ratio; None without an answer."""
        mixture = self.recommendation and self.recommendation.mixture
        return float(mixture[self.domain]) if mixture else None

    @property
    def answered(self) -> list[ConfirmationRow]:
        """The confirmation's rows of the recommended law at the recommended ratio, of the model that is recommended."""
        if self.recommendation is None or self.domain_ratio is None:
            return []
        model = self.recommendation.target.model
        at = [row for row in self.confirmations if abs(row.domain_ratio - self.domain_ratio) < 5e-4]
        return [row for row in at if row.recommended and row.model == model]


def read_evidence(study: Study, question: Question) -> Evidence:
    """Read all of a study that exists.

    Raises:
        StudyError: no plan, or a file that is damaged or of another schema.
    """
    plan = study.read_plan()
    evidence = Evidence(study, question, plan, schedules(plan))
    missing = []

    def exists(name: str, sentence: str) -> bool:
        if (study.folder / name).exists():
            return True
        missing.append(sentence)
        return False

    points = tested = target = recommendation = outcome = None
    if exists("points.parquet", "No points are collected yet: run cptlaw train, then cptlaw collect."):
        points = read_points(study)
        points = of_domain(points.loc[points["run"].isin(list(evidence.schedules))], question).reset_index(drop=True)
        try:
            target = find_target(question, points)
        except StudyError as error:
            missing.append(f"The model of the answer is not measured yet ({error}).")
    fits = _fits(study, question, missing)
    untested = "No law is tested on held-out points yet: run cptlaw fit."
    if fits and exists(study.fitted("fits/held_out.parquet"), untested):
        tested = read_back_test(study)
    corpora = {*evidence.corpora}
    if exists(study.answer("recommendation.json"), "There is no recommendation yet: run cptlaw recommend."):
        recommendation = Recommendation.read(study)
        question = with_peak(question, recommendation.peak_learning_rate)
        law, before = recommendation.law, recommendation.loss_before
        used = {*law.values(), *(name for of_law in recommendation.weights.values() for name in of_law)}
        if not (corpora <= {*law} and corpora <= {*before} and used <= {*question.law, AVERAGE}):
            missing.append("The recommendation is of another question: run cptlaw recommend again.")
            recommendation = None
    rows = []
    if exists(study.answer("confirmation.json"), "The answer is not confirmed yet: run cptlaw confirm."):
        confirmation = Confirmation.read(study)
        rows = [
            row for row in confirmation.confirmations if row.corpus in corpora and row.law in (*question.law, AVERAGE)
        ]
        outcome = confirmation.outcome if confirmation.outcome.corpus in corpora else None
    if recommendation is not None and points is not None and goal_of(question).chooses_run:
        run = recommendation.target
        try:
            target = find_target(question, points, run.model).lasting(run.steps)
        except StudyError:
            target = None
    if recommendation is not None and {law for of in recommendation.weights.values() for law in of} <= {*fits}:
        fits = _with_average(fits, recommendation.weights)
    answers = {"recommendation": recommendation, "confirmations": rows, "outcome": outcome, "missing": missing}
    planned = {run.name for run in plan}
    rounds = [one for one in read_rounds(study) if planned.issuperset(run.run for run in one.chosen)]
    known = {"points": points, "fits": fits, "tested": tested, "target": target, "rounds": rounds, "question": question}
    evidence = dataclasses.replace(evidence, **known, **answers)
    # Confirmation runs of an earlier answer do not confirm this one.
    return evidence if evidence.answered or recommendation is None else dataclasses.replace(evidence, outcome=None)


def predicted(evidence: Evidence, fit: Fit | LawAverage, frame: pd.DataFrame) -> np.ndarray:
    """Loss (n,), nats per token, at rows with a run and a step; NaN where the law reads what is not known."""
    if isinstance(fit, LawAverage):
        losses = {law: np.maximum(predicted(evidence, one, frame), LEAST_LOSS) for law, one in fit.fits.items()}
        return np.exp(np.sum([fit.weights[law] * np.log(losses[law]) for law in losses], axis=0))
    memory = fit.params.get("lambda", 0.999)
    frame = with_areas(frame, evidence.schedules, memory, LAWS[fit.law].rate_power)
    columns = frame[fit.columns].to_numpy(float)
    known = np.all(np.isfinite(columns), axis=1)
    losses = np.full(len(frame), np.nan)
    if known.any():
        losses[known] = fit.predict(frame.iloc[np.flatnonzero(known)])
    return losses


def section(question: Question, law: str) -> LawConfig:
    """Which points a law is fitted to; of the average, those that all laws are."""
    sections = list(question.law.values()) if law == AVERAGE else [question.law[law]]
    return LawConfig(max(one.from_step for one in sections), max(one.min_ratio for one in sections))


def at_target(evidence: Evidence, law: str, corpus: str, ratios: np.ndarray) -> pd.DataFrame | None:
    """The columns of a law at the end of the target's run, a row a domain ratio; None if one is not known."""
    fit = evidence.fits[law][corpus]
    if evidence.target is None:
        return None
    columns = evidence.target.columns(corpus, fit)
    frame = pd.DataFrame({"r": 1 - ratios if corpus == evidence.general else ratios, **columns})
    try:
        fit.predict(frame)
    except PointsError:
        return None
    return frame


def _with_average(
    fits: Mapping[str, Mapping[str, Fit]], weights: Mapping[str, Mapping[str, float]]
) -> dict[str, Mapping[str, Fit | LawAverage]]:
    """Law -> corpus -> fit, the average among them where every corpus has one."""
    averages = {corpus: LawAverage({law: fits[law][corpus] for law in of}, of) for corpus, of in weights.items() if of}
    return {**fits, AVERAGE: averages} if averages and len(averages) == len(weights) else {**fits}


def _fits(study: Study, question: Question, missing: list[str]) -> dict[str, dict[str, Fit]]:
    corpora = (question.corpora.general, question.corpora.domain)
    fits: dict[str, dict[str, Fit]] = {}
    absent = []
    for law, own in question.law.items():
        if all(fit_file(study, corpus, law).exists() for corpus in corpora):
            of_corpus = read_fits(study, dataclasses.replace(question, law={law: own}))
            fits[law] = {corpus: of_corpus[corpus][law] for corpus in corpora}
        else:
            absent.append(law)
    if absent:
        missing.append(f"Not fitted: {', '.join(absent)}; cptlaw fit fits them, or says why it cannot.")
    return fits
