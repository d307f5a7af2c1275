"""What the goals that ask fitted laws have in common: trade-off, limited data, compute."""

from __future__ import annotations

import contextlib
import math
import shlex
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from fitting import Estimate, PointsError
from pipeline.goals.active.outlook import begins_again, budget_lines, later_runs, plan_lines, refuse_budget
from pipeline.goals.active.rounds import add_confirmation_runs, design_runs, is_answered, most_telling, next_round
from pipeline.goals.goal import FitSummary, Goal, Log, PlanNotes
from pipeline.goals.ratio.answer_warnings import answer_warnings, beyond_runs, by_weight, domain_gain, least_ratio
from pipeline.goals.ratio.answering_laws import (
    CHANGE_LAW,
    AnsweringLaws,
    Solution,
    answering_laws,
    change_lines,
    mixture_changes,
    one_ratio,
    ratio_of_run,
)
from pipeline.goals.ratio.asked import asked_lines, pieces_as_given, short_lines, size_lines
from pipeline.goals.ratio.averaged_laws import weight_lines, widening_law
from pipeline.goals.ratio.confirm import Place, compare, confirmation_runs, imported_runs, ratios, why_another_seed
from pipeline.goals.ratio.outcomes import NO_RUNS, Others, Rows
from pipeline.question.design import is_active, with_peak
from pipeline.question.messages import ConfigError
from pipeline.question.phases import describe_phases
from pipeline.question.schema import Question
from pipeline.question.variants import variants
from pipeline.study.artifacts import (
    Artifact,
    Confirmation,
    Fact,
    HeldOutError,
    Interval,
    LawAnswer,
    Outcome,
    PredictedLoss,
    Recommendation,
    RecommendedRun,
    read_if_there,
)
from pipeline.study.collect import collect
from pipeline.study.context import Context
from pipeline.study.earlier import earlier_line, refuse_other_earlier, studies_of_longer_runs
from pipeline.study.fits import back_test, fit_all, keep_errors, trust
from pipeline.study.fitted_points import first_mixture
from pipeline.study.folder import IMPORTED, PlannedRun, StudyError
from pipeline.study.number_format import percent

_FOLLOWS = "another round follows, as far as design.budget allows"
"""The end of a line on an answer that does not end the rounds."""


