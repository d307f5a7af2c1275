"""The runs of a question: pre-training, continual runs on each mixture, and branches."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from pipeline.plan import model_shape
from pipeline.plan.prepared_corpora import validation_path
from pipeline.plan.token_supply import supply_problems
from pipeline.question.data import data_folder
from pipeline.question.design import with_peak
from pipeline.question.evaluation_budget import within_budget
from pipeline.question.messages import ConfigError
from pipeline.question.phases import branch_phase, mixtures_of, pieces, replicated
from pipeline.question.presets import models, published_shape
from pipeline.question.schema import ModelConfig, PhaseConfig, Question
from pipeline.question.schema.training import BranchConfig
from pipeline.question.variants import variants
from pipeline.study.context import Context, context_of
from pipeline.study.folder import PlannedRun
from training.corpora.manifest import Manifest, PreparedCorpus
from training.corpora.tokenizer import vocabulary_problem
from training.parameters import model_size
from training.schedule import learning_rates
from training.spec import Architecture, Initial, MixturePhase, RunSpec

_ENDLESS = 2**62
"""Tokens of a corpus whose length is not known."""


def estimate(question: Question, precision: str = "fp32", tokens: Mapping[str, int] | None = None) -> Context:
    """The context of a question before prepare: with the configured vocabulary, and corpora of so many tokens.

    A corpus that a model writes has the tokens that it is to write; others that are not in `tokens` are endless.
    """
    context = dataclasses.replace(context_of(question), given_manifest=_placeholder_manifest(question, tokens or {}))
    return dataclasses.replace(context, given_precision=context.known_precision or precision)


def _placeholder_manifest(question: Question, tokens: Mapping[str, int]) -> Manifest:
    ratio, corpora = question.corpora.validation_ratio, {}
    # In the order of prepared ones, so that messages come in it.
    for name, source in sorted(question.corpora.sources.items()):
        every = source.generated.tokens if source.kind == "generated" else tokens.get(name)
        apart = validation_path(question, name) is not None
        held_out = 0 if apart or every is None else int(ratio * every)
        splits = {"train": _ENDLESS if every is None else every - held_out, "validation": held_out or _ENDLESS}
        corpora[name] = PreparedCorpus("", "not prepared", "", splits, {}, {})
    return Manifest(data_folder(question), "", "", question.corpora.tokenizer.vocabulary, ratio, corpora)


def planned_runs(context: Context) -> list[PlannedRun]:
    """The runs for the fit and the pre-training of all models: parents before children, then longest first.

    Raises ConfigError: a corpus too short for its runs, for all corpora at once.
    """
    runs = grid_runs(context)
    if problems := list(supply_problems(runs, context)):
        raise ConfigError(problems)
    return starting_order(runs)


def grid_runs(context: Context) -> list[PlannedRun]:
    """The same in no order, also where a corpus is too short for them."""
    by_hash: dict[str, PlannedRun] = {}
    for name, role, variant in variants(context.question):
        for run in _runs(context.asking(variant), role):
            by_hash.setdefault(run.spec.hash, dataclasses.replace(run, variant=name))
    return list(by_hash.values())


def starting_order(runs: list[PlannedRun]) -> list[PlannedRun]:
    """Runs with parents before children, then longest first."""
    work = {run.name: model_size(run.spec.model, run.spec.sequence_length).flops_per_token for run in runs}
    by_hash = {run.spec.hash: run for run in runs}

    def branches(run: PlannedRun | None) -> int:
        """How many branches lead to a run, itself included."""
        return 1 + branches(by_hash.get(run.spec.initial.run)) if run and run.spec.initial.moments else 0

    return sorted(runs, key=lambda run: (run.role != "pretrain", branches(run), -work[run.name] * run.spec.tokens))


def pretraining_runs(context: Context) -> dict[str, PlannedRun]:
    """Model -> its pre-training; none for a model with a path."""
    return {name: pretraining_run(context, model) for name, model in context.models.items() if not model.path}


def _runs(context: Context, role: str) -> list[PlannedRun]:
    question, pretraining = context.question, context.once(pretraining_runs)
    steps, phase = question.continual.steps, question.continual
    continual = [
        continual_run(single, model, ratio, steps, seed, role, transfer, phase=phase)
        for single in map(context.asking, by_domain(question))
        for model in models(question)[0]
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
    context: Context, model: ModelConfig, domain_ratio: float | str, steps: int, seed: int, role: str,
    transfer: int | None = None, peak: float | None = None, phase: PhaseConfig | None = None,
) -> PlannedRun:  # fmt: skip
    """One continual run of a model at a domain ratio, from the end of its pre-training or from the step `transfer`.

    A run on general text only is one run for all domains of a study, and is evaluated on each. Without a phase it has
    the target's, but for the length, and for the peak learning rate where one is given.
    """
    question, corpora, ratio = context.question, context.question.corpora, Fraction(str(domain_ratio))
    start, budget = _initial_weights(context, model, transfer), None
    phase = dataclasses.replace(phase or with_peak(question, peak).target_phase, steps=steps)
    (_, mixture), *later = mixtures_of(phase, corpora, ratio)
    shared = bool(corpora.domains) and not later and mixture[corpora.general] == 1
    domains = corpora.domains if shared else [corpora.domain]
    mixture = {corpora.general: mixture[corpora.general], **dict.fromkeys(domains, mixture[corpora.domain]), **mixture}
    if role == "fit" and any(question.dense.get(name) == model.name for name in domains):
        phase.evaluation = dataclasses.replace(phase.evaluation, policy="dense")
        budget = 1.0
    spec = _spec(context, "continual", phase, start, _plain(mixture), seed, budget)
    phases = tuple(MixturePhase(first * phase.global_batch, _plain(other)) for first, other in later)
    spec = dataclasses.replace(spec, phases=phases) if phases else spec
    at = f"-from{transfer}" if transfer else ""
    ratios = "to".join(f"{float(other[corpora.domain]):g}" for other in (mixture, *(other for _, other in later)))
    mixed = f"{corpora.general}1" if shared else f"{corpora.domain}{ratios}"
    slug = f"continual-{model.name}-{mixed}{at}-{steps}-seed{seed}"
    return PlannedRun(f"{slug}-{spec.hash[:8]}", role, model.name, start.folder, spec)


def mixture_spec(
    context: Context, phase: PhaseConfig, ratios: Mapping[str, Fraction], seed: int
) -> tuple[RunSpec, str]:
    """The spec of a run of `weights.phase` at any mixture, evaluated on all corpora of the question.

    A corpus that `ratios` lacks has ratio 0. A run of phase continual starts from the pre-training of the model, or
    from its directory. Returns also the folder of the initial weights as in `PlannedRun.start`.
    """
    question, model, name = context.question, context.question.model, context.question.weights.phase
    start = _Start(shape_of(context, model)) if name == "pretrain" else _initial_weights(context, model)
    mixture = {corpus: str(Fraction(ratios.get(corpus, 0))) for corpus in question.corpora.sources}
    return _spec(context, name, phase, start, mixture, seed), start.folder


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


def pretraining_run(context: Context, model: ModelConfig) -> PlannedRun:
    """The pre-training run of a model on general text, with `pretrain.domain_ratio` of each domain."""
    question, corpora, phase = context.question, context.question.corpora, context.question.pretrain
    domains, ratio = corpora.domains or [corpora.domain], Fraction(str(phase.domain_ratio))
    mixture = _plain({corpora.general: 1 - ratio * len(domains), **dict.fromkeys(domains, ratio)})
    spec = _spec(context, "pretrain", phase, _Start(shape_of(context, model)), mixture, question.seed)
    name = f"pretrain-{model.name}-{spec.steps}-seed{spec.seed}-{spec.hash[:8]}"
    return PlannedRun(name, "pretrain", model.name, "", spec)


def shape_of(context: Context, model: ModelConfig) -> Architecture:
    """The architecture of a model of the question, with the vocabulary of the prepared corpora.

    Before prepare a base model of the hub has its published shape, so that an estimate downloads no weights, and one of
    a directory without weights that of its config.json.
    """
    question, manifest = context.question, context.manifest
    if not manifest.tokenizer and (shape := model_shape.shape_without_weights(model.path)):
        return shape
    model = model if manifest.tokenizer else published_shape(model.path) or model
    end = manifest.store(question.corpora.general).meta.end_of_text if manifest.tokenizer else 0
    parts = (question, question.pretrain, question.continual, question.target)
    longest = max(part.sequence_length or 0 for part in parts)
    # A mask token outside the tokenizer's vocabulary takes one more row.
    rows = max(manifest.vocabulary, model_shape.objective_of(context).mask_token + 1)
    return model_shape.configuration_of(model, rows, longest, end, model_shape.directory_key(model, question))


def _plain(mixture: Mapping[str, Fraction]) -> dict[str, str]:
    return {corpus: str(ratio) for corpus, ratio in mixture.items()}


def by_domain(question: Question) -> Iterator[Question]:
    """The question about each domain of its study."""
    for domain in question.corpora.domains or [question.corpora.domain]:
        yield dataclasses.replace(question, corpora=dataclasses.replace(question.corpora, domain=domain))


def _cells(question: Question) -> Iterator[tuple[float, int]]:
    mixture = question.mixture
    for ratio in mixture.domain_ratio:
        for number in range(mixture.replicates if ratio in replicated(mixture) else 1):
            yield ratio, question.seed + number


class _Start(NamedTuple):
    """What a run starts from: without a folder random weights, without `rate` no learning rate before it."""

    shape: Architecture
    initial: Initial = Initial()
    folder: str = ""
    rate: float = 0.0


def _initial_weights(context: Context, model: ModelConfig, transfer: int | None = None) -> _Start:
    """What a continual run starts from: a step of the model's pre-training, or its directory."""
    if parent := context.once(pretraining_runs).get(model.name):
        step = transfer or parent.spec.steps
        folder = f"runs/{parent.name}/checkpoints/step-{step}"
        initial = Initial("run", run=parent.spec.hash, step=step)
        return _Start(parent.spec.model, initial, folder, _rate_at(parent.spec, step))
    manifest = context.manifest
    # Before prepare the weights need not be there, and the number of token ids is not known.
    if not manifest.tokenizer and (published_shape(model.path) or model_shape.shape_without_weights(model.path)):
        return _Start(shape_of(context, model), Initial("directory", fingerprint="not fetched"), str(model.path))
    key = model_shape.directory_key(model, context.question)
    directory = model_shape.directory_of(model, key)
    shape, fingerprint = _read_directory(directory, tuple(file.stat().st_mtime_ns for file in directory.glob("*")))
    rows, causal = shape.get("vocab_size"), context.question.objective.kind == "causal"
    problem = vocabulary_problem(manifest.vocabulary, rows) if manifest.tokenizer and rows else ""
    problem = problem or (_causal_problem(shape["model_type"]) if causal else "")
    if problem:
        raise ConfigError([f"{key}: {model.path}: {problem}"])
    return _Start(shape, Initial("directory", fingerprint=fingerprint), str(directory))


