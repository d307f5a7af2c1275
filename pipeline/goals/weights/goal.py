"""goal=weights: a mixture of all corpora, by methods whose later runs follow from earlier results."""

import time
from collections.abc import Iterator, Sequence

from pipeline.goals.goal import FitSummary, Goal, Log, PlanNotes, Stage
from pipeline.goals.weights.artifacts import (
    Proposal,
    WeightsConfirmation,
    WeightsQuestion,
    WeightsRecommendation,
    WeightsTarget,
)
from pipeline.goals.weights.comparison import compare
from pipeline.goals.weights.methods.registry import METHODS
from pipeline.goals.weights.mixtures import (
    available_tokens,
    domain_names,
    exact_weights,
    measured,
    mixture_run,
    shared_pretraining,
    target_tokens,
)
from pipeline.goals.weights.problems import weights_problems
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
        """The runs that the methods read; the text must be enough also to confirm weights that need no search."""
        weights = context.question.weights
        runs = [first] if (first := shared_pretraining(context)) else []
        runs += [run for name in weights.methods for run in METHODS[name].runs(context)]
        runs = list({run.spec.hash: run for run in runs}.values())
        compared = confirmation_runs(context, _without_search(context))
        problems = list(supply_problems([*runs, *compared], context))
        available, needed = sum(available_tokens(context).values()), target_tokens(context)
        if available < needed and "autoscale" in weights.methods:
            problems.append(
                f"weights.target: {weights.target} steps are {needed:,} tokens, and all domains have {available:,.0f} "
                f"with weights.passes={weights.passes:g}; give fewer steps, or more passes"
            )
        if problems:
            raise ConfigError(problems)
        return sorted(runs, key=lambda run: (run.role != "pretrain", -run.spec.tokens))

    def plan_notes(self, context: Context, runs: Sequence[PlannedRun]) -> PlanNotes:
        """The cost of the search and of the confirmation, known before training; runs of several methods count once."""
        weights = context.question.weights
        stages = [Stage("pre-training", 1, first.spec.tokens)] if (first := shared_pretraining(context)) else []
        read: list[PlannedRun] = []
        for name in weights.methods:
            stages.append(Stage(f"search by {name}", *METHODS[name].count(context)))
            read += {run.spec.hash: run for run in METHODS[name].runs(context)}.values()
        count, seeds = sum(METHODS[name].proposals(context) for name in weights.methods), weights.confirm_seeds
        compared = [run for proposal in _without_search(context) for run in confirmation_runs(context, [proposal])]
        purpose = f"confirmation: {count} weights, {seeds} seeds"
        stages.append(Stage(purpose, count * seeds, count * seeds * target_tokens(context)))
        counted = [run.spec for run in (*read, *compared)]
        once = {spec.hash: spec for spec in counted}.values()
        if len(once) < len(counted):
            tokens = sum(spec.tokens for spec in once) - sum(spec.tokens for spec in counted)
            stages.append(Stage("shared, counted once", len(once) - len(counted), tokens))
        total = Stage("all", sum(stage.runs for stage in stages), sum(stage.tokens for stage in stages))
        return PlanNotes(stages=[*stages, total])

    def collect_stage(self, context: Context, log: Log) -> str:
        study = context.study
        if any((study.runs / run.name / "points.jsonl").exists() for run in context.plan):
            collect(study, context.question.corpora.general)
        return ""

    def fit(self, context: Context, log: Log) -> FitSummary:
        return FitSummary(
            notes=["goal=weights: each method fits its own runs when it proposes weights; run cptlaw recommend"]
        )

    def recommend(self, context: Context, log: Log) -> WeightsRecommendation:
        proposals = self._proposals(context, log)
        answer = next((proposal for proposal in proposals if proposal.method == "autoscale"), proposals[0])
        weights = context.question.weights
        recommendation = WeightsRecommendation(
            goal=WeightsQuestion("weights", weights.phase, weights.average),
            target=WeightsTarget(context.question.model.name, weights.target, target_tokens(context)),
            method=answer.method,
            mixture=answer.weights,
            low=answer.low,
            high=answer.high,
            predicted=answer.predicted,
            warnings=list(dict.fromkeys(answer.lines)),
            proposals=proposals,
        )
        recommendation.write(context.study)
        return recommendation

    def _proposals(self, context: Context, log: Log) -> list[Proposal]:
        """The proposals of all methods, in the question's order; a line for a method of over two seconds."""
        runs = self.runs(context)
        if missing := [run for run in runs if not context.once(measured).done(run)]:
            raise StudyError(
                f"{len(missing)} of {len(runs)} runs are not done or not collected, {missing[0].name} among them; "
                "run cptlaw train, then cptlaw collect"
            )
        proposals = []
        for name in context.question.weights.methods:
            start = time.perf_counter()
            proposals += METHODS[name].propose(context)
            if (seconds := time.perf_counter() - start) > 2:
                log(f"{name} proposed: {seconds:.0f} s")
        return proposals

    def confirmation_runs(self, context: Context) -> list[PlannedRun]:
        content = WeightsRecommendation.read(context.study)
        same = set(content.mixture) == set(domain_names(context))
        if not same or content.target.steps != context.question.weights.target:
            path = WeightsRecommendation.path(context.study)
            raise StudyError(f"{path}: of another question; run cptlaw recommend again")
        runs = confirmation_runs(context, content.proposals)
        if problems := list(supply_problems(runs, context)):
            raise ConfigError(problems)
        return runs

    def confirm(self, context: Context, runs: list[PlannedRun]) -> WeightsConfirmation:
        collect(context.study, context.question.corpora.general)
        recommendation = WeightsRecommendation.read(context.study)
        of_proposals = [confirmation_runs(context, [proposal]) for proposal in recommendation.proposals]
        return compare(context.fresh(), recommendation, of_proposals)

    def constraint(self, question: Question) -> str:
        return f"The mean {question.weights.average} over the domains is to be as small as possible."


def _without_search(context: Context) -> list[Proposal]:
    """The proposals of methods that need no runs."""
    methods = [METHODS[name] for name in context.question.weights.methods]
    return [row for method in methods if method.count(context) == (0, 0) for row in method.propose(context)]


def confirmation_runs(context: Context, proposals: Sequence[Proposal]) -> list[PlannedRun]:
    """The runs that compare proposals at the target, one a seed; proposals of equal weights share their runs."""
    weights, seed = context.question.weights, context.question.seed
    runs = [
        mixture_run(context, exact_weights(proposal.weights), weights.target, seed + number, "confirm")
        for proposal in proposals
        for number in range(weights.confirm_seeds)
    ]
    return list({run.spec.hash: run for run in runs}.values())
