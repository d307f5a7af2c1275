"""Which runs a question about weights wants now: what its methods ask for, as far as what is measured tells."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipeline.mixture_weights.artifacts import Proposal
from pipeline.mixture_weights.methods.registry import METHODS
from pipeline.mixture_weights.setting import Measured, Setting, exact_shares, mixture_run
from pipeline.mixture_weights.token_supply import caps, target_tokens
from pipeline.plan.runs import pretraining_run
from pipeline.plan.token_supply import supply_problems
from pipeline.question.messages import ConfigError
from pipeline.question.schema import Question
from pipeline.study.folder import PlannedRun, Study, StudyError
from training.corpora.manifest import Manifest


def setting_of(question: Question, manifest: Manifest, precision: str) -> Setting:
    """The question with what its runs need to be named."""
    continued = question.weights.phase == "continual" and not question.model.path
    pretraining = pretraining_run(question, question.model, manifest, precision) if continued else None
    return Setting(question, manifest, precision, pretraining)


def measured_of(study: Study, question: Question, *, anew: bool = False) -> Measured:
    """What is known of a study's runs: as collected, or with `anew` collected now."""
    from pipeline.study.collect import collect, read_points

    if anew and study.plan_file.exists():
        runs = study.read_plan()
        if any((study.runs / run.name / "points.jsonl").exists() for run in runs):
            return Measured(study, collect(study, question.corpora.general))
    if not anew and (study.folder / "points.parquet").exists():
        return Measured(study, read_points(study))
    return Measured(study, None)


def wanted(setting: Setting, measured: Measured) -> list[PlannedRun]:
    """The runs that the chosen methods read, as far as they can be told; each once, in the order to start them.

    Raises:
        ConfigError: a domain with too few tokens for them or, of weights known already, for the confirmation.
    """
    asked = [run for name in setting.question.weights.methods for run in METHODS[name].runs(setting, measured)]
    runs = list({run.spec.hash: run for run in [*_first(setting), *asked]}.values())
    problems = list(
        supply_problems([*runs, *confirming(setting, _known(setting, measured))], setting.manifest, setting.question)
    )
    have, need = sum(caps(setting).values()), target_tokens(setting)
    if have < need and "autoscale" in setting.question.weights.methods:
        problems.append(
            f"weights.target: {setting.question.weights.target} steps are {need:,} tokens, and all domains have "
            f"{have:,.0f} with weights.passes={setting.question.weights.passes:g}; give fewer steps, or more passes"
        )
    if problems:
        raise ConfigError(problems)
    return sorted(runs, key=lambda run: (run.role != "pretrain", -run.spec.tokens))


def _known(setting: Setting, measured: Measured) -> list[Proposal]:
    """The proposals of methods that read no runs."""
    return [
        proposal
        for name in setting.question.weights.methods
        if METHODS[name].count(setting) == (0, 0)
        for proposal in METHODS[name].propose(setting, measured)
    ]


def _first(setting: Setting) -> list[PlannedRun]:
    return [setting.pretraining] if setting.pretraining else []


def confirming(setting: Setting, proposals: Sequence[Proposal]) -> list[PlannedRun]:
    """The runs that compare proposals: each at the target for every seed; equal weights are one run."""
    weights, seed = setting.question.weights, setting.question.seed
    runs = [
        mixture_run(setting, exact_shares(proposal.weights), weights.target, seed + number, "confirm")
        for proposal in proposals
        for number in range(weights.confirm_seeds)
    ]
    return list({run.spec.hash: run for run in runs}.values())


def proposed(setting: Setting, measured: Measured, log: Callable[[str], object] = lambda line: None) -> list[Proposal]:
    """What all methods propose, in the question's order; `log` is given a line for each that takes over two seconds.

    Raises:
        StudyError: runs of theirs are not done.
    """
    runs = wanted(setting, measured)
    if lacking := [run for run in runs if not measured.done(run)]:
        raise StudyError(
            f"{len(lacking)} of {len(runs)} runs are not done or not collected, {lacking[0].name} among them; "
            "run cptlaw train, then cptlaw collect"
        )
    found = []
    for name in setting.question.weights.methods:
        start = time.perf_counter()
        found += METHODS[name].propose(setting, measured)
        if (seconds := time.perf_counter() - start) > 2:
            log(f"{name} proposed: {seconds:.0f} s")
    return found


@dataclass(frozen=True)
class Stage:
    """A line of what a question about weights costs."""

    name: str
    """What it is for."""
    runs: int
    """How many."""
    tokens: int
    """That they train on."""


def stages(setting: Setting, measured: Measured) -> list[Stage]:
    """What the search and the confirmation take in all, before anything is run; shared runs are counted once.

    Of runs that are not known yet, like those of a later round, the number and the tokens are known.
    """
    weights = setting.question.weights
    lines = [Stage("pre-training", 1, run.spec.tokens) for run in _first(setting)]
    asked: list[PlannedRun] = []
    for name in weights.methods:
        lines.append(Stage(f"search by {name}", *METHODS[name].count(setting)))
        asked += {run.spec.hash: run for run in METHODS[name].runs(setting, measured)}.values()
    count, seeds = sum(METHODS[name].proposals(setting) for name in weights.methods), weights.confirm_seeds
    compared = [run for proposal in _known(setting, measured) for run in confirming(setting, [proposal])]
    what = f"confirmation: {count} weights, {seeds} seeds"
    lines.append(Stage(what, count * seeds, count * seeds * target_tokens(setting)))
    alone = [*asked, *compared]
    once = {run.spec.hash: run for run in alone}.values()
    if len(once) < len(alone):
        tokens = sum(run.spec.tokens for run in once) - sum(run.spec.tokens for run in alone)
        lines.append(Stage("shared, counted once", len(once) - len(alone), tokens))
    return [*lines, Stage("all", sum(line.runs for line in lines), sum(line.tokens for line in lines))]
