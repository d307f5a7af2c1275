"""Which runs an active design may choose yet, and what it costs at most."""

from collections.abc import Sequence

from pipeline.goals.active.candidates import CandidateRun, budget, candidate_runs, cost_of, own_cost, pretrained, unit
from pipeline.goals.active.rounds import chosen_runs, has_ended
from pipeline.study.context import Context
from pipeline.study.folder import PlannedRun
from pipeline.study.number_format import cost_in


def plan_lines(context: Context, runs: Sequence[PlannedRun]) -> list[str]:
    """What an active design costs at most, and when it stops; `runs`, those for the fit so far, and their models'."""
    question, chosen, unit_ = context.question, chosen_runs(context), context.once(unit)
    count = sum(one.trains for one in chosen.rounds)
    so_far = f"{count} round{'s' * (count > 1)} of runs so far, {cost_in(unit_, chosen.spent)} {unit_}"
    side = f", of up to {question.design.batch or question.launcher.at_once} runs side by side (design.batch)"
    begun = so_far if count else f"first round{side * question.launcher.elsewhere}"
    if chosen.rounds and has_ended(context, chosen.rounds[-1]):
        return [f"{begun}; no more follow: {chosen.rounds[-1].stop} (design.tolerance={question.design.tolerance:g})"]
    limit = f"{cost_in(unit_, context.once(budget))} {unit_}"
    if not later_runs(context, runs):
        return [f"{begun}; no more follow: what is left of {limit} is enough for no other run"]
    beside = "" if question.model.path else " beside the target's pre-training"
    known = f"until the domain ratio is known within design.tolerance={question.design.tolerance:g}"
    return [f"{begun}; more rounds follow {known}, at most {limit}{beside}"]


def later_runs(context: Context, runs: Sequence[PlannedRun]) -> list[CandidateRun]:
    """The runs that may be chosen after `runs`, those for the fit so far, for what is left of the budget."""
    chosen = chosen_runs(context)
    if chosen.rounds and has_ended(context, chosen.rounds[-1]):
        return []
    fitted = [run for run in runs if run.role == "fit" or run.model != context.question.model.name]
    left = context.once(budget) - (chosen.spent or sum(own_cost(context, run) for run in fitted))
    known, begun = {run.spec.hash for run in fitted}, pretrained(context, [run.model for run in fitted])
    return [
        one
        for one in context.once(_candidates)
        if one.run.spec.hash not in known and cost_of(context, one.run, begun) <= left
    ]


def possible_steps(context: Context, runs: Sequence[PlannedRun]) -> list[int]:
    """Lengths of the runs for the fit so far and of those that may be chosen after them, steps, in increasing order."""
    fitted = {run.spec.end_step for run in runs if run.role == "fit" and run.spec.phase == "continual"}
    return sorted(fitted | {one.steps for one in later_runs(context, runs)})


def _candidates(context: Context) -> list[CandidateRun]:
    """The runs that can be chosen after the rounds of design.jsonl."""
    return candidate_runs(context, chosen_runs(context).chosen)
