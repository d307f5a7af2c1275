"""What a study has to show so far, and a sentence for what is not there."""

from collections.abc import Mapping
from functools import cached_property

import numpy as np
import pandas as pd

from fitting import LAWS, Fit, LawAverage, PointsError, with_areas
from fitting.law_average import AVERAGE, LEAST_LOSS
from pipeline.done import confirm_remedy
from pipeline.goals.active.history import DesignRound, read_rounds
from pipeline.goals.ratio.answering_laws import one_ratio
from pipeline.goals.registry import goal_of
from pipeline.plan.cost import Cost, costs
from pipeline.question.design import with_peak
from pipeline.question.schema import LawConfig, Question
from pipeline.show.conclusion import Conclusion, conclude
from pipeline.show.report.colours import BLACK, LAW_COLOURS
from pipeline.study.artifacts import Confirmation, ConfirmationRow, Outcome, Recommendation, read_if_there
from pipeline.study.collect import read_points
from pipeline.study.context import Context
from pipeline.study.fits import fit_file, horizon_weights, with_average
from pipeline.study.folder import PlannedRun, StudyError
from pipeline.study.number_format import domain_ratio_of, short
from pipeline.study.target import Target, find_target
from training.attempt import AttemptRecord, attempts


class Evidence:
    """The context of a study, with None, or nothing, in place of what is not there yet."""

    def __init__(self, context: Context) -> None:
        self.context, self.study, self.corpora = context, context.study, context.corpora
        self.general, self.domain = self.corpora

    @cached_property
    def ratio_name(self) -> str:
        """The domain ratio in words."""
        return domain_ratio_of(self.domain)

    @cached_property
    def short_ratio_name(self) -> str:
        """The same for an axis."""
        return domain_ratio_of(short(self.domain))

    @cached_property
    def question(self) -> Question:
        """What was asked, at the peak learning rate of the answer."""
        return with_peak(self.context.question, self.recommendation and self.recommendation.peak_learning_rate)

    @cached_property
    def plan(self) -> list[PlannedRun]:
        """The planned runs; StudyError where there is no plan."""
        return self.study.read_plan()

    @cached_property
    def attempts(self) -> dict[str, list[AttemptRecord]]:
        """Run -> its attempts."""
        return {run.name: attempts(self.study.runs / run.name) for run in self.plan}

    @cached_property
    def kept_steps(self) -> dict[str, int] | None:
        """Run -> its last step among the points, of a study whose points are here and whose runs are not; else None."""
        if any((self.study.runs / run.name / "attempts").is_dir() for run in self.plan):
            return None
        try:
            last = read_points(self.study).groupby("run")["step"].max()
        except StudyError:
            return None
        return {str(run): int(step) for run, step in last.items()}

    @cached_property
    def points(self) -> pd.DataFrame | None:
        """Collected points of the planned runs."""
        if not (self.study.folder / "points.parquet").exists():
            return None
        points = self.context.points
        return points.loc[points["run"].isin([run.name for run in self.plan])].reset_index(drop=True)

    @cached_property
    def fits(self) -> dict[str, Mapping[str, Fit | LawAverage]]:
        """Law, or average, -> corpus -> fit, of the laws that are fitted to both corpora."""
        alone = self.context.fits if self._fitted else {}
        fits: dict[str, Mapping[str, Fit | LawAverage]] = {
            law: {corpus: alone[corpus][law] for corpus in self.corpora} for law in self._fitted
        }
        answer = self.recommendation
        if answer and any(answer.weights.values()) and self.tested is not None:
            # Those of the answer are of its own ratio.
            weights = horizon_weights(alone, self.tested, answer.target.N, answer.target.D)
            if all(of and {*of} <= {*fits} for of in weights.values()):
                averaged = with_average(alone, weights, self.tested)
                fits[AVERAGE] = {corpus: averaged[corpus][AVERAGE] for corpus in weights}
        return fits

    @cached_property
    def _fitted(self) -> list[str]:
        laws = self.context.question.law
        return [law for law in laws if all(fit_file(self.study, corpus, law).exists() for corpus in self.corpora)]

    @cached_property
    def tested(self) -> pd.DataFrame | None:
        """Predictions of held-out points, as `pipeline.study.fits.back_test` gives them."""
        there = self._fitted and (self.study.folder / self.study.fitted("fits/held_out.parquet")).exists()
        return self.context.tested if there else None

    @cached_property
    def target(self) -> Target | None:
        """The run that the answer is for."""
        answer = self.recommendation
        if self.points is None:
            return None
        try:
            model = answer.target.model if answer and goal_of(self.question).chooses_run else None
            target = find_target(self.question, self.points, model)
            return target.lasting(answer.target.steps) if answer else target
        except StudyError:
            return None

    @cached_property
    def recommendation(self) -> Recommendation | None:
        """Content of recommendation.json, where it answers this question."""
        content, corpora = self.written, self.context.corpora
        if content is None or not ({*corpora} <= {*content.law} and content.is_of(corpora)):
            return None
        used = {*content.law.values(), *(name for of_law in content.weights.values() for name in of_law)}
        return content if used <= {*self.context.question.law, AVERAGE} else None

    @cached_property
    def written(self) -> Recommendation | None:
        """Content of recommendation.json, whatever it answers."""
        return read_if_there(Recommendation, self.study)

    @cached_property
    def confirmations(self) -> list[ConfirmationRow]:
        """Rows of confirmation.json, where it is of this answer."""
        rows = self.confirmation.confirmations if self.confirmation else []
        return [row for row in rows if row.corpus in self.corpora and row.law in (*self.question.law, AVERAGE)]

    @cached_property
    def confirmation(self) -> Confirmation | None:
        """Content of confirmation.json, where it is of this answer."""
        made, answer = self.context.confirmation, self.recommendation
        return made if made and answer and made.is_of(answer, self.domain) else None

    @property
    def outcome(self) -> Outcome | None:
        """Whether they confirm the predicted optimum."""
        return self.confirmation and self.confirmation.outcome

    @cached_property
    def conclusion(self) -> Conclusion:
        """What is known of the answer."""
        return conclude(self.context, self.recommendation, self.context.confirmation)

    @property
    def remedy(self) -> str:
        """What to do to confirm the answer, behind a colon; empty where the conclusion says what would tell."""
        again = self.context.confirmation is not None
        return "" if self.conclusion.remedy else f": {confirm_remedy(self.context, again)}"

    @cached_property
    def rounds(self) -> list[DesignRound]:
        """Rounds in which runs of the plan were chosen, of design.jsonl."""
        planned = {run.name for run in self.plan}
        return [one for one in read_rounds(self.study) if planned.issuperset(run.run for run in one.chosen)]

    @cached_property
    def missing(self) -> list[str]:
        """A sentence for each thing that is not there yet, and how to get it."""
        lines, word = [], self.study.word
        if self.points is None:
            lines.append(f"No points are collected yet: run cptlaw train {word}, then cptlaw collect {word}.")
        else:
            try:
                find_target(self.context.question, self.points)
            except StudyError as error:
                lines.append(f"The model of the answer is not measured yet ({error}).")
        if absent := [law for law in self.context.question.law if law not in self._fitted]:
            lines.append(f"Not fitted: {', '.join(absent)}; cptlaw fit {word} fits them, or says why it cannot.")
        if self._fitted and self.tested is None:
            lines.append(f"No law is tested on held-out points yet: run cptlaw fit {word}.")
        if self.written is None:
            lines.append(f"There is no recommendation yet: run cptlaw recommend {word}.")
        elif self.recommendation is None:
            lines.append(f"The recommendation is of another question: run cptlaw recommend {word} again.")
        if self.context.confirmation is None:
            lines.append(f"The answer is not confirmed yet{self.remedy}.")
        elif self.confirmation is None and self.recommendation is not None:
            lines.append(f"The confirmation runs are of another domain ratio, fit or question{self.remedy}.")
        return lines

    @property
    def laws(self) -> list[str]:
        """The fitted laws, those that gave the answer first."""
        first = self.recommendation.law.values() if self.recommendation else ()
        return sorted(self.fits, key=lambda law: law not in first)

    @cached_property
    def law_of(self) -> dict[str, str]:
        """Corpus -> the law that answered for it, or the first; only where something is fitted."""
        laws, fitted = self.recommendation.law if self.recommendation else {}, self.fits
        known = {corpus: laws.get(corpus, "") for corpus in self.corpora}
        return {at: law if law and (law in fitted or not fitted) else next(iter(fitted)) for at, law in known.items()}

    def laws_for(self, corpus: str) -> list[str]:
        """The fitted laws, the one that answered for a corpus first."""
        return sorted(self.laws, key=lambda law: law != self.law_of[corpus])

    @cached_property
    def colours(self) -> dict[str, str]:
        """Law -> its colour, the same in every figure and table."""
        colours = {law: LAW_COLOURS[number % len(LAW_COLOURS)] for number, law in enumerate(self.question.law)}
        return colours | {AVERAGE: BLACK}

    @cached_property
    def costs(self) -> list[Cost]:
        """What the planned runs cost."""
        return costs(self.plan, None, self.context.question)

    @property
    def domain_ratio(self) -> float | None:
        """Recommended domain ratio; None without an answer, and where runs at one ratio tell nothing of others."""
        answer = self.recommendation
        return float(answer.mixture[self.domain]) if answer and answer.mixture and not one_ratio(answer) else None

    @property
    def answered(self) -> list[ConfirmationRow]:
        """The confirmation's rows of the recommended law at the recommended place."""
        return [row for row in self.confirmations if row.recommended and row.run == self.confirmations[0].run]


