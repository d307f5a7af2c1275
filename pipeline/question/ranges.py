"""Allowed values of single keys, in tables: ranges of numbers, and choices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from pipeline.question.schema import ROLES
from training.spec import OBJECTIVES

RANGES: dict[str, tuple[Callable[[float], bool], tuple[str, ...]]] = {
    "1 or more": (
        lambda value: value >= 1,
        (
            *("sequence_length", "mixture.replicates", "launcher.threads"),
            *("target.steps", "target.global_batch", "target.sequence_length"),
            *("launcher.slurm.nodes", "launcher.slurm.cpus", "launcher.slurm.signal"),
            *("model.head_dim", "model.vocab_size", "evaluate.batch", "evaluate.limit", "confirm.seeds"),
            "design.batch",
        ),
    ),
    "257 or more": (lambda value: value >= 257, ("corpora.tokenizer.vocabulary",)),
    "0 or more": (
        lambda value: value >= 0,
        (
            *("seed", "bootstrap", "validation_windows", "law.*.from_step", "tables.from_step", "model.hidden_size"),
            "target.peak_learning_rate",
            *("model.num_hidden_layers", "model.num_attention_heads", "model.num_key_value_heads"),
            *("model.intermediate_size", "optimizer.weight_decay", "optimizer.clip", "launcher.workers"),
            *("launcher.micro_batch", "launcher.resume_every", "launcher.resume_minutes", "launcher.retries"),
            *("launcher.slurm.gpus", "launcher.slurm.limit", "launcher.slurm.prepare_tasks"),
        ),
    ),
    "above 0": (lambda value: value > 0, ("optimizer.epsilon", "model.rope_theta")),
    "above 0, in design.budget_unit: FLOPs like 1e18": (lambda value: value > 0, ("design.budget",)),
    "above 0, seconds": (
        lambda value: value > 0,
        ("launcher.stale_after", "launcher.slurm.patience", "parallel.timeout"),
    ),
    "above 0, below 86400, seconds": (lambda value: 0 < value < 86400, ("tracking.every", "tracking.wait")),
    "0 to 1": (lambda value: 0 <= value <= 1, ("law.*.min_ratio", "tables.min_ratio")),
    "0 or more, below 1": (lambda value: 0 <= value < 1, ("optimizer.beta1", "optimizer.beta2", "confirm.neighbour")),
    "above 0, up to 1": (lambda value: 0 < value <= 1, ("evaluation_budget",)),
    "above 0, below 1": (
        lambda value: 0 < value < 1,
        ("corpora.validation_ratio", "objective.mask_share", "design.tolerance"),
    ),
}
"""What is allowed -> its test, and the keys that it holds for; * stands for any name. A null passes."""
PHASE_RANGES: dict[str, tuple[Callable[[float], bool], tuple[str, ...]]] = {
    "1 or more": (lambda value: value >= 1, ("steps", "global_batch", "sequence_length")),
    "0 or more": (lambda value: value >= 0, ("peak_learning_rate", "evaluation.seed")),
    "above 0": (lambda value: value > 0, ("rope_theta",)),
    "above 0, up to 1": (lambda value: 0 < value <= 1, ("part",)),
}
"""The same for the keys of a phase."""
CHOICES: dict[str, tuple[str, ...]] = {
    "precision": ("auto", "fp32", "bf16"),
    "engine": ("auto", "sdpa", "eager", "sdpa-compiled", "eager-compiled", "sdpa-chunked"),
    "boundaries": ("none", "documents"),
    "objective.kind": OBJECTIVES,
    "design.kind": ("auto", "grid", "active"),
    "design.budget_unit": ("auto", "FLOPs", "tokens", "device-hours"),
    "launcher.kind": ("local", "slurm"),
    "tracking.kind": ("none", "wandb"),
    "tracking.mode": ("auto", "online", "offline"),
    "evaluate.role": ("", *ROLES),
    "evaluate.checkpoints": ("last", "all"),
}
"""Key -> its allowed values."""


def range_problems(section: Any, ranges: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """A line for each number of a section that is outside its range, or not finite."""
    for allowed, (test, keys) in ranges.items():
        for key in keys:
            for name, value in _values(section, key.split("."), prefix):
                if value is not None and not (math.isfinite(value) and test(value)):
                    yield f"{name}: {value}; allowed: {allowed}"


def choice_problems(section: Any) -> Iterator[str]:
    """A line for each key of a question that is not one of its choices."""
    for key, choices in CHOICES.items():
        for name, value in _values(section, key.split("."), ""):
            if value not in choices:
                yield f"{name}: {value!r}; allowed: {', '.join(choice or 'empty' for choice in choices)}"


def _values(section: Any, parts: list[str], prefix: str) -> Iterator[tuple[str, Any]]:
    """The full name and value of each key that a dotted key with * stands for."""
    if not parts:
        yield prefix.removesuffix("."), section
        return
    names = list(section) if parts[0] == "*" else [parts[0]]
    for name in names:
        value = section[name] if isinstance(section, dict) else getattr(section, name)
        yield from _values(value, parts[1:], f"{prefix}{name}.")
