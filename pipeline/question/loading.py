"""From overrides on the command line to a checked question, or to all that is wrong with them at once."""

from __future__ import annotations

import ast
import difflib
import inspect
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, Field, asdict, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
from hydra import compose, initialize_config_module
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

import conf
from pipeline.question.goal import goal_problems, steps_of
from pipeline.question.schema import (
    BranchConfig,
    EvaluationConfig,
    LawConfig,
    MixtureConfig,
    ModelConfig,
    PhaseConfig,
    Question,
)
from pipeline.question.slurm_options import slurm_problems
from pipeline.study.folder import ROLES
from training.devices.group import Parallel, spread_problem
from training.evaluation_steps import EvaluationPolicy, evaluation_steps
from training.schedule import Piece, learning_rates
from training.spec import OBJECTIVES

CONF = Path(conf.__file__).parent
DEEPSPEED_REFUSED = {"optimizer", "scheduler", "fp16", "bf16", "gradient_accumulation_steps", "train_batch_size"}
OWN_NAMES = (
    r"corpora\.sources",
    r"weights\.base",
    r"weights\.value",
    r"weights\.given(\.[^=.]+)?",
    r"variants(\.[^=]+)?",
)
"""Keys below which the names are the user's, as expressions."""
ConfigStore.instance().store(name="schema", node=Question)


class ConfigError(ValueError):
    """What is wrong with a question, a line each."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = list(lines)


def read_question(overrides: Sequence[str]) -> Question:
    """Compose conf/ with overrides as Hydra reads them, and check the result.

    Raises:
        ConfigError: every mistake that could be found, a line each: key, value, what is allowed.

    >>> read_question(["experiment=quickstart", "mixture.domain_ratio=0.3"]).mixture.domain_ratio
    [0.3]
    """
    try:
        with initialize_config_module("conf", version_base="1.3"):
            composed = compose("config", adding(overrides))
        return checked(composed)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError([plain(error)]) from None


def adding(overrides: Sequence[str]) -> list[str]:
    """Overrides as Hydra wants them where the names below a key are the user's own: with ++, which adds them.

    >>> adding(["seed=1", "weights.base={law: 1}"])
    ['seed=1', '++weights.base={law: 1}']
    """
    return [f"++{word}" if re.match(rf"({'|'.join(OWN_NAMES)})=", word) else word for word in overrides]


def checked(composed: Any) -> Question:
    """The question in a composed configuration, after all checks that need no data."""
    question = _question(composed)
    if problems := list(dict.fromkeys(_problems(question))):
        raise ConfigError(problems)
    return question


def _question(composed: Any) -> Question:
    missing = sorted(OmegaConf.missing_keys(composed))
    if missing:
        raise ConfigError([f"{key}: has no value; give {key}=..." for key in missing])
    question = OmegaConf.to_object(composed)
    assert isinstance(question, Question)
    if not isinstance(question.mixture.domain_ratio, list):
        question.mixture.domain_ratio = [question.mixture.domain_ratio]
    return question


def models(question: Question) -> tuple[list[ModelConfig], ModelConfig]:
    """The models that are continued for the fit, smallest file first as given, and the one that the answer is for.

    Raises:
        ConfigError: a name in the ladder that is no file of conf/model, or that needs a path.
    """
    ladder = [preset(name) for name in question.ladder]
    return ladder or [question.model], question.model


def preset(name: str) -> ModelConfig:
    """A file of conf/model.

    Raises:
        ConfigError: no such file, or one that wants a path.
    """
    path = CONF / "model" / f"{name}.yaml"
    names = sorted(file.stem for file in (CONF / "model").glob("*.yaml"))
    if name not in names:
        raise ConfigError([f"ladder: {name!r} is not a model; allowed: {', '.join(names)}{nearest(name, names)}"])
    merged = OmegaConf.merge(OmegaConf.structured(ModelConfig), OmegaConf.load(path))
    if OmegaConf.missing_keys(merged):
        raise ConfigError([f"ladder: {name!r} needs a path; use it as model={name} model.path=..."])
    return OmegaConf.to_object(merged)  # pyright: ignore[reportReturnType]


def pieces(phase: PhaseConfig) -> tuple[Piece, ...]:
    """The phase's schedule with its rates in place of shares of the peak."""

    def rate(share: float | None) -> float | None:
        # Rounded to 12 digits: 0.1 x 3e-3 has the same name on every machine.
        return None if share is None else float(f"{share * phase.peak_learning_rate:.12g}")

    return tuple(
        Piece(piece.shape, rate(piece.start), rate(piece.end), piece.steps, piece.share, piece.power)
        for piece in phase.schedule.pieces
    )


