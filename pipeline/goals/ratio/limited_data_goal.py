"""goal=limited-data: the domain ratio at which few tokens of the domain, each read once, give the least loss on it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from fitting import limited_data
from pipeline.goals.active.outlook import possible_steps
from pipeline.goals.goal import FitSummary, Log, PlanNotes
from pipeline.goals.ratio.answering_laws import TESTED, AnsweringLaws, Solution
from pipeline.goals.ratio.confirm import Place, ratios
from pipeline.goals.ratio.law_goal import LawGoal
from pipeline.goals.ratio.outcomes import NO_RUNS, Others, Rows, minimum_outcome
from pipeline.question.design import is_active, most_tokens
from pipeline.question.messages import ConfigError, finite_above, shown
from pipeline.question.schema import Question
from pipeline.study.artifacts import Outcome, Recommendation
from pipeline.study.context import Context
from pipeline.study.folder import PlannedRun
from pipeline.study.number_format import quantity
from pipeline.study.target import find_target
from training.keys import MOST_STEPS


class LimitedDataGoal(LawGoal):
    """Usage 2 of the D-CPT Law."""

    chooses_run = True
    keys = ("domain_tokens", "most_tokens")

    def problems(self, question: Question) -> Iterator[str]:
        goal, step = question.goal, question.tokens_per_step()
        longest = MOST_STEPS * step
        if not finite_above(goal.domain_tokens, step - 1) or (goal.domain_tokens or 0) > longest:
            value = f"goal.domain_tokens: {shown(goal.domain_tokens)} with goal.kind=limited-data"
            allowed = f"a step's {step:,} to {longest:.4g}, {MOST_STEPS:,} steps"
            yield f"{value}; allowed: tokens of the domain to be read once, {allowed}"
        elif goal.most_tokens is not None and not (goal.domain_tokens or 0) < goal.most_tokens <= longest:
            allowed = f"null, or above {goal.domain_tokens:g}, goal.domain_tokens, up to {longest:.4g}"
            yield f"goal.most_tokens: {goal.most_tokens:g}; allowed: {allowed}"

    def plan_notes(self, context: Context, runs: Sequence[PlannedRun]) -> PlanNotes:
        notes, fitted = super().plan_notes(context, runs), [run.spec for run in runs if run.role == "fit"]
        longest = max((spec.end_step * spec.tokens_per_step for spec in fitted), default=math.inf)
        if fitted and is_active(context.question):
            longest = max(possible_steps(context, runs)) * fitted[0].tokens_per_step
        return replace(notes, lines=[*notes.lines, *_too_many(context.question, TESTED * longest / 1e9)])

    def fit(self, context: Context, log: Log) -> FitSummary:
        own = context.points[(context.points["role"] == "fit") & (context.points["corpus"] == context.corpora[1])]
        if problems := _too_many(context.question, TESTED * own["D"].max()):
            raise ConfigError(problems)  # Not kept in the study: no recommendation would answer it.
        return super().fit(context, log)

    def solve(self, laws: AnsweringLaws) -> Solution:
        question, domain = laws.question, laws.corpora[1]
        base = find_target(question, laws.points)
        assert question.goal.domain_tokens is not None
        tokens = question.goal.domain_tokens / 1e9
        most = most_tokens(question) / 1e9
        target, tried = base.lasting(limited_steps(question, 1.0)), list[object]()
        longest = TESTED * max(fit.ranges.get("D", (0.0, math.inf))[1] for fit in laws.fits[domain].values())
        if problems := _too_many(question, longest):
            raise ConfigError(problems)
        most = min(most, longest)
        # Which laws count follows from the length of the answer: those at it have to be those that gave it.
        while True:
            laws = laws.at(target)
            tried.append(laws.weights)
            fit = laws.fit(domain)
            by_length = base.columns_by_length(domain, fit, tokens, most)
            answer = limited_data(fit, base.N, tokens, most_tokens=most, at=by_length)
            ratio, low, high = answer.values["domain_ratio"]
            target = base.lasting(limited_steps(question, ratio))
            if (there := laws.at(target).weights) in tried:
                break
        warnings, identified = answer.warnings, not (low <= 1.01 * tokens / most and high >= 0.99)
        if there != tried[-1]:
            identified = False
            warnings.append(f"{domain}: by the laws that count at the length of the best run another length is best")
        predicted = {corpus: laws.loss(target, corpus, ratio) for corpus in laws.corpora}
        # The fitter speaks of billions.
        binding = answer.status.message.replace(f"most_tokens = {most:g}", f"goal.most_tokens={1e9 * most:g}")
        if answer.status.code == "limited" and most == longest:
            binding = f"{TESTED:.0f} times the longest run for the fit: intervals of a longer one were not tested"
        return Solution(target, ratio, low, high, predicted, binding, warnings, identified)

    def places(self, question: Question, recommendation: Recommendation) -> list[Place]:
        """Those whose run is no longer than the answer's may be, which is another one than the best of all."""
        model, (own, *beside) = recommendation.target.model, ratios(question, recommendation)
        least = (question.goal.domain_tokens or 0.0) / most_tokens(question)
        allowed = [own, *(ratio for ratio in beside if ratio >= least)]
        return [Place(model, ratio, limited_steps(question, ratio)) for ratio in allowed]

    def steps(self, question: Question, domain_ratio: float) -> int:
        return limited_steps(question, domain_ratio) if domain_ratio else 0

    def outcome(self, question: Question, answer: Recommendation, rows: Rows, others: Others = NO_RUNS) -> Outcome:
        return minimum_outcome(question, rows, "domain_ratio", (answer.low, answer.high), others=others)

    def constraint(self, question: Question) -> str:
        return f"It reads {quantity(question.goal.domain_tokens or 0)} tokens of {question.corpora.domain}, each once."


def _too_many(question: Question, most: float) -> list[str]:
    """That `goal.domain_tokens` are more than `most`, billions, the tokens of the furthest run that is predicted."""
    if (tokens := question.goal.domain_tokens or 0.0) <= 1e9 * most or math.isnan(most):
        return []
    allowed = f"up to {1e9 * most:g}, {TESTED:.0f} times the longest run for the fit, as far as intervals were tested"
    return [f"goal.domain_tokens: {tokens:g}; allowed: {allowed}; longer runs for the fit allow more"]


def limited_steps(question: Question, domain_ratio: float) -> int:
    """Steps of a run that reads `goal.domain_tokens` at a domain ratio, no token twice, and `most_tokens` in all."""
    assert question.goal.domain_tokens is not None
    tokens = min(question.goal.domain_tokens / domain_ratio, most_tokens(question))
    return max(1, math.floor(tokens / question.tokens_per_step()))
