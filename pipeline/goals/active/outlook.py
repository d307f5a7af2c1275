"""Which runs an active design may choose yet, and what it costs at most."""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence

from pipeline.goals.active.candidates import (
    CandidateRun,
    asked_run,
    budget,
    candidate_runs,
    cost_of,
    first_runs,
    given_budget,
    own_cost,
    pretrained,
    pretraining_runs,
    unit,
)
from pipeline.goals.active.rounds import chosen_runs, design_runs, ended_by, most_runs
from pipeline.question.design import budget_key, is_active
from pipeline.question.messages import ConfigError
from pipeline.study.context import Context
from pipeline.study.folder import PlannedRun, StudyError
from pipeline.study.number_format import at_least, cost_in


def plan_lines(context: Context, runs: Sequence[PlannedRun]) -> list[str]:
    """What an active design costs at most, and when it stops; `runs`, those for the fit so far, and their models'.

    Raises:
        ConfigError: as `refuse_budget`.
    """
    refuse_budget(context)
    question, chosen, unit_ = context.question, chosen_runs(context), context.once(unit)
    count = sum(one.trains for one in chosen.rounds)
    # A cost that is limited is the same whatever has been trained, other than the times of the plan.
    speed = " at the speed that prepare measured" * (unit_ == "device-hours")
    so_far = f"{count} round{'s' * (count > 1)} of runs so far, {cost_in(unit_, chosen.spent)} {unit_}{speed}"
    side = f", of up to {question.design.batch or question.launcher.at_once} runs side by side (design.batch)"
    begun = so_far if count else f"first round{side * question.launcher.elsewhere}"
    if last := ended_by(context, chosen.rounds):
        return [f"{begun}; no more follow: {last.ending} (design.tolerance={question.design.tolerance:g}){last.remedy}"]
    limit = f"{cost_in(unit_, context.once(budget))} {unit_}"
    if not later_runs(context, runs):
        why = f"what is left of {limit} is enough for no other run"
        if chosen.spent > context.once(budget):
            why = f"the runs so far cost more than {limit} ({budget_key(question)})"
        return [f"{begun}; no more follow: {why}"]
    beside = "" if question.model.path else " beside the target's pre-training"
    known = f"until the domain ratio is known within design.tolerance={question.design.tolerance:g}"
    return [f"{begun}; more rounds follow {known}, at most {limit}{beside}"]


def refuse_budget(context: Context) -> None:
    """Raise ConfigError where `design.budget` is below the runs that were chosen by it; those of refine are not."""
    limit, rounds = context.question.design.budget, chosen_runs(context).rounds
    spent = sum(run.cost for one in rounds if one.trains and not one.more for run in one.chosen)
    if limit is not None and limit < spent * (1 - 1e-9):
        allowed = f"{at_least(spent)} or more, the cost of the runs chosen so far, or null"
        raise ConfigError([f"{given_budget(context)}; allowed: {allowed}"])


def budget_lines(context: Context, runs: Sequence[PlannedRun]) -> Iterator[str]:
    """That the first runs are not those of large.first, and that the budget holds one domain ratio; a line each."""
    question, candidates = context.question, context.once(_candidates)
    domain, key, limit = question.corpora.domain, budget_key(question), context.once(budget)
    whole, of = 1.0, f" {context.once(unit)}"
    if key == "large.budget":
        whole, of = own_cost(context, asked_run(context)), " of the run asked about"
    given = f"{key}={limit / whole:.3g}"
    first, lacks = first_runs(context, candidates)
    cost = sum(cost_of(context, one.run, pretrained(context, ())) for one in first)
    if lacks and not chosen_runs(context).runs:
        yield f"large.first: {lacks}; others are chosen in place of all; give large.first=[], or runs that can be"
    elif cost > limit and not chosen_runs(context).runs:
        line = f"large.first: its runs cost {at_least(cost / whole)}{of}, more than {given}"
        yield f"{line}; others are chosen in place of all; give {key}={at_least(cost / whole)} or more"
    if (least := _least_of_two(context, runs)) is None:
        return
    while (
        more := _least_of_two(allowed := _within(context, float(at_least(least))), design_runs(allowed))
    ) is not None:
        # With more to spend a dearer run comes first.
        least = max(more, least * 1.01)
    (ratio,) = _ratios(runs, domain)
    line = f"{given} holds runs at one domain ratio alone, {ratio:g}, which cannot tell another"
    yield f"{line}; two ratios cost {at_least(least / whole)}{of}: give {key}={at_least(least / whole)} or more"


