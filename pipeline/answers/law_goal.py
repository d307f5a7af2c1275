"""What the goals that ask fitted laws have in common: trade-off, limited data, compute."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pipeline.question.goal import Goal, Log, Output, TrackedAnswer
from pipeline.question.messages import ConfigError
from pipeline.question.schema import Question

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import RenderableType

    from pipeline.answers.confirm import Place
    from pipeline.answers.design_candidates import Setting
    from pipeline.answers.solvers import Asked, Found
    from pipeline.study.artifacts import ConfirmationRow, Outcome, Recommendation
    from pipeline.study.folder import PlannedRun, Study
    from training.corpora.manifest import Manifest


class LawGoal(Goal):
    """A domain ratio beside general text, by laws fitted to the losses of both."""

    keys: tuple[str, ...] = ()
    """Keys of the goal that a confirmation must have in common with its recommendation."""

    @abstractmethod
    def solve(self, asked: Asked) -> Found:
        """The answer by the laws of `asked`."""

    @abstractmethod
    def places(self, question: Question, recommendation: Recommendation) -> list[Place]:
        """The confirmation runs without their seeds; the recommended run first."""

    @abstractmethod
    def outcome(self, question: Question, recommendation: Recommendation, rows: list[ConfirmationRow]) -> Outcome:
        """Whether confirmation runs confirm the recommended optimum."""

    def problems(self, question: Question) -> Iterator[str]:
        return iter(())

    def runs(self, question: Question, study: Study, manifest: Manifest, precision: str) -> list[PlannedRun]:
        from pipeline.answers.active_design import design_runs

        return design_runs(question, study, manifest, precision)

    def staged(self, question: Question) -> bool:
        from pipeline.question.design import is_active

        return is_active(question)

    def cost_notes(
        self, question: Question, study: Study, manifest: Manifest, precision: str
    ) -> Sequence[RenderableType]:
        from pipeline.answers.active_design import plan_lines
        from pipeline.question.phases import describe_phases
        from pipeline.question.variants import variants

        places: dict[str, list[str]] = {}
        for name, _, part in variants(question):
            if part.continual.phases:
                line = describe_phases(part.continual, part.corpora)
                places.setdefault(line, []).append(name and f"variants.{name}")
        notes = [line if "" in names else f"{', '.join(names)}: {line}" for line, names in places.items()]
        if question.continual.phases:
            notes.append(
                "the laws know runs of one mixture: fit reads each run up to its first change, recommend needs "
                "continual.phases=[]"
            )
            return notes
        return [*notes, *(plan_lines(question, study, manifest, precision) if self.staged(question) else [])]

    def collect_stage(self, question: Question, study: Study, log: Log) -> str:
        from pipeline.answers.active_design import next_round

        if not self.staged(question):
            return ""
        asked = partial(self.recommended, question, study, log)
        found = next_round(_setting(question, study), study, recommended=asked)
        return found.line() if found else ""

    def recommended(self, question: Question, study: Study, log: Log) -> tuple[float, float] | None:
        """The recommended ratio and the half-width of its interval, by fits to all points so far."""
        from fitting import PointsError
        from pipeline.study.artifacts import Recommendation
        from pipeline.study.collect import collect
        from pipeline.study.folder import StudyError

        log("the tolerance seems to be reached; fitting the laws to all points, to see what cptlaw recommend says")
        try:
            collect(study, question.corpora.general)
            self.fit(question, study, log)
            self.recommend(question, study, log)
        except (StudyError, PointsError):
            return None  # Too few points for a law: more runs are needed.
        content = Recommendation.read(study)
        if content.mixture is None or content.low is None or content.high is None:
            return None
        if not any(row.split == "ratio" for row in content.held_out):
            return None  # The law is not tested at a ratio that it was not fitted to: more ratios are needed.
        return content.mixture[question.corpora.domain], (content.high - content.low) / 2

    def add_round(self, question: Question, study: Study) -> str:
        from pipeline.answers.active_design import is_answered, learn_from_confirmation, next_round

        if not self.design_question:
            return super().add_round(question, study)
        _refuse_phases(question)
        setting = _setting(question, study)
        if not is_answered(setting, study):
            return ""
        learned = learn_from_confirmation(setting, study)
        found = next_round(setting, study, more=True)
        lines = [f"{len(learned)} confirmation runs are points for the fit now"] if learned else []
        return "\n".join([*lines, *([found.line()] if found else [])])

    def answer_line(self, question: Question, study: Study) -> str:
        from pipeline.report.terminal_tables import answer_line
        from pipeline.study.artifacts import Recommendation

        return answer_line(Recommendation.read(study), question) if Recommendation.path(study).exists() else ""

    def fit(self, question: Question, study: Study, log: Log) -> Output:
        from pipeline.report.terminal_tables import held_out_table
        from pipeline.study.collect import of_domain, read_points, schedules
        from pipeline.study.fits import back_test, first_mixture, fit_all, trust, with_fitted_laws

        points, rates = of_domain(read_points(study), question), schedules(study.read_plan())
        own = points[points["role"] == "fit"]
        if later := len(own) - len(first_mixture(own)):
            log(
                f"left out of every fit: {later} of {len(own)} points, measured after the mixture of their run had "
                "changed (mixture_phase 2 or more); the laws know runs of one mixture"
            )
        fits = fit_all(study, question, points, rates, log)
        tested = back_test(study, with_fitted_laws(question, fits), points, rates)
        return Output([held_out_table(tested), *trust(tested)])

    def recommend(self, question: Question, study: Study, log: Log) -> Output:
        from pipeline.answers.recommend import recommend
        from pipeline.report.terminal_tables import recommendation_table
        from pipeline.study.collect import of_domain, read_points
        from pipeline.study.fits import read_fits

        _refuse_phases(question)
        points = of_domain(read_points(study), question)
        content = recommend(study, question, points, read_fits(study, question), self.solve)
        notes = [
            f"note: {line}" for line in [*content.warnings, *self._what_would_narrow(question, study, content, log)]
        ]
        return Output([recommendation_table(content, question), *notes], answered=content.mixture is not None)

    def _what_would_narrow(self, question: Question, study: Study, content: Recommendation, log: Log) -> Iterator[str]:
        """A line where the interval is wider than `design.tolerance`; with the runs, where it says nothing at all."""
        from fitting import PointsError
        from pipeline.answers.active_design import most_telling
        from pipeline.plan.runs import data_folder
        from pipeline.study.folder import IMPORTED

        if not self.design_question or content.low is None or content.high is None:
            return
        half_width, asked = (content.high - content.low) / 2, question.design.tolerance
        if half_width <= asked:
            return
        if question.model.path == IMPORTED:
            yield f"half-width {half_width:.3f}: import more runs, best near this ratio and length"
            return
        runs = ""
        # Which they are takes seconds to say.
        if not content.identified and (data_folder(question) / "manifest.json").exists():
            log("asking which runs would say where the optimum is")
            with contextlib.suppress(PointsError):
                runs = most_telling(_setting(question, study), study)
        line = (
            f"half-width {half_width:.3f}, design.tolerance {asked:g}: cptlaw refine trains what should narrow it most"
        )
        yield f"{line}: {runs}" if runs else line

    def confirmation_runs(
        self, question: Question, study: Study, manifest: Manifest, precision: str
    ) -> list[PlannedRun]:
        from pipeline.answers.confirm import confirmation_plan

        _refuse_phases(question)
        return confirmation_plan(question, study, manifest, precision, self.keys, self.places)

    def imported_runs(self, question: Question, study: Study) -> list[PlannedRun]:
        from pipeline.answers.confirm import imported_runs

        return imported_runs(question, study, self.keys)

    def confirm(self, question: Question, study: Study, runs: list[PlannedRun]) -> Output:
        from pipeline.answers.confirm import compare
        from pipeline.report.terminal_tables import confirmation_table
        from pipeline.study.collect import collect, of_domain
        from pipeline.study.fits import read_fits

        points = of_domain(collect(study, question.corpora.general), question)
        content = compare(study, question, runs, points, read_fits(study, question), self.outcome)
        return Output([confirmation_table(content.confirmations), content.outcome.sentence])

    def answer(self, question: Question, study: Study) -> Output:
        from pipeline.report.terminal_tables import answer_table

        return Output([answer_table(study, question)])

    def report(self, question: Question, study: Study) -> list[Path]:
        from pipeline.report.write import write_report

        path = write_report(study, question)
        return [path, study.folder / "report.html"] if question.corpora.domains else [path]

    def tracked_answer(self, question: Question, study: Study) -> TrackedAnswer:
        from pipeline.answers.tracked import tracked_answer

        return tracked_answer(question, study)


def _refuse_phases(question: Question) -> None:
    if question.continual.phases:
        raise ConfigError(
            [
                f"continual.phases: {len(question.continual.phases)}, but the laws know runs of one mixture; "
                "allowed: continual.phases=[], with the phases in a variant"
            ]
        )


def _setting(question: Question, study: Study) -> Setting:
    from pipeline.answers.design_candidates import Setting
    from pipeline.plan.machine import required_precision
    from pipeline.plan.runs import data_folder
    from training.corpora.manifest import Manifest

    return Setting(question, Manifest.open(data_folder(question)), required_precision(question, study))