def branch_phase(phase: PhaseConfig, branch: BranchConfig) -> PhaseConfig:
    """A branch as a phase of its own."""
    return replace(phase, steps=branch.steps, schedule=branch.schedule, branches=[])


def spread(question: Question) -> Parallel:
    """The devices of a run as training reads them."""
    return Parallel(**asdict(question.parallel))


def policy(evaluation: EvaluationConfig) -> EvaluationPolicy:
    """The evaluation policy as training reads it."""
    return EvaluationPolicy(
        evaluation.policy,
        evaluation.every,
        evaluation.decay,
        evaluation.bernoulli,
        evaluation.seed,
        tuple(evaluation.steps),
    )


def load_question(path: Path, overrides: Sequence[str] = (), *, again: bool = True) -> Question:
    """Read a study.yaml back, with values changed by overrides, and check it again unless it was just written.

    Raises:
        ConfigError: it is not one that this version can read, or an override names a group or no key.
    """
    try:
        stored = OmegaConf.merge(OmegaConf.structured(Question), OmegaConf.load(path))
    except (OmegaConfBaseException, YAMLError, ValueError, OSError) as error:
        raise ConfigError([f"{path}: cannot be read as a question ({plain(error)}); plan again"]) from None
    try:
        for override in OverridesParser.create().parse_overrides(list(overrides)):
            key = override.get_key_element()
            if key == "experiment":
                continue
            if key == "law":
                stored.law = _law_files(override.value())
                continue
            if key == "goal":
                OmegaConf.update(stored, key, _goal_file(override.value()), merge=True, force_add=False)
                continue
            if (CONF / key).is_dir():
                problem = f"{key}: a group; an existing study takes law=[...], goal=... and single keys"
                raise ConfigError([f"{problem}, like goal.tolerance=0.05"])
            OmegaConf.update(stored, key, override.value(), merge=True, force_add=False)
        return checked(stored) if again else _question(stored)
    except (OmegaConfBaseException, HydraException, AttributeError) as error:
        raise ConfigError([plain(error)]) from None


def _law_files(names: Any) -> dict[str, LawConfig]:
    """The sections of conf/law that `law=[...]` names."""
    known = sorted(path.stem for path in (CONF / "law").glob("*.yaml"))
    names = names if isinstance(names, list) else [names]
    if unknown := [str(name) for name in names if name not in known]:
        raise ConfigError([f"law: {name!r} is not a law; allowed: {', '.join(known)}" for name in unknown])
    return {name: LawConfig(**OmegaConf.load(CONF / "law" / f"{name}.yaml")[name]) for name in names}


def _goal_file(name: Any) -> Any:
    """The section of conf/goal that `goal=NAME` names."""
    known = sorted(path.stem for path in (CONF / "goal").glob("*.yaml"))
    if name not in known:
        raise ConfigError([f"goal: {name!r} does not exist; allowed: {', '.join(known)}{nearest(str(name), known)}"])
    return OmegaConf.load(CONF / "goal" / f"{name}.yaml")


def question_of_study(folder: Path, overrides: Sequence[str], *, again: bool = True) -> Question:
    """The question of a study that exists, wherever its folder lies now; `again` as in `load_question`.

    Raises:
        ConfigError: as `load_question`; the folder has no study.yaml.
    """
    if not (folder / "study.yaml").exists():
        raise ConfigError([f"{folder}: not a study, it has no study.yaml; cptlaw plan makes one"])
    question = load_question(folder / "study.yaml", overrides, again=again)
    question.name, question.studies = folder.resolve().name, str(folder.parent)
    # Training is asked for by the words of a command, never by what an earlier one was told.
    question.tables.run &= any(word.lstrip("+").startswith("tables.run=") for word in overrides)
    return question


def describe_keys(kind: type = Question) -> Iterator[tuple[str, str, str]]:
    """Every key with its default and its docstring, from the schema's source."""
    yield from _describe(kind, "")


