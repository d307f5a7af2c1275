"""The stages of a question about mixture weights: runs of the search, proposals, and runs that compare them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipeline.mixture_weights.artifacts import Proposal
from pipeline.mixture_weights.methods.registry import METHODS
from pipeline.mixture_weights.setting import (
    Measured,
    Setting,
    available_tokens,
    exact_weights,
    mixture_run,
    target_tokens,
)
from pipeline.plan.token_supply import supply_problems
from pipeline.question.messages import ConfigError
from pipeline.study.folder import PlannedRun, StudyError


def search_runs(setting: Setting, measured: Measured) -> list[PlannedRun]:
    """The runs that the methods read, as far as the measured losses determine them, in the order to start them.

    Raises:
        ConfigError: a domain with too few tokens for them, or for the confirmation of weights that need no search.
    """
    runs = [setting.pretraining] if setting.pretraining else []
    runs += [run for name in setting.question.weights.methods for run in METHODS[name].runs(setting, measured)]
    runs = list({run.spec.hash: run for run in runs}.values())
    compared = confirmation_runs(setting, _known(setting, measured))
    problems = list(supply_problems([*runs, *compared], setting.manifest, setting.question))
    available, needed = sum(available_tokens(setting).values()), target_tokens(setting)
    if available < needed and "autoscale" in setting.question.weights.methods:
        problems.append(
            f"weights.target: {setting.question.weights.target} steps are {needed:,} tokens, and all domains "
            f"have {available:,.0f} with weights.passes={setting.question.weights.passes:g}; give fewer "
            "steps, or more passes"
        )
    if problems:
        raise ConfigError(problems)
    return sorted(runs, key=lambda run: (run.role != "pretrain", -run.spec.tokens))


def _known(setting: Setting, measured: Measured) -> list[Proposal]:
    """The proposals of methods that need no runs."""
    return [
        proposal
        for name in setting.question.weights.methods
        if METHODS[name].count(setting) == (0, 0)
        for proposal in METHODS[name].propose(setting, measured)
    ]


def confirmation_runs(setting: Setting, proposals: Sequence[Proposal]) -> list[PlannedRun]:
    """The runs that compare proposals at the target, one a seed; proposals of equal weights share their runs."""
    weights, seed = setting.question.weights, setting.question.seed
    runs = [
        mixture_run(setting, exact_weights(proposal.weights), weights.target, seed + number, "confirm")
        for proposal in proposals
        for number in range(weights.confirm_seeds)
    ]
    return list({run.spec.hash: run for run in runs}.values())


def propose_all(
    setting: Setting, measured: Measured, log: Callable[[str], object] = lambda line: None
) -> list[Proposal]:
    """The proposals of all methods, in the question's order; `log` receives a line for a method of over two seconds.

    Raises:
        StudyError: runs that they read are not done.
    """
    runs = search_runs(setting, measured)
    if missing := [run for run in runs if not measured.done(run)]:
        raise StudyError(
            f"{len(missing)} of {len(runs)} runs are not done or not collected, {missing[0].name} among them; "
            "run cptlaw train, then cptlaw collect"
        )
    proposals = []
    for name in setting.question.weights.methods:
        start = time.perf_counter()
        proposals += METHODS[name].propose(setting, measured)
        if (seconds := time.perf_counter() - start) > 2:
            log(f"{name} proposed: {seconds:.0f} s")
    return proposals


@dataclass(frozen=True)
class Stage:
    """Cost of a stage: its purpose, the number of its runs, and their training tokens."""

    name: str
    runs: int
    tokens: int


def stages(setting: Setting, measured: Measured) -> list[Stage]:
    """The cost of the search and of the confirmation, known before training; runs of several methods count once.

    Of a later round the number of runs and their tokens are known, the mixtures are not.
    """
    weights = setting.question.weights
    lines = [Stage("pre-training", 1, setting.pretraining.spec.tokens)] if setting.pretraining else []
    read: list[PlannedRun] = []
    for name in weights.methods:
        lines.append(Stage(f"search by {name}", *METHODS[name].count(setting)))
        read += {run.spec.hash: run for run in METHODS[name].runs(setting, measured)}.values()
    count, seeds = sum(METHODS[name].proposals(setting) for name in weights.methods), weights.confirm_seeds
    compared = [run for proposal in _known(setting, measured) for run in confirmation_runs(setting, [proposal])]
    purpose = f"confirmation: {count} weights, {seeds} seeds"
    lines.append(Stage(purpose, count * seeds, count * seeds * target_tokens(setting)))
    counted = [run.spec for run in (*read, *compared)]
    once = {spec.hash: spec for spec in counted}.values()
    if len(once) < len(counted):
        tokens = sum(spec.tokens for spec in once) - sum(spec.tokens for spec in counted)
        lines.append(Stage("shared, counted once", len(once) - len(counted), tokens))
    return [*lines, Stage("all", sum(line.runs for line in lines), sum(line.tokens for line in lines))]
