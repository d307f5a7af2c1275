"""The runs of a question: pre-training, continual runs on each mixture, and branches."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from pipeline.plan.model_shape import configuration_of, directory_of, objective_of, with_rope_theta
from pipeline.plan.token_supply import supply_problems
from pipeline.question.data import data_folder
from pipeline.question.design import extended_at
from pipeline.question.evaluation_budget import within_budget
from pipeline.question.messages import ConfigError
from pipeline.question.phases import branch_phase, mixtures_of, pieces, replicated
from pipeline.question.presets import models
from pipeline.question.schema import ModelConfig, PhaseConfig, Question
from pipeline.question.schema.training import BranchConfig
from pipeline.question.variants import variants
from pipeline.study.folder import PlannedRun
from training.corpora.manifest import Manifest, PreparedCorpus
from training.corpora.source import Source
from training.corpora.tokenizer import vocabulary_problem
from training.evaluation_steps import evaluation_steps
from training.parameters import model_size
from training.schedule import learning_rates
from training.spec import Initial, MixturePhase, RunSpec


def placeholder_manifest(question: Question) -> Manifest:
    """A manifest of the configured vocabulary and endless corpora, to compute the cost of a plan before prepare.

    A corpus that a model writes has the tokens that it is to write.
    """
    vocabulary, ratio = question.corpora.tokenizer.vocabulary, question.corpora.validation_ratio

    def corpus(source: Source) -> PreparedCorpus:
        train = int((1 - ratio) * source.generated.tokens) if source.kind == "generated" else 2**62
        return PreparedCorpus("", "not prepared", "", {"train": train, "validation": 2**62}, {}, {})

    corpora = {name: corpus(source) for name, source in question.corpora.sources.items()}
    return Manifest(data_folder(question), "", "", vocabulary, ratio, corpora)


def planned_runs(question: Question, manifest: Manifest, precision: str) -> list[PlannedRun]:
    """The runs for the fit and the pre-training of all models: parents before children, then longest first.

    Raises:
        ConfigError: a corpus too short for its runs, for all corpora at once.
    """
    by_hash: dict[str, PlannedRun] = {}
    for name, role, variant in variants(question):
        for run in _runs(variant, role, manifest, precision):
            by_hash.setdefault(run.spec.hash, dataclasses.replace(run, variant=name))
    runs = list(by_hash.values())
    if problems := list(supply_problems(runs, manifest, question)):
        raise ConfigError(problems)
    return starting_order(runs)


def starting_order(runs: list[PlannedRun]) -> list[PlannedRun]:
    """Runs with parents before children, then longest first."""
    work = {run.name: model_size(run.spec.model, run.spec.sequence_length).flops_per_token for run in runs}
    return sorted(
        runs, key=lambda run: (run.role != "pretrain", run.spec.initial.moments, -work[run.name] * run.spec.tokens)
    )


def _runs(question: Question, role: str, manifest: Manifest, precision: str) -> list[PlannedRun]:
    ladder, target = models(question)
    pretraining = {
        model.name: pretraining_run(question, model, manifest, precision)
        for model in [*ladder, target]
        if not model.path
    }
    steps = question.continual.steps
    continual = [
        continual_run(single, model, ratio, steps, seed, role, pretraining, manifest, precision, transfer)
        for single in by_domain(question)
        for model in ladder
        for transfer in ([None] if model.path else question.transfer_steps or [None])
        for ratio, seed in _cells(question)
    ]
    branches = [
        branch_run(run, phase, branch, question.evaluation_budget)
        for phase, trunks in ((question.pretrain, pretraining.values()), (question.continual, continual))
        for run in trunks
        for branch in phase.branches
    ]
    return [*pretraining.values(), *continual, *branches]


def continual_run(
    question: Question,
    model: ModelConfig,
    domain_ratio: float,
    steps: int,
    seed: int,
    role: str,
    pretraining: dict[str, PlannedRun],
    manifest: Manifest,
    precision: str,
    transfer: int | None = None,
) -> PlannedRun:
    """One continual run of a model at a domain ratio, from the end of its pre-training or from a step of it.

    A run on general text only is one run for all domains of a study, and is evaluated on each.
    """
    corpora = question.corpora
    ratio = Fraction(str(domain_ratio))
    shape, initial, start, before = _initial_weights(model, pretraining.get(model.name), transfer, manifest)
    phase = dataclasses.replace(question.continual, steps=steps)
    (_, mixture), *later = mixtures_of(phase, corpora, ratio)
    shared = bool(corpora.domains) and not later and mixture[corpora.general] == 1
    domains = corpora.domains if shared else [corpora.domain]
    mixture = {corpora.general: mixture[corpora.general], **dict.fromkeys(domains, mixture[corpora.domain]), **mixture}
    if role == "fit" and any(question.dense.get(name) == model.name for name in domains):
        phase.evaluation = dataclasses.replace(phase.evaluation, policy="dense")
        question = dataclasses.replace(question, evaluation_budget=1.0)
    spec = _spec(question, "continual", phase, shape, initial, _plain(mixture), before, seed, manifest, precision)
    phases = tuple(MixturePhase(first * phase.global_batch, _plain(other)) for first, other in later)
    spec = dataclasses.replace(spec, phases=phases) if phases else spec
    at = f"-from{initial.step}" if transfer else ""
    ratios = "to".join(f"{float(other[corpora.domain]):g}" for other in (mixture, *(other for _, other in later)))
    mixed = f"{corpora.general}1" if shared else f"{corpora.domain}{ratios}"
    slug = f"continual-{model.name}-{mixed}{at}-{steps}-seed{seed}"
    return PlannedRun(f"{slug}-{spec.hash[:8]}", role, model.name, start, spec)


def mixture_spec(
    question: Question,
    phase: PhaseConfig,
    ratios: Mapping[str, Fraction],
    seed: int,
    manifest: Manifest,
    precision: str,
    pretraining: PlannedRun | None,
) -> tuple[RunSpec, str]:
    """The spec of a run of `weights.phase` at any mixture, evaluated on all corpora of the question.

    A corpus that `ratios` lacks has ratio 0. A run of phase continual starts from `pretraining`, or without it from the
    model's directory.

    Returns:
        (spec, folder of the initial weights as in `PlannedRun.start`).
    """
    if question.weights.phase == "pretrain":
        shape, initial, start, before = shape_of(question, question.model, manifest), Initial(), "", 0.0
    else:
        shape, initial, start, before = _initial_weights(question.model, pretraining, None, manifest)
    mixture = {corpus: str(Fraction(ratios.get(corpus, 0))) for corpus in question.corpora.sources}
    name = question.weights.phase
    return _spec(question, name, phase, shape, initial, mixture, before, seed, manifest, precision), start


def branch_run(trunk: PlannedRun, phase: PhaseConfig, branch: BranchConfig, budget: float) -> PlannedRun:
    """A run that starts from a step of another one, with its weights, moments and order of sequences."""
    of_trunk = trunk.spec.evaluation
    spec = dataclasses.replace(
        trunk.spec,
        initial=Initial("run", run=trunk.spec.hash, step=branch.step, moments=True),
        steps=branch.steps,
        schedule=pieces(branch_phase(phase, branch)),
        learning_rate_before=_rate_at(trunk.spec, branch.step),
        first_sequence=trunk.spec.first_sequence + branch.step * trunk.spec.global_batch,
        # Of the trunk's steps, where it could not afford all, those beyond the branch would be none of it.
        evaluation=phase.evaluation if of_trunk.policy == "explicit" else of_trunk,
    )
    spec = within_budget(spec, budget)
    name = f"{trunk.name[:-9]}-branch{branch.step}-{branch.steps}-{spec.hash[:8]}"
    return PlannedRun(name, trunk.role, trunk.model, f"runs/{trunk.name}/resume/step-{branch.step}", spec)


def pretraining_run(question: Question, model: ModelConfig, manifest: Manifest, precision: str) -> PlannedRun:
    """The pre-training run of a model on general text, with `pretrain.domain_ratio` of each domain."""
    shape = shape_of(question, model, manifest)
    corpora, phase = question.corpora, question.pretrain
    domains, ratio = corpora.domains or [corpora.domain], Fraction(str(phase.domain_ratio))
    mixture = _plain({corpora.general: 1 - ratio * len(domains), **dict.fromkeys(domains, ratio)})
    spec = _spec(question, "pretrain", phase, shape, Initial(), mixture, 0.0, question.seed, manifest, precision)
    name = f"pretrain-{model.name}-{spec.steps}-seed{spec.seed}-{spec.hash[:8]}"
    return PlannedRun(name, "pretrain", model.name, "", spec)


def shape_of(question: Question, model: ModelConfig, manifest: Manifest) -> dict[str, Any]:
    """The architecture of a model of the question, with the vocabulary of the prepared corpora."""
    end = manifest.store(question.corpora.general).meta.end_of_text if manifest.tokenizer else 0
    lengths = [question.sequence_length, question.pretrain.sequence_length, question.continual.sequence_length]
    # A mask token outside the tokenizer's vocabulary takes one more row.
    rows = max(manifest.vocabulary, objective_of(question, manifest).mask_token + 1)
    return configuration_of(model, rows, max(length or 0 for length in lengths), end)


def kept_steps(question: Question, run: PlannedRun, plan: Sequence[PlannedRun]) -> tuple[list[int], list[int]]:
    """(steps whose weights are kept, the last one included; steps whose full states are kept for branches).

    They are the steps of the question's checkpoint policy, those that other runs of the plan start from, and the one
    from which a longer run may be chosen to continue it.
    """
    phase = question.pretrain if run.role == "pretrain" else question.continual
    is_branch = run.spec.initial.moments
    policy_steps = set() if is_branch else set(evaluation_steps(phase.checkpoints, run.spec.steps))
    starts = [other.spec.initial for other in plan if other.parent == run.spec.hash]
    weights = policy_steps | {start.step for start in starts if not start.moments} | {run.spec.steps}
    states = {start.step for start in starts if start.moments}
    if run.spec.phase == "continual" and not run.variant:
        behind = run.spec.first_sequence // run.spec.global_batch
        at = extended_at(question, behind + run.spec.steps)
        states |= {at - behind} if at else set()
    return sorted(weights - {0}), sorted(states)


def _plain(mixture: Mapping[str, Fraction]) -> dict[str, str]:
    return {corpus: str(ratio) for corpus, ratio in mixture.items()}


def by_domain(question: Question) -> Iterator[Question]:
    """The question about each domain of its study."""
    for domain in question.corpora.domains or [question.corpora.domain]:
        yield dataclasses.replace(question, corpora=dataclasses.replace(question.corpora, domain=domain))


def _cells(question: Question) -> Iterator[tuple[float, int]]:
    mixture = question.mixture
    for ratio in mixture.domain_ratio:
        seeds = mixture.replicates if ratio in replicated(mixture) else 1
        yield from ((ratio, question.seed + number) for number in range(seeds))


def _initial_weights(
    model: ModelConfig, parent: PlannedRun | None, transfer: int | None, manifest: Manifest
) -> tuple[dict[str, Any], Initial, str, float]:
    """(shape, initial weights, their folder, last learning rate) for a continual run, from a run or a directory."""
    if parent is None:
        directory = directory_of(model)
        shape, fingerprint = _read_directory(directory, tuple(file.stat().st_mtime_ns for file in directory.glob("*")))
        rows = shape.get("vocab_size")
        # Before prepare the number of token ids is not known.
        if manifest.tokenizer and rows and (problem := vocabulary_problem(manifest.vocabulary, rows)):
            raise ConfigError([f"model.path: {model.path}: {problem}"])
        return shape, Initial("directory", fingerprint=fingerprint), str(directory), 0.0
    step = transfer or parent.spec.steps
    initial = Initial("run", run=parent.spec.hash, step=step)
    start = f"runs/{parent.name}/checkpoints/step-{step}"
    return parent.spec.model, initial, start, _rate_at(parent.spec, step)


@functools.lru_cache(maxsize=8)
def _read_directory(directory: Path, changed: tuple[int, ...]) -> tuple[dict[str, Any], str]:
    # Cached, since gigabytes are hashed; `changed` makes the cache miss after a file was written.
    from training.model import read_model_directory

    return read_model_directory(directory)


# Cached, since a thousand runs may start from one.
_rates = functools.lru_cache(maxsize=8)(learning_rates)


def _rate_at(spec: RunSpec, step: int) -> float:
    return float(_rates(spec.schedule, spec.steps, spec.learning_rate_before)[step - 1])


def _spec(
    question: Question,
    phase_name: str,
    phase: PhaseConfig,
    shape: dict[str, Any],
    initial: Initial,
    mixture: dict[str, str],
    before: float,
    seed: int,
    manifest: Manifest,
    precision: str,
) -> RunSpec:
    spec = RunSpec(
        phase=phase_name,
        model=shape if phase.rope_theta is None else with_rope_theta(shape, phase.rope_theta),
        initial=initial,
        corpora={name: manifest.corpora[name].fingerprint for name in sorted(mixture)},
        mixture=mixture,
        sequence_length=phase.sequence_length or question.sequence_length,
        global_batch=phase.global_batch,
        steps=phase.steps,
        schedule=pieces(phase),
        learning_rate_before=before,
        optimizer=question.optimizer,
        precision=precision,
        seed=seed,
        evaluation=phase.evaluation,
        validation_windows=question.validation_windows,
        objective=objective_of(question, manifest),
        boundaries=question.boundaries,
    )
    return within_budget(spec, question.evaluation_budget)
