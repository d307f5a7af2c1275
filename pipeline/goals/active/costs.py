"""What runs cost that may be chosen, in the unit of the design, and the limit of the sum."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from pipeline.plan.cost import run_flops, run_seconds
from pipeline.plan.duration import START_SECONDS
from pipeline.plan.runs import planned_runs, pretraining_runs
from pipeline.question.design import is_active
from pipeline.question.messages import ConfigError
from pipeline.study.context import Context
from pipeline.study.folder import PlannedRun


def budget(context: Context) -> float:
    """`design.budget`, or the cost of the grid; the target's pre-training is in neither, as every study has it."""
    question = context.question
    if question.design.budget is not None:
        return question.design.budget
    mixture = question.mixture
    ratios = dataclasses.replace(mixture, domain_ratio=mixture.domain_ratio or question.design.ratios)
    grid = planned_runs(context.asking(dataclasses.replace(question, mixture=ratios)))
    target = context.once(pretraining_runs).get(question.model.name)
    return sum(own_cost(context, run) for run in grid if target is None or run.spec.hash != target.spec.hash)


def unit(context: Context) -> str:
    """The unit of costs: `design.budget_unit`, or what auto stands for."""
    design = context.question.design
    if design.budget_unit != "auto":
        return design.budget_unit
    return "device-hours" if design.budget is None and _is_measured(context) else "FLOPs"


def own_cost(context: Context, run: PlannedRun) -> float:
    """Cost of the steps of a run alone, in `unit`.

    Raises:
        ConfigError: device-hours, and `prepare` has not measured the speed of every model.
    """
    match context.once(unit):
        case "tokens":
            return float(run.spec.tokens)
        case "device-hours":
            if context.machine is None or not _is_measured(context):
                problem = "design.budget_unit: 'device-hours' needs the speed of every model, and prepare has "
                problem += "measured none; use precision=auto and prepare again, or FLOPs, or tokens"
                raise ConfigError([problem])
            # Not that of finished runs: a cost is the same whatever has been trained.
            seconds = START_SECONDS + (run_seconds(run.spec, context.machine.speeds[run.model]) or 0.0)
            return seconds * context.question.parallel.processes / 3600
        case _:
            return run_flops(run.spec)


def pretrained(context: Context, models: Collection[str]) -> set[str]:
    """Models whose pre-training the study has: the target, those of a grid, and those of runs that were chosen."""
    question = context.question
    return {question.model.name, *(question.ladder if not is_active(question) else ()), *models}


def cost_of(context: Context, run: PlannedRun, pretrained: Collection[str]) -> float:
    """Cost of a continual run, with the pre-training of its model where that is not one of `pretrained`."""
    parent = None if run.model in pretrained else context.once(pretraining_runs).get(run.model)
    return own_cost(context, run) + (own_cost(context, parent) if parent else 0.0)


def _is_measured(context: Context) -> bool:
    """Whether `prepare` has measured the speed of every model."""
    return context.machine is not None and context.models.keys() <= context.machine.speeds.keys()
