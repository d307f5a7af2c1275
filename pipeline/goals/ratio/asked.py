"""The run that a question is about, and what the advice costs against it, before anything is trained."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

import numpy as np

from fitting import LAWS
from fitting.law_average import counted_at
from fitting.uncertainty.horizon import half_width, kind_of
from pipeline.goals.active.candidates import asked_run, budget, own_cost, pretraining_runs, unit
from pipeline.goals.active.outlook import possible_steps
from pipeline.goals.active.rounds import chosen_runs
from pipeline.goals.ratio.confirm import SAME
from pipeline.plan.cost import START_SECONDS, device_hours, run_flops, run_seconds
from pipeline.plan.duration import Speed, speed_of, wall_seconds, whose_speed
from pipeline.plan.processes import gpus, workers
from pipeline.question.design import budget_key, is_active, steps_of_parts
from pipeline.question.phases import pieces
from pipeline.question.presets import HUB, models
from pipeline.question.schema import Question
from pipeline.question.schema.training import ScheduleConfig
from pipeline.study.artifacts import Recommendation, read_if_there
from pipeline.study.context import Context
from pipeline.study.folder import IMPORTED, PlannedRun
from pipeline.study.number_format import cost_in, duration, quantity
from training.schedule import Piece, learning_rates

HIGH_PEAK = 0.03
"""Peak learning rate above which it is likely a slip of the unit; a choice, ten times the highest of kept runs."""
FEW_STEPS = 40
"""Steps of the longest runs of the shortest study that predicted a longer run (docs/results/base-model-law)."""


def asked_lines(context: Context, runs: Sequence[PlannedRun]) -> list[str]:
    """The target run, the runs for the fit and the confirmation in percent of its cost, and how far the fit looks.

    Args:
        runs: those for the fit, as far as they are known.
    """
    question, active = context.question, is_active(context.question)
    model, steps, confirm = question.model.name, question.target.steps, question.confirm
    asked = asked_run(context)
    speed = speed_of(context, runs)
    seconds, hours = run_seconds(asked.spec, speed(asked)), _hours(context, speed)
    took = f", {duration(START_SECONDS + seconds)} on one worker, with its start" if seconds else ""
    flops = f"{run_flops(asked.spec):.2e}".replace("e+", "e")
    size = f"{steps:,} steps of {question.target.global_batch:,} x {question.sequence_length:,} tokens"
    parent = context.once(pretraining_runs).get(model)
    # Variants may pre-train the model otherwise, and have runs that no fit reads.
    own_past = {run.spec.hash: run for run in runs if not active and (run.role, run.model) == ("pretrain", model)}
    own_past |= {parent.spec.hash: parent} if parent else {}
    unseen = [run for run in runs if run.role == "confirm" and run.variant]
    read = [run for run in runs if run.role != "confirm" and run.spec.hash not in own_past]
    of_fit = sum(own_cost(context, run) for run in read)
    cost = own_cost(context, asked)
    if active:
        # cptlaw refine chooses runs beyond the budget.
        of_fit = max(budget(context), chosen_runs(context).spent)
    at_most = "at most " * active
    by = context.once(unit)
    if by == "device-hours" and question.launcher.elsewhere and context.machine:
        by += f" at the speed that prepare measured on {context.machine.device}"
    elif by == "device-hours":
        count = workers(question)
        # Not below the simulated end of the runs so far, in which a worker may have none.
        end = wall_seconds(context, read, speed)
        wall = duration(max(3600 * hours(of_fit, read) / count / question.parallel.processes, end or 0.0))
        by += f", {wall} on {count} worker{'s' * (count > 1)} at the speed {whose_speed(context, runs)}"
        by += ", without waits of later rounds" * active
    elif by == "FLOPs" and active and question.design.budget_unit == "auto" and question.design.budget is None:
        is_measured = not (question.rehearsal or question.launcher.elsewhere or gpus())
        by += " (by device-hours once prepare has measured the speed)" * is_measured
    past = f"the {len(own_past)} pre-trainings" if len(own_past) > 1 else "the pre-training"
    besides = [f"{past} of {model}"] * bool(own_past)
    besides += [f"{len(unseen)} runs of variants that no fit reads"] * bool(unseen)
    beside = f", beside {' and '.join(besides)}" * bool(besides)
    places = 1 + (len(confirm.around) or bool(confirm.neighbour))
    tests = places * confirm.seeds
    confirming = f"; to confirm it, {tests} such runs follow" if tests > 1 else "; to confirm it, 1 such run follows"
    of_confirm = tests * cost
    if question.is_large() and not question.large.confirm:
        of_confirm = 0.0
        confirming = "; no other run confirms it, cptlaw follow reads its own log (large.confirm=true: such runs do)"
    elif _has_confirmed(context):
        of_confirm = sum(own_cost(context, run) for run in context.plan if run.role == "confirm" and not run.variant)
        confirming = f"; the confirmation runs so far cost {_times(of_confirm / cost)} that run"
    others = [*own_past.values(), *unseen]
    of_others = sum(own_cost(context, run) for run in others)
    together = of_fit + of_confirm + of_others
    named = f"{model} ({question.model.path})" if question.model.path not in (None, IMPORTED, model) else model
    lines = [
        f"asked about: {named}, {size}: {quantity(asked.spec.tokens)} tokens, {flops} FLOPs{took}",
        f"the runs for the fit cost {at_most}{_times(of_fit / cost)} that run, by {by}{beside}{confirming}",
    ]
    if together > of_fit:
        named = [past] * bool(own_past) + ["the runs of variants"] * bool(unseen)
        part = f"{of_others / cost:.0%}" if together < 2 * cost else f"{of_others / cost:.3g}"
        counted = f", with {part} for {' and '.join(named)}," * bool(named)
        line = f"all together{counted} {at_most}{_times(together / cost)} that run"
        if context.once(unit) == "device-hours":
            total = hours(of_fit, read) + hours(of_confirm, [asked]) + hours(of_others, others)
            line += f", {cost_in('device-hours', total)} device-hours"
        lines.append(line)
    if parent and (published := HUB.get(model)):
        untrained = f"note: {model} is the shape of {published} without its weights, pre-trained here on "
        taken = f"model=hf model.path={published} 'ladder=[]' takes the published ones"
        lines.append(f"{untrained}{quantity(parent.spec.tokens)} tokens; {taken}")
    if (peak := question.target.peak_learning_rate) > HIGH_PEAK:
        moved = "AdamW changes each weight by about so much in a step, and runs at such a peak diverge"
        lines.append(f"note: target.peak_learning_rate={peak:g}: {moved}; kept runs had 1e-5 to 3e-3")
    return [*lines, *_horizon_lines(context, runs)]


def cost_line(context: Context, runs: Sequence[PlannedRun], *, against: bool) -> str:
    """What runs cost in the unit of the plan, with `against` in percent of the run that is asked about, and their time.

    Raises:
        ConfigError: the unit is device-hours, and a speed is not measured.
    """
    question, by = context.question, context.once(unit)
    cost, count = sum(own_cost(context, run) for run in runs), workers(question)
    words = f"{cost_in(by, cost)} {by}"
    if against:
        words = f"{_times(cost / own_cost(context, asked_run(context)))} the run asked about, by {by}"
    seconds = wall_seconds(context, runs, speed_of(context, context.plan))
    if question.launcher.elsewhere or seconds is None:
        return words
    speed = whose_speed(context, context.plan)
    return f"{words}, {duration(seconds)} on {count} worker{'s' * (count > 1)} at the speed {speed}"


def _hours(context: Context, speed: Speed) -> Callable[[float, Sequence[PlannedRun]], float]:
    """From device-hours at the speed that prepare measured to those at another, by the runs that cost them."""
    processes = context.question.parallel.processes

    def hours(cost: float, of: Sequence[PlannedRun]) -> float:
        known = [(run, each) for run in of if (each := speed(run))]
        before = sum(own_cost(context, run) for run, _ in known)
        return cost * sum(device_hours(run.spec, each, processes) for run, each in known) / before if before else cost

    return hours


def _has_confirmed(context: Context) -> bool:
    """Whether the runs asked about are done at the ratio of the recommendation, of as many seeds as are asked for."""
    answer = read_if_there(Recommendation, context.study)
    if answer is None or answer.mixture is None:
        return False
    domain, asked = context.question.corpora.domain, asked_run(context).spec
    of_plan = [run for run in context.plan if run.role == "confirm" and run.spec.steps == asked.steps]
    of_plan = [run for run in of_plan if (run.spec.model, run.spec.initial) == (asked.model, asked.initial)]
    at_it = [run for run in of_plan if abs(run.ratio_of(domain) - answer.mixture[domain]) < SAME]
    return sum(context.study.state(run) == "done" for run in at_it) >= context.question.confirm.seeds


def _horizon_lines(context: Context, runs: Sequence[PlannedRun]) -> Iterator[str]:
    """How far beyond the longest run for the fit the answer lies, and the error that is expected there."""
    question, steps = context.question, context.question.target.steps
    active = is_active(question)
    fitted = [run.spec.end_step for run in runs if run.role == "fit" and run.spec.phase == "continual"]
    longest = max(possible_steps(context, runs) if active else fitted, default=0)
    if not longest:
        return
    run = "longest run that may be chosen for the fit" if active else "longest run for the fit"
    if steps <= longest:
        times = f"{longest / steps:.3g} times the steps" if steps < longest else "as many steps"
        yield f"horizon: no extrapolation in length, the {run} has {times}"
        return
    laws = [*counted_at(question.law, steps / longest)]
    width = half_width(np.array([steps / longest]), (), 0.0, "average" if laws[1:] else kind_of(*laws))[0]
    line = f"horizon: that run has {steps / longest:.3g} times the steps of the {run}, where the 90% interval "
    line += f"of a predicted loss is some {float(width):.1%} to either side"
    yield line + ", more where the laws disagree" * (len(laws) > 1)


def short_lines(context: Context, runs: Sequence[PlannedRun]) -> Iterator[str]:
    """That runs for the fit of a large run are too short for a law to learn from, a line for each reason.

    Args:
        runs: those for the fit so far; a length that none of them has, and that no later one can have, is not named.
    """
    question = context.question
    if not (question.is_large() and is_active(question)):
        return
    large, target, lengths = question.large, question.target, possible_steps(context, runs)
    if few := [steps for steps in lengths if steps < FEW_STEPS]:
        part = f"{FEW_STEPS / target.steps:.2g}"
        of_first = {*few} & {*steps_of_parts(question, [one.length for one in large.first])}
        named = {"large.first": f"length: {part} or more in large.first"} if of_first else {}
        if {*few} & {*steps_of_parts(question, large.lengths)} or not named:
            named["large.lengths"] = f"large.lengths=[{part}] or more"
        line = (
            f"{' and '.join(named)}: runs for the fit of {', '.join(map(str, few))} steps, for one of {target.steps:,}"
        )
        yield (
            f"{line}: in fewer than {FEW_STEPS} laws see little but the first transient (docs/negative-results.md); "
            f"give {', '.join(named.values())} and a {budget_key(question)} of at least as much a run, a longer run "
            "(target.steps), or large.tokens=1e18"
        )
    warming = {steps: _warm_up(question, steps) for steps in lengths}
    if late := [f"{over} of {steps}" for steps, over in warming.items() if 2 * over > steps]:
        yield f"target.schedule: the learning rate rises in {', '.join(late)} steps of runs for the fit; give longer"


def _warm_up(question: Question, steps: int) -> int:
    """Steps until the learning rate of a run of so many steps is highest."""
    return int(learning_rates(pieces(question.target_phase), steps).argmax()) + 1


def size_lines(question: Question, runs: Sequence[PlannedRun]) -> Iterator[str]:
    """That runs of one size leave the size terms of a law to its prior, in words, a line; none of more sizes."""
    chosen = {model.name for model in models(question)[0]} if is_active(question) else set()
    chosen |= {question.model.name} if chosen and question.design.target_size else set()
    sizes = chosen or {run.model for run in runs if run.role == "fit"}
    if len(sizes) == 1 and any("N" in LAWS[name].columns for name in question.law):
        (size,), model = sizes, question.model.name
        of = "for that size alone" if size == model else f"for {model}, another size, only as far as that is right"
        line = f"all runs for the fit are of one size, {size}: what size does to a loss is assumed, not measured"
        yield f"{line}, and the answer holds {of}; ladder=[...] takes more sizes"


def _times(ratio: float) -> str:
    return f"{ratio:.0%} of" if ratio < 2 else f"{ratio:.3g} times"


def pieces_as_given(schedule: ScheduleConfig) -> str:
    """A schedule as an override gives it, without the keys that have their defaults.

    >>> pieces_as_given(ScheduleConfig([Piece("linear", end=1.0, steps=10), Piece("cosine", end=0.1)]))
    '[{shape:linear,end:1.0,steps:10},{shape:cosine,end:0.1}]'
    """
    default = asdict(Piece(""))
    given = ({key: value for key, value in asdict(piece).items() if value != default[key]} for piece in schedule.pieces)
    each = (",".join(f"{key}:{value}" for key, value in piece.items()) for piece in given)
    return f"[{','.join(f'{{{piece}}}' for piece in each)}]"
