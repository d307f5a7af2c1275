"""The stages of a question about mixture weights: runs of the search, proposals, and runs that compare them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from pipeline.goals.goal import Stage
from pipeline.goals.weights.artifacts import Proposal
from pipeline.goals.weights.methods.registry import METHODS
from pipeline.goals.weights.mixtures import (
    Measured,
    available_tokens,
    exact_weights,
    mixture_run,
    shared_pretraining,
    target_tokens,
)
from pipeline.plan.token_supply import supply_problems
from pipeline.question.messages import ConfigError
from pipeline.study.context import Context
from pipeline.study.folder import PlannedRun, StudyError


def search_runs(context: Context, measured: Measured) -> list[PlannedRun]:
    """The runs that the methods read, as far as the measured losses determine them, in the order to start them.

    Raises:
        ConfigError: a domain with too few tokens for them, or for the confirmation of weights that need no search.
    """
    runs = [first] if (first := shared_pretraining(context)) else []
    runs += [run for name in context.question.weights.methods for run in METHODS[name].runs(context, measured)]
    runs = list({run.spec.hash: run for run in runs}.values())
    compared = confirmation_runs(context, _known(context, measured))
    problems = list(supply_problems([*runs, *compared], context))
    available, needed = sum(available_tokens(context).values()), target_tokens(context)
    if available < needed and "autoscale" in context.question.weights.methods:
        problems.append(
            f"weights.target: {context.question.weights.target} steps are {needed:,} tokens, and all domains "
            f"have {available:,.0f} with weights.passes={context.question.weights.passes:g}; give fewer "
            "steps, or more passes"
        )
    if problems:
        raise ConfigError(problems)
    return sorted(runs, key=lambda run: (run.role != "pretrain", -run.spec.tokens))


def _known(context: Context, measured: Measured) -> list[Proposal]:
    """The proposals of methods that need no runs."""
    return [
        proposal
        for name in context.question.weights.methods
        if METHODS[name].count(context) == (0, 0)
        for proposal in METHODS[name].propose(context, measured)
    ]


def confirmation_runs(context: Context, proposals: Sequence[Proposal]) -> list[PlannedRun]:
    """The runs that compare proposals at the target, one a seed; proposals of equal weights share their runs."""
    weights, seed = context.question.weights, context.question.seed
    runs = [
        mixture_run(context, exact_weights(proposal.weights), weights.target, seed + number, "confirm")
        for proposal in proposals
        for number in range(weights.confirm_seeds)
    ]
    return list({run.spec.hash: run for run in runs}.values())


def propose_all(
    context: Context, measured: Measured, log: Callable[[str], object] = lambda line: None
) -> list[Proposal]:
    """The proposals of all methods, in the question's order; `log` receives a line for a method of over two seconds.

    Raises:
        StudyError: runs that they read are not done.
    """
    runs = search_runs(context, measured)
    if missing := [run for run in runs if not measured.done(run)]:
        raise StudyError(
            f"{len(missing)} of {len(runs)} runs are not done or not collected, {missing[0].name} among them; "
            "run cptlaw train, then cptlaw collect"
        )
    proposals = []
    for name in context.question.weights.methods:
        start = time.perf_counter()
        proposals += METHODS[name].propose(context, measured)
        if (seconds := time.perf_counter() - start) > 2:
            log(f"{name} proposed: {seconds:.0f} s")
    return proposals


def stages(context: Context, measured: Measured) -> list[Stage]:
    """The cost of the search and of the confirmation, known before training; runs of several methods count once.

    Of a later round the number of runs and their tokens are known, the mixtures are not.
    """
    weights = context.question.weights
    lines = [Stage("pre-training", 1, first.spec.tokens)] if (first := shared_pretraining(context)) else []
    read: list[PlannedRun] = []
    for name in weights.methods:
        lines.append(Stage(f"search by {name}", *METHODS[name].count(context)))
        read += {run.spec.hash: run for run in METHODS[name].runs(context, measured)}.values()
    count, seeds = sum(METHODS[name].proposals(context) for name in weights.methods), weights.confirm_seeds
    compared = [run for proposal in _known(context, measured) for run in confirmation_runs(context, [proposal])]
    purpose = f"confirmation: {count} weights, {seeds} seeds"
    lines.append(Stage(purpose, count * seeds, count * seeds * target_tokens(context)))
    counted = [run.spec for run in (*read, *compared)]
    once = {spec.hash: spec for spec in counted}.values()
    if len(once) < len(counted):
        tokens = sum(spec.tokens for spec in once) - sum(spec.tokens for spec in counted)
        lines.append(Stage("shared, counted once", len(once) - len(counted), tokens))
    return [*lines, Stage("all", sum(line.runs for line in lines), sum(line.tokens for line in lines))]