def _problems(question: Question) -> Iterator[str]:
    yield from _mixture_problems(question)
    batch = question.launcher.micro_batch
    for key in DEEPSPEED_REFUSED & set(question.parallel.deepspeed):
        yield f"parallel.deepspeed.{key}: not allowed; cptlaw decides it (see docs/devices.md)"
    for name in ("pretrain", "continual"):
        phase: PhaseConfig = getattr(question, name)
        if name == "pretrain" and question.model.path and not question.ladder:
            continue
        phase = replace(phase, steps=steps_of(question, name))
        if phase.steps < 1:
            yield f"{name}.steps: {phase.steps}; allowed: 1 or more"
            continue
        if phase.global_batch < 1:
            yield f"{name}.global_batch: {phase.global_batch}; allowed: 1 or more"
        elif problem := spread_problem(spread(question), question.engine, phase.global_batch, batch):
            yield problem.replace("global_batch", f"{name}.global_batch")
        try:
            rates = learning_rates(pieces(phase), phase.steps)
        except ValueError as error:
            yield f"{name}.{error}"
        else:
            yield from _branch_problems(name, phase, rates)
        try:
            evaluation_steps(policy(phase.evaluation), phase.steps)
        except ValueError as error:
            yield f"{name}.{error}"
        try:
            evaluation_steps(policy(phase.checkpoints), phase.steps)
        except ValueError as error:
            yield f"{name}.{str(error).replace('evaluation.', 'checkpoints.')}"
    allowed = {
        "precision": ("auto", "fp32", "bf16"),
        "engine": ("auto", "sdpa", "eager", "sdpa-compiled", "eager-compiled", "sdpa-chunked"),
        "boundaries": ("none", "documents"),
    }
    if question.evaluate.role not in ("", *ROLES):
        yield f"evaluate.role: {question.evaluate.role!r}; allowed: {', '.join(ROLES)}, or nothing"
    if question.evaluate.checkpoints not in ("last", "all"):
        yield f"evaluate.checkpoints: {question.evaluate.checkpoints!r}; allowed: last, all"
    for key, values in allowed.items():
        if (value := getattr(question, key)) not in values:
            yield f"{key}: {value!r}; allowed: {', '.join(values)}"
    yield from _objective_problems(question)
    for step in question.transfer_steps:
        if not 1 <= step <= question.pretrain.steps:
            yield f"transfer_steps: {step}; allowed: 1 to pretrain.steps, {question.pretrain.steps}"
    from fitting import LAWS  # with scipy half a second, which a worker that trains need not wait for

    for law in question.law:
        if law not in LAWS:
            yield f"law: {law!r} is not a law; allowed: {', '.join(LAWS)}{nearest(law, LAWS)}"
    for key in ("general", "domain"):
        corpus = getattr(question.corpora, key)
        if corpus not in question.corpora.sources:
            yield f"corpora.{key}: {corpus!r} is not a source; allowed: {', '.join(question.corpora.sources)}"
    yield from _domain_problems(question)
    if question.corpora.general == question.corpora.domain:
        yield f"corpora.domain: {question.corpora.domain!r} is also the general corpus; allowed: another source"
    for source in question.corpora.sources:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", source):
            yield f"corpora.sources: {source!r}; allowed: letters, digits, '_', '.' and '-', not first"
    # Both become folders.
    for key, name in (("name", question.name), ("model.name", question.model.name)):
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
            yield f"{key}: {name!r}; allowed: letters, digits, '_', '.' and '-', not first"
    if question.launcher.kind not in ("local", "slurm"):
        yield f"launcher.kind: {question.launcher.kind!r}; allowed: local, slurm"
    if question.dry_run and question.launcher.kind != "slurm":
        yield f"dry_run: true with launcher.kind={question.launcher.kind}; allowed: launcher=slurm (else: cptlaw plan)"
    yield from slurm_problems(question)
    tracking = question.tracking
    if tracking.kind not in ("none", "wandb"):
        yield f"tracking.kind: {tracking.kind!r}; allowed: none, wandb"
    if tracking.mode not in ("auto", "online", "offline"):
        yield f"tracking.mode: {tracking.mode!r}; allowed: auto, online, offline"
    for key in ("every", "wait"):
        if not 0 < (seconds := getattr(tracking, key)) < 86400:
            yield f"tracking.{key}: {seconds}; allowed: above 0, seconds"
    yield from goal_problems(question)
    model = question.model
    if model.path is None and not (model.hidden_size and model.num_hidden_layers and model.intermediate_size):
        yield f"model.path: has no value, nor has {model.name} a shape; give model.path=... (a Hugging Face directory)"
    try:
        models(question)
    except ConfigError as error:
        yield from error.lines
    if question.variants:
        from pipeline.question.variants import variant_problems

        yield from variant_problems(question, _problems)


def _domain_problems(question: Question) -> Iterator[str]:
    corpora = question.corpora
    allowed = [name for name in corpora.sources if name != corpora.general]
    for domain in corpora.domains:
        if domain not in allowed:
            yield f"corpora.domains: {domain!r}; allowed: sources but the general one, {', '.join(allowed)}"
    if len({*corpora.domains}) < len(corpora.domains):
        yield f"corpora.domains: {corpora.domains}; allowed: each domain once"
    if corpora.domains and corpora.domain not in corpora.domains:
        yield f"corpora.domain: {corpora.domain!r}; allowed: one of corpora.domains, {', '.join(corpora.domains)}"
    domains, ladder = corpora.domains or [corpora.domain], question.ladder or [question.model.name]
    for domain, model in question.dense.items():
        if domain not in domains:
            yield f"dense: {domain!r}; allowed: {', '.join(domains)}"
        if model not in ladder:
            yield f"dense.{domain}: {model!r}; allowed: models of the ladder, {', '.join(ladder)}"


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


