"""Runs chosen round by round: what is measured decides on the next, and design.jsonl keeps every choice.

A round follows from the points of those before it, whose runs are done, the question and its seed alone, and is written
whole before its runs are planned: a command that was stopped at any moment goes on as if it had not been.
"""

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from math import inf

import pandas as pd

from fitting import PointsError, design
from pipeline.goals.active.candidates import (
    CandidateRun,
    beside_nearest,
    budget,
    candidate_points,
    candidate_runs,
    cost_of,
    deciding_laws,
    first_runs,
    given_budget,
    is_near,
    least_cost,
    losses_before,
    planned_again,
    pretrained,
    run_beyond,
    target_row,
    unit,
)
from pipeline.goals.active.history import (
    APART_ONLY,
    BUDGET,
    CANDIDATES,
    CONFIRMATION,
    TOLERANCE,
    ChosenRun,
    DesignRound,
    asked_of,
    beyond_reason,
    is_enough,
    read_rounds,
    write_rounds,
)
from pipeline.plan.processes import workers
from pipeline.plan.runs import by_domain, planned_runs, pretraining_runs, starting_order
from pipeline.plan.token_supply import supply_problems
from pipeline.question.design import budget_key, candidate_lengths, is_active, schedules_of_peaks
from pipeline.question.messages import ConfigError
from pipeline.question.schema import Question
from pipeline.study.artifacts import Recommendation, read_if_there
from pipeline.study.collect import measured_points, of_domain
from pipeline.study.context import Context
from pipeline.study.earlier import with_earlier
from pipeline.study.fitted_points import are_all_fitted, selected
from pipeline.study.folder import PlannedRun, StudyError
from pipeline.study.number_format import at_least

Recommended = Callable[[], tuple[float, float, bool] | None]
"""Domain ratio and half-width of its 90% interval, as `cptlaw recommend` gives them, and whether they hold."""


@dataclass(frozen=True)
class Chosen:
    """The rounds of a question, and the runs that they chose."""

    rounds: list[DesignRound]
    runs: list[PlannedRun]

    @property
    def chosen(self) -> list[ChosenRun]:
        """The same runs, as the rounds have them."""
        return [run for one in self.rounds for run in one.chosen]

    @property
    def spent(self) -> float:
        """Cost of all chosen runs, and of the pre-training of their models but the target, in `unit`."""
        return sum(run.cost for run in self.chosen)


def design_runs(context: Context) -> list[PlannedRun]:
    """The runs for the fit: the grid where the question has one, and those of design.jsonl, or the first round.

    Raises:
        ConfigError: a corpus too short for them; a line for each.
    """
    question, active = context.question, is_active(context.question)
    runs = [] if active else planned_runs(context)
    for single in map(context.asking, by_domain(question)):
        chosen = chosen_runs(single)
        if active and not chosen.runs and single.question.corpora.domain == question.corpora.domain:
            chosen = _planned(single, [first_round(single)])
        begun = pretrained(single, [run.model for run in chosen.runs]) if active else ()
        runs += [parent for name, parent in single.once(pretraining_runs).items() if name in begun]
        runs += chosen.runs
    # The first of equal ones: the grid's runs know their variant.
    runs = list({run.spec.hash: run for run in reversed(runs)}.values())
    if problems := list(supply_problems(runs, context)):
        raise ConfigError(problems)
    return starting_order(runs)


def chosen_runs(context: Context) -> Chosen:
    """The rounds of design.jsonl whose runs the question still has, and those runs."""
    return _planned(context, read_rounds(context.study))


def first_round(context: Context) -> DesignRound:
    """The runs to begin with, by the question alone.

    Raises:
        ConfigError: a budget below the runs that it needs, or candidates that all lack what the target has.
    """
    try:
        added = _round(context, Chosen([], []), None, False)
    except PointsError as error:
        keys = {"N": "ladder", "D": "large.lengths" if context.question.is_large() else "design.lengths"}
        at = next((key for name, key in keys.items() if f"all have {name} =" in str(error)), "design")
        enough = context.once(budget) >= _least_for_tokens(context)
        raise ConfigError([f"{at}: {error}" if enough else _too_small(context)]) from None
    if not added.chosen:
        raise ConfigError([_too_small(context)])
    return added