def predicted(evidence: Evidence, fit: Fit | LawAverage, frame: pd.DataFrame) -> np.ndarray:
    """Loss (n,), nats per token, at rows with a run and a step; NaN where the law reads what is not known."""
    if isinstance(fit, LawAverage):
        losses = {law: np.maximum(predicted(evidence, one, frame), LEAST_LOSS) for law, one in fit.fits.items()}
        return np.exp(np.sum(fit.weights_at(frame) * np.log([*losses.values()]), axis=0))
    frame = with_areas(frame, evidence.context.schedules, fit.decay, LAWS[fit.law].s2.rate_power)
    known, losses = np.isfinite(frame[fit.columns].to_numpy(float)).all(axis=1), np.full(len(frame), np.nan)
    if known.any():
        losses[known] = fit.predict(frame.iloc[np.flatnonzero(known)])
    return losses


def section(question: Question, law: str) -> LawConfig:
    """Which points a law is fitted to; of the average, from the step of all laws on, at the ratios of any."""
    sections = list(question.law.values()) if law == AVERAGE else [question.law[law]]
    return LawConfig(max(one.from_step for one in sections), min(one.min_ratio for one in sections))


def at_target(evidence: Evidence, law: str, corpus: str, ratios: np.ndarray) -> tuple[pd.DataFrame, np.ndarray] | None:
    """The columns of a law at the end of the target's run, a row a ratio, and its losses; None: one is unknown."""
    fit = evidence.fits[law][corpus]
    if evidence.target is None:
        return None
    columns = evidence.target.columns(corpus, fit)
    frame = pd.DataFrame({"r": 1 - ratios if corpus == evidence.general else ratios, **columns})
    try:
        return frame, fit.predict(frame)
    except PointsError:
        return None