class LawGoal(Goal):
    """A domain ratio beside general text, by laws fitted to the losses of both."""

    @abstractmethod
    def solve(self, laws: AnsweringLaws) -> Solution:
        """The answer by these laws."""

    def places(self, question: Question, recommendation: Recommendation) -> list[Place]:
        """The confirmation runs without their seeds; the recommended run first."""
        steps = question.target.steps
        return [Place(recommendation.target.model, ratio, steps) for ratio in ratios(question, recommendation)]

    def steps(self, question: Question, domain_ratio: float) -> int:
        """Length of a run that answers at a domain ratio."""
        return question.target.steps

    @abstractmethod
    def outcome(self, question: Question, answer: Recommendation, rows: Rows, others: Others = NO_RUNS) -> Outcome:
        """Whether confirmation runs confirm the recommended optimum."""

    def beside(self, laws: AnsweringLaws, answer: Solution) -> tuple[dict[str, Estimate], list[str]]:
        """Further numbers at the answer, by name, and lines about them."""
        return {}, []

    def runs(self, context: Context) -> list[PlannedRun]:
        return design_runs(context)

    def is_staged(self, question: Question) -> bool:
        return is_active(question)

    def plan_notes(self, context: Context, runs: Sequence[PlannedRun]) -> PlanNotes:
        question = context.question
        refuse_other_earlier(question)
        named: dict[str, list[str]] = {}
        for name, _, part in variants(question):
            if part.continual.phases:
                line = describe_phases(part.continual, part.corpora)
                named.setdefault(line, []).append(name and f"variants.{name}")
        notes = [line if "" in names else f"{', '.join(names)}: {line}" for line, names in named.items()]
        if question.continual.phases:
            line = "the laws know runs of one mixture: fit reads each run up to its first change"
            notes.append(f"{line}, recommend needs continual.phases=[]")
        elif is_active(question):
            notes += [*plan_lines(context, runs), *budget_lines(context, runs)]
        notes += [*short_lines(context, runs), *size_lines(question, runs)]
        more = is_active(question) and bool(later_runs(context, runs))
        return PlanNotes([] if self.chooses_run else asked_lines(context, runs), notes, more=more)

    def collect_stage(self, context: Context, log: Log) -> str:
        if not is_active(context.question):
            return ""
        refuse_budget(context)
        added = next_round(context, recommended=partial(self._recommended, context, log))
        return added.line() if added else ""

    def _recommended(self, context: Context, log: Log) -> tuple[float, float, bool] | None:
        """The recommended ratio, half-width of its interval, and whether it is known to hold, by fits to all points."""
        within = f"design.tolerance={context.question.design.tolerance:g}"
        log(f"the domain ratio may be known within {within}: fitting the laws to all points, as cptlaw recommend does")
        try:
            content = answer_rounds(self, context, log)
        except (StudyError, PointsError, ConfigError):
            return None  # Too few points for a law, or too short runs for so many tokens: more runs are needed.
        if content.mixture is None or content.low is None or content.high is None:
            return None
        if not any(row.split == "ratio" for row in content.held_out):
            # More ratios are needed.
            untested = "these laws are not tested yet at a ratio that they were not fitted to"
            log(f"{untested}, so the ratio by the posterior decides; {_FOLLOWS}")
            return None
        ratio, half_width = content.mixture[context.question.corpora.domain], (content.high - content.low) / 2
        if content.missed:
            log(f"{content.missed}: the laws do not hold there yet; {_FOLLOWS}")
            return ratio, half_width, False
        if wide := self.too_wide(context.question, content):
            wide += widening_law(context.fresh(), content) + beyond_runs(context, ratio)
            log(f"whether the answer keeps to goal.tolerance is not known yet: {wide}; {_FOLLOWS}")
        return ratio, half_width, not wide

    def add_round(self, context: Context) -> str:
        if not context.question.goal_kind.design_question:
            return super().add_round(context)
        _refuse_phases(context.question)
        if not is_answered(context):
            return ""
        learned = add_confirmation_runs(context)
        added = next_round(_of_missed_peak(context), more=True)
        at = dict.fromkeys(percent(run.ratio_of(context.corpora[1])) for run in learned)
        count = f"{len(learned)} confirmation runs are points for the fit now"
        lines = [f"{count}, at {' and '.join(at)} {context.corpora[1]}"] if learned else []
        return "\n".join([*lines, *([added.line()] if added else [])])

    def fit(self, context: Context, log: Log) -> FitSummary:
        _refuse_other_runs(context)
        own = context.points[context.points["role"] == "fit"]
        if own.empty:
            word = context.study.word
            remedy = f"run cptlaw train {word}, then cptlaw collect {word}"
            raise StudyError(f"{context.study.folder}/points.parquet: no point of a run for the fit; {remedy}")
        if later := len(own) - len(first_mixture(own)):
            log(
                f"left out of every fit: {later} of {len(own)} points, measured after the mixture of their run had "
                "changed (mixture_phase 2 or more); the laws know runs of one mixture"
            )
        study, question, points, rates = context.study, context.question, context.points, context.schedules
        if question.general_from:
            log(earlier_line(points, question, context.plan))
        fits = fit_all(study, question, points, rates, log)
        tested = back_test(study, question.with_laws(fits), points, rates)
        keep_errors(study, fits, tested)
        return FitSummary(tested, [*([] if self.chooses_run else weight_lines(context.fresh())), *trust(tested)])

    def recommend(self, context: Context, log: Log) -> Recommendation:
        """Answer with `answering_laws`. Raises PointsError: they cannot be asked this."""
        _refuse_phases(context.question)
        _refuse_other_runs(context)
        answer = self.solve(laws := answering_laws(context))
        laws = laws.at(answer.target)
        at_answer = laws if answer.peak is None else laws.at_peak(answer.peak)
        changes, change_notes = [], []
        if context.question.goal.change_at and CHANGE_LAW not in laws.question.law:
            change_notes = [f"goal.change_at: not answered, since {CHANGE_LAW} could not be fitted"]
        elif context.question.goal.change_at:
            changes = mixture_changes(at_answer, answer.target)
        facts, lines = self.beside(at_answer, answer)
        gain = domain_gain(at_answer, answer)
        warnings = [*by_weight(answer_warnings(context, laws, answer, gain)), *change_notes]
        warnings += [*change_lines(laws.question, changes), *lines]
        ratio = None if answer.domain_ratio is None else ratio_of_run(answer.domain_ratio)
        general, domain = context.corpora
        errors = context.tested.assign(error=context.tested["relative_error"].abs())
        errors = errors.groupby(["corpus", "split", "law"])["error"].agg(
            mean_error="mean", max_error="max", points="size"
        )
        run = answer.target
        recommendation = Recommendation(
            goal=context.question.goal,
            law={**laws.law},
            weights=laws.weights if ratio is None else laws.weights_at(ratio),
            target=RecommendedRun(run.model, run.N, run.D, run.steps),
            loss_before=run.before,
            mixture=None if ratio is None else {general: round(1 - ratio, 3), domain: ratio},
            low=answer.low,
            high=answer.high,
            # Of the mixture that is run, as its confirmation is compared.
            predicted={
                name: PredictedLoss(*at_answer.loss(run, name, ratio))
                for name in context.corpora
                if ratio is not None and answer.predicted
            },
            binding=answer.binding,
            identified=answer.identified and not laws.untested(answer.target),
            optimum={name: Interval(*estimate) for name, estimate in answer.optimum.items()},
            candidates=answer.candidates,
            warnings=warnings,
            held_out=[HeldOutError(**row) for row in errors.reset_index().to_dict("records")],  # pyright: ignore
            answers={name: self._alone(at_answer, name) for name in laws.question.law},
            peak_learning_rate=answer.peak,
            fit_points={
                corpus: {name: fit.n_points for name, fit in of_law.items()} for corpus, of_law in context.fits.items()
            },
            changes=changes,
            gain=gain,
            gain_from=None if gain is None else least_ratio(at_answer.fit(domain)),
            facts={name: Fact(*(side if math.isfinite(side) else None for side in of)) for name, of in facts.items()},
            points=context.points_digest,
            fits=context.fits_digest,
            asked=context.question.target,
        )
        recommendation.write(context.study)
        return recommendation

    def _alone(self, laws: AnsweringLaws, name: str) -> LawAnswer:
        """What one law answers for both corpora, or why it cannot."""
        try:
            answer = self.solve(replace(laws, law=dict.fromkeys(laws.law, name)))
        except PointsError as error:
            return LawAnswer(None, None, None, str(error), None)
        return LawAnswer(answer.domain_ratio, answer.low, answer.high, answer.binding, answer.target.model)

    def what_would_sharpen(self, context: Context, answer: Artifact, log: Log) -> Iterator[str]:
        question = context.question
        assert isinstance(answer, Recommendation)
        if not question.goal_kind.design_question or answer.low is None or answer.high is None:
            return
        half_width, asked = (answer.high - answer.low) / 2, question.design.tolerance
        if half_width <= asked or one_ratio(answer):
            return
        wide = f"half of the 90% interval of the domain ratio is {half_width:.3f}, design.tolerance is {asked:g}"
        if question.model.path == IMPORTED:
            yield f"{wide}: import more runs, best near this ratio and length"
            return
        if longer := studies_of_longer_runs(context.points, question):
            of_them = shlex.join(["cptlaw", "fit", str(context.study.folder), f"general_from=[{','.join(longer)}]"])
            yield f"longer runs of this model on other domains tell the loss on {question.corpora.general}: {of_them}"
        runs = ""
        # Which they are takes seconds to say.
        if not answer.identified and context.is_prepared:
            log("asking which runs would say where the optimum is")
            with contextlib.suppress(PointsError):
                runs = most_telling(_of_missed_peak(context))
        narrows = f"refine {context.study.word} trains what should narrow it most"
        line = f"{wide}: cptlaw {f'train {context.study.word} goes on' if begins_again(context) else narrows}"
        yield f"{line}: {runs}" if runs else line

    def asked_otherwise(self, question: Question, answer: Recommendation) -> tuple[str, ...]:
        """What an answer answers and what the question asks, of the keys that differ; empty: none does."""
        goals, target = (answer.goal, question.goal), answer.target
        pairs = {f"goal.{name}": tuple(getattr(goal, name) for goal in goals) for name in ("kind", *self.keys)}
        if not self.chooses_run:
            pairs |= {"model.name": (target.model, question.model.name)}
            pairs |= {"target.steps": (target.steps, question.target.steps)}
        batch = round(1e9 * target.D / target.steps * question.target.global_batch / question.tokens_per_step())
        pairs |= {"target.global_batch": (batch, question.target.global_batch)}
        if answer.asked:
            asked = (answer.asked, question.target)
            pairs["target.peak_learning_rate"] = tuple(of.peak_learning_rate for of in asked)
            pairs["target.schedule.pieces"] = tuple(pieces_as_given(of.schedule) for of in asked)
        peak = (answer.asked or question.target).peak_learning_rate
        factor = (answer.peak_learning_rate or 0.0) / peak if peak else 0.0
        if factor and not any(math.isclose(factor, one) for one in question.design.peaks):
            pairs["design.peaks"] = f"[{factor:g}]", f"[{','.join(f'{one:g}' for one in question.design.peaks)}]"
        other = {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}
        # As a shell and Hydra read them.
        each = [{key: "null" if pair[side] is None else pair[side] for key, pair in other.items()} for side in (0, 1)]
        sides = (shlex.join(f"{key}={value}" for key, value in of.items()) for of in each)
        return tuple(sides) if other else ()

    def outdated(self, context: Context, answer: Recommendation) -> str:
        """Why an answer is not of the question, the plan, the points or the fits as they are now; empty: it is."""
        if changed := self.asked_otherwise(context.question, answer):
            return f"it answers {changed[0]}, {changed[1]} is asked"
        if not answer.is_of(context.corpora):
            return f"it lacks losses or the ratio of {' or '.join(context.corpora)}"
        try:
            points = context.points
        except StudyError:
            return ""
        if answer.points not in ("", context.points_digest):
            return "it was not fitted to the points that there are now"
        if answer.fits and context.fits_digest not in ("", answer.fits):
            return "the laws were fitted anew since"
        gone, fitted = len(_gone_runs(context)), points.loc[points["role"] == "fit", "run"].nunique()
        return f"{gone} of the {fitted} runs behind it are not in the plan any more" if gone else ""

    def answer(self, context: Context) -> Recommendation:
        """The recommendation of a study. Raises StudyError: none, no mixture, of another question, or out of date."""
        question, study = context.question, context.study
        recommendation, path = Recommendation.read(study), Recommendation.path(study)
        if changed := self.asked_otherwise(question, recommendation):
            own, other = changed
            raise StudyError(
                f"{path}: answers {own}, but {other} is asked; give {own} to have that answer, or run cptlaw recommend "
                f"{study.word} {other} before"
            )
        averaged = list(dict.fromkeys(law for of_law in recommendation.weights.values() for law in of_law))
        if absent := [law for law in averaged if law not in question.law]:
            raise StudyError(
                f"{path}: the average of {', '.join(averaged)} answers, but {', '.join(absent)} is not among the laws "
                f"of this command; give law=[{','.join(averaged)}] to it, or run cptlaw recommend {study.word} before"
            )
        if why := self.outdated(context, recommendation):
            again = f"cptlaw fit {study.word}, then cptlaw recommend {study.word}"
            raise StudyError(f"{path}: out of date: {why}; run {again}")
        if recommendation.mixture is None:
            remedy = f"change the goal, and run cptlaw recommend {study.word}"
            raise StudyError(f"{path}: no mixture meets the goal ({recommendation.binding}); {remedy}")
        return recommendation

    def confirmation_runs(self, context: Context) -> list[PlannedRun]:
        _refuse_phases(context.question)
        recommendation = self.answer(context)
        fitted = {run.spec.hash for run in context.plan if run.role == "fit"}
        context = context.asking(with_peak(context.question, recommendation.peak_learning_rate))
        return confirmation_runs(context, self.places(context.question, recommendation), fitted)

    def why_these(self, context: Context, runs: Sequence[PlannedRun]) -> Iterator[str]:
        _, domain = context.corpora
        mixed = list(dict.fromkeys(percent(run.ratio_of(domain)) for run in runs))
        key = "confirm.around" if context.question.confirm.around else "confirm.neighbour; 0 leaves it out"
        yield from why_another_seed(context, runs)
        if len(mixed) > 1:
            limit = context.question.goal.kind == "trade-off"
            shown = "how the losses change" if limit else "whether the optimum is there"
            beside = f"the first is the answer, what is beside it ({key}) shows {shown}"
            yield f"confirmation runs at {', '.join(mixed)} {domain}: {beside}"

    def imported_runs(self, context: Context) -> list[PlannedRun]:
        return imported_runs(context, self.answer(context), self.chooses_run)

    def confirm(self, context: Context, runs: list[PlannedRun]) -> Confirmation:
        collect(context.study, context.question.corpora.general)
        return compare(context.fresh(), runs, self.outcome, self.steps)