def _too_small(context: Context) -> str:
    """What the budget of a first round is at least, a line."""
    question, key, limit = context.question, budget_key(context.question), context.once(budget)
    least, which = least_cost(context), "the cheapest run"
    if (of_two := _least_for_tokens(context)) > least:
        least, which = of_two, "the cheapest run that is evaluated at a second length"
    if key == "large.budget":
        allowed = f"{at_least(question.large.budget * least / limit)} or more, the part that {which} costs"
        given = f"{question.large.budget:g} of the run asked about"
        return f"{key}: {given}; allowed: {allowed}, or shorter runs in large.lengths"
    return f"{given_budget(context)}; allowed: {at_least(least)} or more, the cost of {which}, or null"


def _least_for_tokens(context: Context) -> float:
    """Cost of the cheapest candidate with which those that cost no more differ in D, which laws need; 0: none is so."""
    corpus, laws, section = deciding_laws(context.question)
    points = candidate_points(context, candidate_runs(context), {}, corpus, section, pretrained(context, ()))
    points = points.sort_values("cost", kind="stable")
    needed = any("D" in law.varies for law in laws) and points["D"].nunique() > 1
    return float(points.loc[points["D"] != points["D"].iloc[0], "cost"].min()) if needed else 0.0


def next_round(context: Context, more: bool = False, recommended: Recommended | None = None) -> DesignRound | None:
    """Choose the next round, or stop, and write it to design.jsonl; without `more` not beyond tolerance and budget.

    `recommended` is asked where the posterior is within the tolerance, since only a recommendation knows the laws'
    held-out errors; None: the posterior alone decides.

    Returns:
        The round; None while runs of those before are not done, and where choosing has stopped and nothing changed.

    Raises:
        PointsError: the laws cannot be asked this.
    """
    study = context.study
    written, chosen = read_rounds(study), chosen_runs(context)
    points = None
    if (chosen.runs or not is_active(context.question)) and (points := _points_of_all(context)) is None:
        return None
    known = [] if points is None else points["run"]
    if not more and _ended(chosen.rounds, _state(context, known)):
        return None
    added = _round(context, chosen, points, more, recommended)
    # Of several machines that choose, the first one counts: another processor may weigh nearly equal runs otherwise.
    if (meanwhile := read_rounds(study)) != written:
        return meanwhile[-1]
    write_rounds(study, [*written, added])
    return added


def _points_of_all(context: Context) -> pd.DataFrame | None:
    """The points of all runs for the fit; None while one is not done."""
    plan = design_runs(context)
    return _measured(context, plan) if all(context.study.state(run) == "done" for run in plan) else None


def _measured(context: Context, runs: list[PlannedRun]) -> pd.DataFrame:
    """The points of runs, as far as they are trained, of the domain that is asked about."""
    question = context.question
    return with_earlier(of_domain(measured_points(context.study, runs, question.corpora.general), question), question)


def add_confirmation_runs(context: Context) -> list[PlannedRun]:
    """Make the finished confirmation runs points for the fit, as a round of design.jsonl; returns them."""
    study = context.study
    written, chosen = read_rounds(study), chosen_runs(context)
    known, made = {run.spec.hash for run in chosen.runs}, []
    peaks = schedules_of_peaks(context.question)
    for run in context.plan:
        if run.role != "confirm" or run.variant or run.spec.hash in known or study.state(run) != "done":
            continue
        ratio = run.ratio_of(context.question.corpora.domain)
        peak = peaks.get(run.spec.schedule)
        own = CandidateRun(run.model, ratio, run.spec.steps, run.spec.seed, peak, [], [run])
        one = _chosen(context, own, None, [run.model])
        made += [one] if planned_again(context, one, confirmed=True) else []
    if not made:
        return []
    added = _empty_round(context, chosen, [run.name for run in chosen.runs])
    write_rounds(study, [*written, added := dataclasses.replace(added, chosen=made, reason=CONFIRMATION)])
    return _planned(context, [added]).runs


def is_answered(context: Context) -> bool:
    """Whether recommendation.json is of fits to the points of all runs, if cptlaw refine chose the last of them."""
    rounds = [one for one in chosen_runs(context).rounds if one.chosen and one.reason != CONFIRMATION]
    if not rounds or not rounds[-1].more:
        return True
    answer, points = read_if_there(Recommendation, context.study), _points_of_all(context)
    fitted = answer.fit_points if answer else None
    return points is not None and bool(fitted) and are_all_fitted(fitted, points, context.question)