def _ratios(runs: Sequence[PlannedRun], domain: str) -> set[float]:
    """The domain ratios of runs for the fit."""
    return {run.ratio_of(domain) for run in runs if run.role == "fit" and domain in run.spec.mixture}


def _within(context: Context, limit: float) -> Context:
    """The same question within another budget."""
    question = context.question
    return context.asking(dataclasses.replace(question, design=dataclasses.replace(question.design, budget=limit)))


def _least_of_two(context: Context, runs: Sequence[PlannedRun]) -> float | None:
    """What these runs and one at another domain ratio cost; None: there are two ratios, or there will be."""
    question = context.question
    ratios = _ratios(runs, question.corpora.domain)
    others = [one for one in context.once(_candidates) if one.domain_ratio not in ratios]
    stays = all(one.domain_ratio in ratios for one in later_runs(context, runs))
    # Earlier studies have general losses at other ratios.
    if len(ratios) != 1 or not others or not stays or question.general_from:
        return None
    fitted = [run for run in runs if run.role == "fit" and question.corpora.domain in run.spec.mixture]
    begun = pretrained(context, [run.model for run in fitted])
    return _spent(context, runs) + min(cost_of(context, one.run, begun) for one in others)


def later_runs(context: Context, runs: Sequence[PlannedRun]) -> list[CandidateRun]:
    """The runs that may be chosen after `runs`, those for the fit so far, for what is left of the budget."""
    rounds = chosen_runs(context).rounds
    if ended_by(context, rounds):
        return []
    left, fitted = context.once(budget) - _spent(context, runs), _counted(context, runs)
    known, begun = {run.spec.hash for run in fitted}, pretrained(context, [run.model for run in fitted])
    return [
        one
        for one in context.once(_candidates)
        if one.run.spec.hash not in known and cost_of(context, one.run, begun) <= left
    ]


def begins_again(context: Context) -> bool:
    """Whether the choosing had stopped, and may choose more runs for the question as it is now."""
    # What is wrong with the files or the question says the step that reads them.
    with contextlib.suppress(StudyError, ConfigError):
        rounds = chosen_runs(context).rounds
        return bool(rounds and rounds[-1].stop and later_runs(context, design_runs(context)))
    return False


def again_lines(context: Context) -> Iterator[str]:
    """That train may choose more runs, since the rounds ended for another goal or design, and their cost; a line."""
    if is_active(context.question) and begins_again(context):
        left = cost_in(context.once(unit), context.once(budget) - chosen_runs(context).spent)
        why = "the rounds of runs ended for another goal or design: cptlaw train finds out whether this one needs more"
        yield f"{why}, at most {left} {context.once(unit)}"


def costliest_round(context: Context) -> list[PlannedRun]:
    """The most expensive runs that cptlaw refine may choose in a round, and the pre-training that they need."""
    chosen, plan = chosen_runs(context), {run.spec.hash for run in context.plan}
    begun = pretrained(context, [run.model for run in context.plan])
    fresh = [one.run for one in context.once(_candidates) if one.run.spec.hash not in plan]
    fresh.sort(key=lambda run: cost_of(context, run, begun), reverse=True)
    runs = fresh[: most_runs(context.question, chosen.rounds)]
    parents = context.once(pretraining_runs)
    return [*(parents[name] for name in dict.fromkeys(run.model for run in runs) if name not in begun), *runs]


def possible_steps(context: Context, runs: Sequence[PlannedRun]) -> list[int]:
    """Lengths of the runs for the fit so far and of those that may be chosen after them, steps, in increasing order."""
    fitted = {run.spec.end_step for run in runs if run.role == "fit" and run.spec.phase == "continual"}
    return sorted(fitted | {one.steps for one in later_runs(context, runs)})


def _spent(context: Context, runs: Sequence[PlannedRun]) -> float:
    """Cost of the chosen rounds, or of the first one that `runs` are."""
    return chosen_runs(context).spent or sum(own_cost(context, run) for run in _counted(context, runs))


def _counted(context: Context, runs: Sequence[PlannedRun]) -> list[PlannedRun]:
    """The runs that count in the budget: those for the fit, and the pre-training of all models but the target."""
    return [run for run in runs if run.role == "fit" or run.model != context.question.model.name]


def _candidates(context: Context) -> list[CandidateRun]:
    """The runs that can be chosen after the rounds of design.jsonl."""
    return candidate_runs(context, chosen_runs(context).chosen)