def answer_rounds(goal: Goal, context: Context, log: Log) -> Recommendation:
    """Collect, fit and recommend, with a line on how wide the interval of the ratio is by the fits.

    Raises:
        ConfigError, PointsError, StudyError: there is no answer.
    """
    collect(context.study, context.question.corpora.general)
    goal.fit(context.fresh(), log)
    content = goal.recommend(context.fresh(), log)
    assert isinstance(content, Recommendation)
    if content.mixture is not None and content.low is not None and content.high is not None:
        ratio, half_width = content.mixture[context.question.corpora.domain], (content.high - content.low) / 2
        half = f"by the laws fitted to all points the domain ratio is {ratio:.3f}, half of its 90% interval"
        log(f"{half} {half_width:.3f} (design.tolerance={context.question.design.tolerance:g})")
    return content


def _refuse_other_runs(context: Context) -> None:
    """Raise StudyError where a run of the points is no longer in the plan, so that its learning rates are not known."""
    if gone := _gone_runs(context):
        folder, word = context.study.folder, context.study.word
        problem = f"{len(gone)} runs that are no longer in the plan, like {gone[0]}"
        raise StudyError(f"{folder}/points.parquet: {problem}; run cptlaw train {word}, then cptlaw collect {word}")


def _of_missed_peak(context: Context) -> Context:
    """The context of more runs: where the laws miss a run beside the answer, of those at the answer's peak alone."""
    question, answer = context.question, read_if_there(Recommendation, context.study)
    if answer is None or not answer.missed or answer.peak_learning_rate is None:
        return context
    peaks = [answer.peak_learning_rate / question.target.peak_learning_rate]
    return context.asking(replace(question, design=replace(question.design, peaks=peaks)))


def _gone_runs(context: Context) -> list[str]:
    points = context.points
    return sorted({*points.loc[points["role"] == "fit", "run"]} - {*context.schedules}) if context.plan else []


def _refuse_phases(question: Question) -> None:
    if question.continual.phases:
        count, allowed = len(question.continual.phases), "continual.phases=[], with the phases in a variant"
        raise ConfigError([f"continual.phases: {count}, but the laws know runs of one mixture; allowed: {allowed}"])