def most_telling(context: Context) -> str:
    """The runs that `cptlaw refine` would choose now and what they should bring, in words; nothing is written.

    Raises:
        PointsError: the laws cannot be asked this.
    """
    study = context.study
    plan = [run for run in study.read_plan() if run.role != "confirm" and study.state(run) == "done"]
    return _round(context, chosen_runs(context), _measured(context, plan), True).next_runs()


def ended_by(context: Context, rounds: Sequence[DesignRound]) -> DesignRound | None:
    """Which of these rounds stopped the choosing, where nothing that decided has changed since; None: none."""
    # What is wrong with the points says the step that reads them.
    with contextlib.suppress(StudyError):
        points = _points_of_all(context) if any(one.stop for one in rounds) else None
        return None if points is None else _ended(rounds, _state(context, points["run"]))
    return None


def _ended(rounds: Sequence[DesignRound], state: str) -> DesignRound | None:
    """Not the last round alone: a question that was asked before another one is settled still."""
    return next((one for one in rounds if one.stop and one.state == state), None)


def _planned(context: Context, rounds: Sequence[DesignRound]) -> Chosen:
    """The rounds whose runs are runs of the question, and those runs; costs are in the question's unit."""
    kept, runs, own = [], [], True
    for one in rounds:
        planned = [planned_again(context, run, one.reason == CONFIRMATION) for run in one.chosen]
        # A round without runs is of the question that those before it are of.
        own = all(planned) if planned else own
        if not own:
            continue
        chosen = []
        for known, run in zip(one.chosen, filter(None, planned), strict=True):
            if one.unit != context.once(unit):
                begun = pretrained(context, [before.model for before in runs])
                known = dataclasses.replace(known, cost=cost_of(context, run, begun))
            chosen.append(known)
            runs.append(run)
        kept.append(dataclasses.replace(one, chosen=chosen))
    return Chosen(kept, runs)


def _round(
    context: Context, chosen: Chosen, points: pd.DataFrame | None, more: bool, recommended: Recommended | None = None
) -> DesignRound:
    """The round that follows on the points of all runs so far; without points, the first."""
    question = context.question
    corpus, laws, section = deciding_laws(question)
    before = losses_before(points) if points is not None else {}
    runs = candidate_runs(context, [run for one in chosen.rounds for run in one.chosen if one.reason != CONFIRMATION])
    # What a model with a path loses is known only once one of its runs is made.
    first = [run for run in runs if context.models[run.model].path and run.model not in before]
    begun = pretrained(context, [run.model for run in chosen.runs])
    every = candidate_points(context, first or runs, before, corpus, section, begun)
    known = [] if points is None else points["run"].unique()
    added = dataclasses.replace(_empty_round(context, chosen, known), more=more)
    left = inf if more else added.budget - added.spent
    if points is None:
        given, lacks = first_runs(context, runs)
        made = [_chosen(context, one, None, begun) for one in given]
        if made and not lacks and sum(one.cost for one in made) <= left:
            return dataclasses.replace(added, chosen=made, reason="as large.first has them")
    fresh = every[~every["run"].isin(known)]
    affordable = fresh[fresh["cost"] <= left]
    by_name = {one.run.name: one for one in runs}
    apart = affordable[[not is_near(by_name[name], chosen.chosen) for name in affordable["run"]]]
    spread = question.is_large() and not more and len(apart) > 0
    affordable = apart if spread else affordable
    # Without a run to choose the half-width is still asked for, over the others.
    shown = next((table for table in (affordable, fresh, every) if len(table)), every)
    proposal = design(
        laws,
        None if points is None else selected(points, corpus, section),
        shown,
        target_row(context, before, corpus),
        question=question.goal_kind.design_question,
        budget=left if len(affordable) and left < inf else None,
        batch=added.batch if len(affordable) else 1,
        side_by_side=_one_a_worker(question),
        seed=question.seed,
    )
    certain = points is not None and not more and proposal.before <= added.tolerance
    if points is not None:
        answer = recommended() if certain and recommended else None
        ratio, half_width, settled = answer or (proposal.answer, proposal.before, not (certain and recommended))
        added = dataclasses.replace(
            added, answer=ratio, half_width=half_width, unsettled=not settled, by_posterior=answer is None
        )
        narrow = certain and settled and half_width <= added.tolerance
        if narrow and is_enough(question, chosen.rounds[-1], added, chosen.chosen):
            return dataclasses.replace(added, stop=TOLERANCE)
    if not len(affordable):
        return dataclasses.replace(added, stop=BUDGET if len(fresh) else CANDIDATES)
    if certain and (narrow or added.unsettled) and added.answer is not None:
        # Of runs that a law leaves out too, as without any general text.
        others = [one for one in runs if cost_of(context, one.run, begun) <= left and one.run.name not in known]
        others = [one for one in others if not (spread and is_near(one, chosen.chosen))]
        if one := run_beyond(context, others, chosen.chosen, added.answer):
            reason = beyond_reason(added.answer, chosen.chosen)
            return dataclasses.replace(added, chosen=[_chosen(context, one, None, begun)], reason=reason)
    if certain and not proposal.before:
        # An answer at an end of all ratios: no run takes anything off.
        return dataclasses.replace(added, stop=CANDIDATES)
    names = shown["run"].to_dict()
    made: list[ChosenRun] = []
    ratios = {at: by_name[name].domain_ratio for at, name in names.items()}
    for at, width, gains in zip(proposal.chosen, proposal.half_width, proposal.gains):
        if not (spread and is_near(by_name[names[at]], made)):
            one = _chosen(context, by_name[names[at]], width, {*begun, *(run.model for run in made)})
            made.append(dataclasses.replace(one, why=beside_nearest(added.answer, at, gains, ratios)))
    reason = f"{proposal.reason}; {APART_ONLY}" if spread else proposal.reason
    enough = next((n for n, width in enumerate(proposal.half_width, 1) if width <= added.tolerance), len(made))
    if enough < len(made) and not (more or certain or _one_a_worker(question)):
        made, reason = made[:enough], f"{reason}; the first {enough} of them should reach design.tolerance"
    return dataclasses.replace(added, chosen=made, reason=reason)