def _objective_problems(question: Question) -> Iterator[str]:
    kind, share = question.objective.kind, question.objective.mask_share
    if kind not in OBJECTIVES:
        yield f"objective.kind: {kind!r}; allowed: {', '.join(OBJECTIVES)}"
    if not 0.0 < share < 1.0:
        yield f"objective.mask_share: {share}; allowed: above 0, below 1"
    if kind == "masked" and question.boundaries == "documents":
        yield "boundaries: 'documents' with objective.kind=masked; allowed: none"
    try:
        ladder, target = models(question)
    except ConfigError:
        return
    for model in [*ladder, target]:
        if not model.path and (model.model_type == "bert") != (kind == "masked"):
            want = "masked" if model.model_type == "bert" else "causal"
            yield f"objective.kind: {kind!r} with {model.name}; allowed: {want}, or models of another model_type"
            return


def replicated(mixture: MixtureConfig) -> list[float]:
    """The domain shares at which further seeds are run."""
    if mixture.replicate_at is None:
        return [sorted(mixture.domain_ratio)[len(mixture.domain_ratio) // 2]]
    return mixture.replicate_at if isinstance(mixture.replicate_at, list) else [mixture.replicate_at]


def _mixture_problems(question: Question) -> Iterator[str]:
    shares = question.mixture.domain_ratio
    if not shares:
        yield "mixture.domain_ratio: empty; allowed: shares of the domain corpus, 0 to 1, like [0.1,0.5,0.9]"
    for share in shares:
        if not isinstance(share, int | float) or isinstance(share, bool) or not 0 <= share <= 1 or math.isnan(share):
            yield f"mixture.domain_ratio: {share!r}; allowed: 0 to 1, the share of the domain corpus"
    for replicate in replicated(question.mixture) if shares else []:
        if replicate not in shares:
            yield f"mixture.replicate_at: {replicate}; allowed: one of mixture.domain_ratio, {shares}, or null"
    if question.mixture.replicates < 1:
        yield f"mixture.replicates: {question.mixture.replicates}; allowed: 1 or more"


def plain(error: Exception, kind: type = Question) -> str:
    """Hydra's and OmegaConf's messages in one line: the key, the value, what is allowed."""
    text, cause = str(error), str(error.__cause__ or error)
    full = re.search(r"full_key: (\S+)", cause)
    key = full.group(1) if full else ""
    if re.search(r"Key '[^']+' (is )?not in", cause):
        return f"{key}: no such key{nearest(key, [name for name, *_ in describe_keys(kind)])}"
    if key and "missing mandatory value" in cause:
        return f"{key}: has no value; give {key}=..."
    if missing := re.search(r"Could not (?:find|load) '([^']+)'", text):
        group, _, name = missing.group(1).rpartition("/")
        known = sorted(path.stem for path in (CONF / group).glob("*.yaml"))
        return f"{group}: {name!r} does not exist; allowed: {', '.join(known)}{nearest(name, known)}"
    line = next((line.strip() for line in cause.splitlines() if line.strip()), type(error).__name__)
    return f"{key}: {line}" if key and not line.startswith(key) else line


def nearest(word: str, words: Any) -> str:
    """A question after the word that was meant, if one is near; else nothing."""
    words = list(words)
    near = difflib.get_close_matches(word, words, 1, 0.5)
    if not near:
        near = [known for known in words if known.split(".")[-1] == word.split(".")[-1]][:1]
    return f"; did you mean {near[0]}?" if near else ""


def _describe(kind: type, prefix: str) -> Iterator[tuple[str, str, str]]:
    module = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(module, ast.ClassDef)
    notes = {
        before.target.id: " ".join(str(after.value.value).split())
        for before, after in zip(module.body, module.body[1:])
        if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name)
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
    }
    hints = get_type_hints(kind)
    for item in fields(kind):
        hint = hints[item.name]
        inner = next((arg for arg in (hint, *get_args(hint)) if isinstance(arg, type) and is_dataclass(arg)), None)
        key = f"{prefix}{item.name}"
        if inner is None:
            yield key, _default(item), notes.get(item.name, "")
        else:
            star = "" if inner is hint else ".*"
            yield f"{key}{star}", "", notes.get(item.name, "")
            yield from _describe(inner, f"{key}{star}.")


def _default(item: Field[Any]) -> str:
    value = item.default_factory() if item.default_factory is not MISSING else item.default
    return (
        ""
        if value == "???"
        else "null"
        if value is None
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )
