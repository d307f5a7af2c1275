"""The preflight: every mistake in a question that can be found without data, a line each."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from pipeline.question.design import design_problems, is_active
from pipeline.question.messages import ConfigError
from pipeline.question.phases import branch_phase, phase_problems, pieces, replicated
from pipeline.question.presets import kinds, ladder_names, law_problems, models
from pipeline.question.schema import GOAL_KINDS, CorporaConfig, ModelConfig, PhaseConfig, Question
from pipeline.question.schema.execution import LauncherConfig
from pipeline.question.slurm_options import slurm_problems
from pipeline.question.variants import variant_questions
from training.devices.group import parallel_problem
from training.evaluation_steps import evaluation_steps
from training.keys import MOST_STEPS, NAME, key_problems
from training.parameters import DENSE_PEAKS, peak_flops
from training.schedule import learning_rates

DEEPSPEED_REFUSED = {"optimizer", "scheduler", "fp16", "bf16", "gradient_accumulation_steps", "train_batch_size"}


Check = Callable[[Question], Iterable[str]]
"""Finds mistakes in a question, a line each."""


def problems(question: Question, goal_problems: Check) -> Iterator[str]:
    """A line for each mistake, variants included: key, value, what is allowed.

    `goal_problems` finds those in the keys that the goal of the question alone reads.
    """
    lines = list(_own_problems(question, goal_problems))
    yield from lines
    for key, variant in variant_questions(question):
        if isinstance(variant, str):
            yield f"{key}{variant}"
        else:
            yield from (f"{key}.{line}" for line in _own_problems(variant, goal_problems) if line not in lines)


def _own_problems(question: Question, goal_problems: Check) -> Iterator[str]:
    yield from _mixture_problems(question)
    of_keys = list(key_problems(question, without=("pretrain", "continual")))
    # What is wrong with a source is said with what is wrong with its files, by prepare and plan.
    of_keys = [line for line in of_keys if not line.startswith("corpora.sources.")]
    yield from of_keys
    for name in ("pretrain", "continual"):
        if name == "continual" or _pretrains(question):
            # What the runs for the fit have of the target is said of the target.
            lines = _phase_problems(name, question)
            yield from (line for line in lines if line.replace("continual.", "target.", 1) not in of_keys)
    yield from _target_problems(question)
    yield from _execution_problems(question)
    yield from _model_problems(question)
    for step in question.transfer_steps:
        if not 1 <= step <= question.pretrain.steps:
            yield f"transfer_steps: {step}; allowed: 1 to pretrain.steps, {question.pretrain.steps}"
    if not question.law and not question.goal_kind.many_domains:
        yield "law: empty; allowed: one or more, like law=[transfer-anchored]; cptlaw laws lists them"
    yield from law_problems(question.law)
    yield from _corpus_problems(question.corpora)
    yield from _dense_problems(question)
    yield from _goal_problems(question)
    yield from goal_problems(question)
    yield from design_problems(question)


def _pretrains(question: Question) -> bool:
    """Whether a model of the question has no weights yet; of an unknown one, which another line names, as if."""
    try:
        ladder, target = models(question)
    except ConfigError:
        return True
    return not all(model.path for model in [*ladder, target])


def _goal_problems(question: Question) -> Iterator[str]:
    """A line for each key of the goal, and of its confirmation, with a value that is not allowed."""
    goal = question.goal
    if goal.kind not in GOAL_KINDS:
        yield f"goal.kind: {goal.kind!r}; allowed: {', '.join(GOAL_KINDS)}"
    if 0 in question.confirm.around:
        yield "confirm.around: 0; allowed: differences of the domain ratio, between -1 and 1 and not 0"
    if goal.kind == "compute" and "dynamics-replay" in question.law:
        yield "law: dynamics-replay with goal.kind=compute; allowed: laws of several sizes, like transfer-anchored"
    if goal.change_at and goal.kind != "trade-off":
        yield f"goal.change_at: {goal.change_at} with goal.kind={goal.kind}; allowed: goal.kind=trade-off, or []"
    if goal.change_at and "transfer-two-mixtures" not in question.law:
        laws = ",".join([*question.law, "transfer-two-mixtures"])
        yield f"goal.change_at: {goal.change_at} needs the law transfer-two-mixtures; allowed: law=[{laws}]"


def _mixture_problems(question: Question) -> Iterator[str]:
    ratios = question.mixture.domain_ratio
    asked = question.goal.kind in GOAL_KINDS and not question.goal_kind.many_domains
    if not ratios and asked and not is_active(question):
        yield (
            f"mixture.domain_ratio: empty with design.kind={question.design.kind} and goal.kind={question.goal.kind}; "
            "allowed: ratios of the domain corpus, 0 to 1, like [0.1,0.5,0.9], or mixture=ratios"
        )
    for ratio in ratios:
        if not isinstance(ratio, int | float) or isinstance(ratio, bool) or not 0 <= ratio <= 1 or math.isnan(ratio):
            yield f"mixture.domain_ratio: {ratio!r}; allowed: 0 to 1, the ratio of the domain corpus"
    for ratio in replicated(question.mixture) if ratios or question.mixture.replicate_at is not None else []:
        if ratio not in ratios:
            yield f"mixture.replicate_at: {ratio}; allowed: one of mixture.domain_ratio, {ratios}, or null"


def _phase_problems(name: str, question: Question) -> Iterator[str]:
    phase: PhaseConfig = dataclasses.replace(getattr(question, name), steps=question.steps_of(name))
    yield from key_problems(phase, f"{name}.")
    if phase.global_batch >= 1:
        batch = question.launcher.micro_batch
        if problem := parallel_problem(question.parallel, question.engine, phase.global_batch, batch):
            given = name == "continual" and phase.global_batch == question.target.global_batch
            yield problem.replace("global_batch", f"{'target' if given else name}.global_batch")
    yield from _pretraining_problems(name, phase, question.corpora)
    if not 1 <= phase.steps <= MOST_STEPS:
        return
    if lines := list(phase_problems(name, phase, question)):
        yield from lines
        phase = dataclasses.replace(phase, phases=[])
    try:
        rates = learning_rates(pieces(phase), phase.steps)
    except ValueError as error:
        yield f"{name}.{error}"
    else:
        yield from _branch_problems(name, phase, rates)
    for key, policy in (("evaluation", phase.evaluation), ("checkpoints", phase.checkpoints)):
        try:
            evaluation_steps(policy, phase.steps)
        except ValueError as error:
            yield f"{name}.{str(error).replace('evaluation.', f'{key}.')}"


def _target_problems(question: Question) -> Iterator[str]:
    """What is wrong with the target alone, and what of its steps differs from those of the runs for the fit."""
    phase, runs = question.target_phase, question.continual
    if not 1 <= phase.steps <= MOST_STEPS or phase.phases or question.goal_kind.many_domains:
        return
    if (phase.steps, phase.schedule) != (runs.steps, runs.schedule):
        try:
            learning_rates(pieces(phase), phase.steps)
        except ValueError as error:
            yield f"target.{error}"
    for key in ("global_batch", "sequence_length"):
        given, asked = (getattr(part, key) or question.sequence_length for part in (runs, phase))
        if given != asked:
            allowed = f"{asked}, since no law knows how the loss depends on it; give target.{key} alone"
            yield f"continual.{key}: {given} with target.{key}={asked}; allowed: {allowed}"


def _pretraining_problems(name: str, phase: PhaseConfig, corpora: CorporaConfig) -> Iterator[str]:
    count = len(corpora.domains or [corpora.domain])
    if name != "pretrain" and phase.domain_ratio:
        yield f"{name}.domain_ratio: {phase.domain_ratio}; allowed: 0, the ratios of its runs are mixture.domain_ratio"
    elif not 0 <= phase.domain_ratio <= 1 / count:
        yield f"{name}.domain_ratio: {phase.domain_ratio}; allowed: 0 to {1 / count:.4g}, of each of {count} domains"


def _branch_problems(name: str, phase: PhaseConfig, rates: np.ndarray) -> Iterator[str]:
    for number, branch in enumerate(phase.branches):
        key = f"{name}.branches[{number}]"
        if not 1 <= branch.step <= phase.steps:
            yield f"{key}.step: {branch.step}; allowed: 1 to {name}.steps, {phase.steps}"
            continue
        try:
            learning_rates(pieces(branch_phase(phase, branch)), branch.steps, float(rates[branch.step - 1]))
        except ValueError as error:
            yield f"{key}.{error}"


def _execution_problems(question: Question) -> Iterator[str]:
    for key in DEEPSPEED_REFUSED & set(question.parallel.deepspeed):
        yield f"parallel.deepspeed.{key}: not allowed; cptlaw decides it (see docs/at-scale.md)"
    if question.dry_run and not question.launcher.elsewhere:
        others = " or ".join(f"launcher={kind}" for kind in kinds()["launcher"] if LauncherConfig(kind).elsewhere)
        yield f"dry_run: true with launcher.kind={question.launcher.kind}; allowed: {others} (else: cptlaw plan)"
    if (device := question.launcher.device) is not None and peak_flops(device) is None:
        yield f"launcher.device: {device!r}; allowed: a name with one of {', '.join(DENSE_PEAKS)}, or null"
    yield from _packing_problems(question)
    yield from slurm_problems(question)


def _packing_problems(question: Question) -> Iterator[str]:
    launcher, key = question.launcher, "launcher.runs_per_device"
    if (number := launcher.runs_per_device) is None:
        return
    if question.parallel.kind != "single":
        yield f"{key}: {number} with parallel.kind={question.parallel.kind}; allowed: null, or parallel=single"
    if launcher.workers and not launcher.elsewhere:
        yield f"{key}: {number} beside launcher.workers={launcher.workers}; allowed: one of them"
    if launcher.elsewhere and launcher.slurm.has_gpus and not launcher.slurm.gpu_count:
        yield f"{key}: {number} with GPUs by launcher.slurm.extra; allowed: GPUs by launcher.slurm.gpus"


def _model_problems(question: Question) -> Iterator[str]:
    model, kind = question.model, question.objective.kind
    if model.path is None and not (model.hidden_size and model.num_hidden_layers and model.intermediate_size):
        yield f"model.path: has no value, nor has {model.name} a shape; give model.path=... (a Hugging Face directory)"
    if question.general_from and not model.path:
        yield "general_from: of a model from scratch; allowed: [], or a base model (model.path)"
    if kind == "masked" and question.boundaries == "documents":
        yield "boundaries: 'documents' with objective.kind=masked; allowed: none"
    try:
        ladder, target = models(question)
    except ConfigError as error:
        yield from error.lines
        return
    places: dict[str, set[str | None]] = {}
    for one in [*ladder, target]:
        places.setdefault(one.name, set()).add(one.path)
    yield from (
        f"ladder: {len(paths)} models are called {name!r} ({', '.join(sorted(map(str, paths)))}); rename a folder, or "
        "give model.name="
        for name, paths in places.items()
        if len(paths) > 1
    )
    for one in [*ladder, target]:
        if not one.path and one.hidden_size:
            yield from _shape_problems(one)
        if not one.path and (one.model_type == "bert") != (kind == "masked"):
            allowed = "masked" if one.model_type == "bert" else "causal"
            yield f"objective.kind: {kind!r} with {one.name}; allowed: {allowed}, or models of another model_type"
            return


def _shape_problems(model: ModelConfig) -> Iterator[str]:
    """A line for each size of a model that does not divide another one as attention needs it."""
    heads, groups, width = model.num_attention_heads, model.num_key_value_heads, model.head_dim
    learned = model.model_type in ("gpt2", "bert")
    if heads < 1:
        yield f"model.num_attention_heads: {heads} of {model.name}; allowed: 1 or more"
    elif (learned or width is None) and model.hidden_size % heads:
        of = f"num_attention_heads {heads} of {model.name}"
        yield f"model.hidden_size: {model.hidden_size} is not divisible by {of}; allowed: a multiple of it"
    elif not learned and (width or model.hidden_size // heads) % 2:
        each = f"{width or model.hidden_size // heads} a head of {model.name}"
        yield f"model.hidden_size: {model.hidden_size}, {each}; allowed: an even number a head"
    elif not learned and groups and heads % groups:
        allowed = f"a divisor of num_attention_heads {heads} of {model.name}, or 0"
        yield f"model.num_key_value_heads: {groups}; allowed: {allowed}"


def _corpus_problems(corpora: CorporaConfig) -> Iterator[str]:
    for key in ("general", "domain"):
        if (corpus := getattr(corpora, key)) not in corpora.sources:
            yield f"corpora.{key}: {corpus!r} is not a source; allowed: {', '.join(corpora.sources)}"
    if corpora.general == corpora.domain:
        yield f"corpora.domain: {corpora.domain!r} is also the general corpus; allowed: another source"
    allowed = [name for name in corpora.sources if name != corpora.general]
    for domain in corpora.domains:
        if domain not in allowed:
            yield f"corpora.domains: {domain!r}; allowed: sources but the general one, {', '.join(allowed)}"
    if len({*corpora.domains}) < len(corpora.domains):
        yield f"corpora.domains: {corpora.domains}; allowed: each domain once"
    if corpora.domains and corpora.domain not in corpora.domains:
        yield f"corpora.domain: {corpora.domain!r}; allowed: one of corpora.domains, {', '.join(corpora.domains)}"
    yield from (f"corpora.sources: {NAME.problem(name)}" for name in corpora.sources if name not in NAME)


def _dense_problems(question: Question) -> Iterator[str]:
    domains = question.corpora.domains or [question.corpora.domain]
    ladder = ladder_names(question) or [question.model.name]
    for domain, model in question.dense.items():
        if domain not in domains:
            yield f"dense: {domain!r}; allowed: {', '.join(domains)}"
        if model not in ladder:
            yield f"dense.{domain}: {model!r}; allowed: models of the ladder, {', '.join(ladder)}"