def most_runs(question: Question, rounds: Sequence[DesignRound]) -> int:
    """Runs that the round after these may have: as many as in the first one, on whatever machine that was."""
    return question.design.batch or (rounds[-1].batch if rounds else question.launcher.at_once or workers(question))


def _empty_round(context: Context, chosen: Chosen, known: Collection[str]) -> DesignRound:
    """A round without runs, on what is known of the runs of those names."""
    question = context.question
    return DesignRound(
        round=1 + sum(one.trains for one in chosen.rounds),
        state=_state(context, known),
        spent=chosen.spent,
        budget=context.once(budget),
        unit=context.once(unit),
        asked=asked_of(question.goal, question.target.steps),
        tolerance=question.design.tolerance,
        answer=None,
        half_width=None,
        batch=most_runs(question, chosen.rounds),
        chosen=[],
        reason="",
    )


def _chosen(context: Context, candidate: CandidateRun, half_width: float | None, begun: Collection[str]) -> ChosenRun:
    return ChosenRun(
        run=candidate.run.name,
        model=candidate.model,
        domain_ratio=candidate.domain_ratio,
        steps=candidate.steps,
        seed=candidate.seed,
        cost=cost_of(context, candidate.run, begun),
        half_width=half_width,
        peak=candidate.peak,
        continues=candidate.continues,
    )


def _one_a_worker(question: Question) -> bool:
    """Whether a round has a run for each worker of this machine, where a shorter one would leave its worker idle."""
    return question.design.batch is None and not question.launcher.elsewhere


def _state(context: Context, known: Collection[str]) -> str:
    """Digest of what decides on a round: the names of the measured runs, the models, the goal, laws and design."""
    question = context.question
    decided_by = {
        "runs and models": [sorted({*known}), sorted(context.models)],
        "goal": dataclasses.asdict(question.goal),
        "law": {name: dataclasses.asdict(section) for name, section in question.law.items()},
        # Those of a large run are in a section of their own.
        "design": dataclasses.asdict(question.design) | {"lengths": candidate_lengths(question)},
        "budget": context.once(budget),
    }
    return hashlib.blake2b(json.dumps(decided_by, sort_keys=True).encode(), digest_size=8).hexdigest()
