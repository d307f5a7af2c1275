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
from pipeline.goals.weights.mixtures import Search, exact_weights
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
        search, weights = context.once(Search), context.question.weights
        runs = [first] if (first := search.pretraining) else []
        runs += [run for name in weights.methods for run in METHODS[name].runs(search)]
        runs = list({run.spec.hash: run for run in runs}.values())
        compared = confirmation_runs(context, _without_search(search))
        problems = list(supply_problems([*runs, *compared], context))
        available, needed = sum(search.available_tokens.values()), search.target_tokens
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
        search, weights = context.once(Search), context.question.weights
        stages = [Stage("pre-training", 1, first.spec.tokens)] if (first := search.pretraining) else []
        read: list[PlannedRun] = []
        for name in weights.methods:
            stages.append(Stage(f"search by {name}", *METHODS[name].count(search)))
            read += {run.spec.hash: run for run in METHODS[name].runs(search)}.values()
        count, seeds = sum(METHODS[name].proposals(search) for name in weights.methods), weights.confirm_seeds
        compared = [run for proposal in _without_search(search) for run in confirmation_runs(context, [proposal])]
        purpose = f"confirmation: {count} weights, {seeds} seeds"
        stages.append(Stage(purpose, count * seeds, count * seeds * search.target_tokens))
        counted = [run.spec for run in (*read, *compared)]
        once = {spec.hash: spec for spec in counted}.values()
        if len(once) < len(counted):
            tokens = sum(spec.tokens for spec in once) - sum(spec.tokens for spec in counted)
            stages.append(Stage("shared, counted once", len(once) - len(counted), tokens))
        total = Stage("all", sum(stage.runs for stage in stages), sum(stage.tokens for stage in stages))
        return PlanNotes(stages=[*stages, total], more=True)

    def collect_stage(self, context: Context, log: Log) -> str:
        study = context.study
        if any((study.runs / run.name / "points.jsonl").exists() for run in context.plan):
            collect(study, context.question.corpora.general)
        return ""

    def fit(self, context: Context, log: Log) -> FitSummary:
        line = "goal=weights: each method fits its own runs when it proposes weights"
        return FitSummary(notes=[f"{line}; run cptlaw recommend {context.study.word}"])

    def recommend(self, context: Context, log: Log) -> WeightsRecommendation:
        proposals = self._proposals(context, log)
        answer = next((proposal for proposal in proposals if proposal.method == "autoscale"), proposals[0])
        search, weights = context.once(Search), context.question.weights
        recommendation = WeightsRecommendation(
            goal=WeightsQuestion("weights", weights.phase, weights.average),
            target=WeightsTarget(context.question.model.name, weights.target, search.target_tokens),
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
        runs, search = self.runs(context), context.once(Search)
        if missing := [run for run in runs if not search.is_done(run)]:
            raise StudyError(
                f"{len(missing)} of {len(runs)} runs are not done or not collected, {missing[0].name} among them; "
                f"run cptlaw train {context.study.word}, then cptlaw collect {context.study.word}"
            )
        proposals = []
        for name in search.settings.methods:
            start = time.perf_counter()
            proposals += METHODS[name].propose(search)
            if (seconds := time.perf_counter() - start) > 2:
                log(f"{name} proposed: {seconds:.0f} s")
        return proposals

    def confirmation_runs(self, context: Context) -> list[PlannedRun]:
        content, search = WeightsRecommendation.read(context.study), context.once(Search)
        same = set(content.mixture) == set(search.domains)
        if not same or content.target.steps != search.settings.target:
            path = WeightsRecommendation.path(context.study)
            raise StudyError(f"{path}: of another question; run cptlaw recommend {context.study.word} again")
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


def _without_search(search: Search) -> list[Proposal]:
    """The proposals of methods that need no runs."""
    methods = [METHODS[name] for name in search.settings.methods]
    return [row for method in methods if method.count(search) == (0, 0) for row in method.propose(search)]


def confirmation_runs(context: Context, proposals: Sequence[Proposal]) -> list[PlannedRun]:
    """The runs that compare proposals at the target, one a seed; proposals of equal weights share their runs."""
    search, seed = context.once(Search), context.question.seed
    runs = [
        search.run(exact_weights(proposal.weights), search.settings.target, seed + number, "confirm")
        for proposal in proposals
        for number in range(search.settings.confirm_seeds)
    ]
    return list({run.spec.hash: run for run in runs}.values())