@functools.lru_cache(maxsize=8)
def _read_directory(directory: Path, changed: tuple[int, ...]) -> tuple[Architecture, str]:
    # Cached, since gigabytes are hashed; `changed` makes the cache miss after a file was written.
    from training.model import read_model_directory

    return read_model_directory(directory)


# Cached, since a thousand runs may start from one.
_rates = functools.lru_cache(maxsize=8)(learning_rates)


def _rate_at(spec: RunSpec, step: int) -> float:
    return float(_rates(spec.schedule, spec.steps, spec.learning_rate_before)[step - 1])


def _causal_problem(model_type: str) -> str:
    from training.model import NOT_CAUSAL, is_encoder

    return NOT_CAUSAL.format(model_type) if is_encoder(model_type) else ""


@functools.cache
def _documents_problem(model_type: str) -> str:
    from training.model import documents_problem

    return documents_problem(model_type)


def _spec(
    context: Context, name: str, phase: PhaseConfig, start: _Start, mixture: dict[str, str], seed: int,
    budget: float | None = None,
) -> RunSpec:  # fmt: skip
    question, manifest, shape = context.question, context.manifest, start.shape
    if question.boundaries == "documents" and (problem := _documents_problem(shape["model_type"])):
        raise ConfigError([problem])
    spec = RunSpec(
        phase=name,
        model=shape if phase.rope_theta is None else model_shape.with_rope_theta(shape, phase.rope_theta),
        initial=start.initial,
        corpora={name: manifest.corpora[name].fingerprint for name in sorted(mixture)},
        mixture=mixture,
        sequence_length=phase.sequence_length or question.sequence_length,
        global_batch=phase.global_batch,
        steps=phase.steps,
        schedule=pieces(phase),
        learning_rate_before=start.rate,
        optimizer=question.optimizer,
        precision=context.precision,
        seed=seed,
        evaluation=phase.evaluation,
        validation_windows=question.validation_windows,
        objective=model_shape.objective_of(context),
        boundaries=question.boundaries,
        separator_first=context.once(model_shape.separator_is_first),
    )
    return within_budget(spec, question.evaluation_budget if budget is None else budget)
