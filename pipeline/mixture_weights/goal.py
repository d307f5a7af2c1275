"""goal=weights: a mixture of all corpora, by methods whose later runs follow from earlier results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.mixture_weights.artifacts import WeightsConfirmation, WeightsRecommendation
from pipeline.mixture_weights.comparison import compare, recommend_weights
from pipeline.mixture_weights.problems import weights_problems
from pipeline.mixture_weights.setting import Measured, Setting, measured_of, setting_of
from pipeline.mixture_weights.stages import confirmation_runs, search_runs, stages
from pipeline.plan.machine import required_precision
from pipeline.plan.runs import data_folder
from pipeline.plan.token_supply import supply_problems
from pipeline.question.goal import Goal, Log, Output
from pipeline.question.messages import ConfigError
from pipeline.question.schema import Question
from pipeline.study.collect import collect
from pipeline.study.folder import PlannedRun, Study, StudyError
from training.corpora.manifest import Manifest

if TYPE_CHECKING:
    from rich.console import RenderableType


class WeightsGoal(Goal):
    """Every method of `weights.methods` proposes weights; confirmation runs compare them at the target length."""

    many_domains = True

    def staged(self, question: Question) -> bool:
        return True

    def problems(self, question: Question) -> Iterator[str]:
        return weights_problems(question)

    def steps(self, question: Question, phase: str) -> int:
        # The phase's own number of steps is not used: weights.scales and weights.target decide.
        return max(1, question.weights.target) if phase == question.weights.phase else super().steps(question, phase)

    def runs(self, question: Question, study: Study, manifest: Manifest, precision: str) -> list[PlannedRun]:
        return search_runs(setting_of(question, manifest, precision), measured_of(study, question))

    def cost_notes(
        self, question: Question, study: Study, manifest: Manifest, precision: str
    ) -> Sequence[RenderableType]:
        from pipeline.mixture_weights.terminal_tables import stage_table

        return [stage_table(stages(setting_of(question, manifest, precision), measured_of(study, question)))]

    def collect_stage(self, question: Question, study: Study, log: Log) -> str:
        measured_of(study, question, anew=True)
        return ""

    def fit(self, question: Question, study: Study, log: Log) -> Output:
        return Output(["goal=weights: each method fits its own runs when it proposes weights; run cptlaw recommend"])

    def recommend(self, question: Question, study: Study, log: Log) -> Output:
        from pipeline.mixture_weights.terminal_tables import notes, weights_table

        content = recommend_weights(study, _setting(question, study), measured_of(study, question), log)
        return Output([weights_table(content), *(f"note: {line}" for line in notes(content))])

    def confirmation_runs(
        self, question: Question, study: Study, manifest: Manifest, precision: str
    ) -> list[PlannedRun]:
        content, setting = WeightsRecommendation.read(study), setting_of(question, manifest, precision)
        if set(content.mixture) != set(setting.domains) or content.target.steps != question.weights.target:
            raise StudyError(f"{study.folder}/recommendation.json: of another question; run cptlaw recommend again")
        runs = confirmation_runs(setting, content.proposals)
        if problems := list(supply_problems(runs, manifest, question)):
            raise ConfigError(problems)
        return runs

    def confirm(self, question: Question, study: Study, runs: list[PlannedRun]) -> Output:
        from pipeline.mixture_weights.terminal_tables import comparison_output

        measured = Measured(study, collect(study, question.corpora.general))
        content = WeightsRecommendation.read(study)
        return Output(comparison_output(compare(study, _setting(question, study), measured, content)))

    def answer(self, question: Question, study: Study) -> Output:
        from pipeline.mixture_weights.terminal_tables import comparison_output, weights_table

        comparison = comparison_output(WeightsConfirmation.read(study))
        return Output([weights_table(WeightsRecommendation.read(study)), *comparison])

    def report(self, question: Question, study: Study) -> list[Path]:
        from pipeline.mixture_weights.report import write_weights_report

        return [write_weights_report(study, question)]

    def constraint(self, question: Question) -> str:
        return f"The mean {question.weights.average} over the domains is to be as small as possible."


def _setting(question: Question, study: Study) -> Setting:
    return setting_of(question, Manifest.open(data_folder(question)), required_precision(question, study))


GOAL = WeightsGoal()
