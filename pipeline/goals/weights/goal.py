"""goal=weights: a mixture of all corpora, by methods whose later runs follow from earlier results."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.goals.goal import FitSummary, Goal, Log, PlanNotes
from pipeline.goals.weights.artifacts import WeightsConfirmation, WeightsRecommendation
from pipeline.goals.weights.comparison import compare, recommend_weights
from pipeline.goals.weights.mixtures import Measured, domain_names, measured_of
from pipeline.goals.weights.problems import weights_problems
from pipeline.goals.weights.stages import confirmation_runs, search_runs, stages
from pipeline.plan.token_supply import supply_problems
from pipeline.question.messages import ConfigError
from pipeline.question.schema import Question
from pipeline.study.collect import collect
from pipeline.study.context import Context
from pipeline.study.folder import PlannedRun, StudyError


class WeightsGoal(Goal):
    """Every method of `weights.methods` proposes weights; confirmation runs compare them at the target length."""

    def is_staged(self, question: Question) -> bool:
        return True

    def problems(self, question: Question) -> Iterator[str]:
        return weights_problems(question)

    def runs(self, context: Context) -> list[PlannedRun]:
        return search_runs(context, measured_of(context))

    def plan_notes(self, context: Context) -> PlanNotes:
        return PlanNotes(stages=stages(context, measured_of(context)))

    def collect_stage(self, context: Context, log: Log) -> str:
        measured_of(context, anew=True)
        return ""

    def fit(self, context: Context, log: Log) -> FitSummary:
        return FitSummary(
            notes=["goal=weights: each method fits its own runs when it proposes weights; run cptlaw recommend"]
        )

    def recommend(self, context: Context, log: Log) -> WeightsRecommendation:
        return recommend_weights(context, measured_of(context), log)

    def confirmation_runs(self, context: Context) -> list[PlannedRun]:
        content = WeightsRecommendation.read(context.study)
        same = set(content.mixture) == set(domain_names(context))
        if not same or content.target.steps != context.question.weights.target:
            place = f"{context.study.folder}/recommendation.json"
            raise StudyError(f"{place}: of another question; run cptlaw recommend again")
        runs = confirmation_runs(context, content.proposals)
        if problems := list(supply_problems(runs, context)):
            raise ConfigError(problems)
        return runs

    def confirm(self, context: Context, runs: list[PlannedRun]) -> WeightsConfirmation:
        measured = Measured(context.study, collect(context.study, context.question.corpora.general))
        return compare(context, measured, WeightsRecommendation.read(context.study))

    def constraint(self, question: Question) -> str:
        return f"The mean {question.weights.average} over the domains is to be as small as possible."
