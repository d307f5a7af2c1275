"""Variants of a study: parts that differ in a few keys, like schedules, each planned as a question of its own."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pipeline.question.loading import plain
from pipeline.question.schema import MixtureConfig, PhaseConfig, Question


@dataclass
class Variant:
    """What a variant may change; each begins as the question has it."""

    ladder: list[str]
    mixture: MixtureConfig
    pretrain: PhaseConfig
    continual: PhaseConfig
    transfer_steps: list[int]
    held_out: bool = False
    """Whether no fit may see its continual runs: they are there to be predicted."""


SHARED = [field.name for field in dataclasses.fields(Variant) if field.name != "held_out"]
"""Keys that a variant and a question have."""


def variants(question: Question) -> Iterator[tuple[str, str, Question]]:
    """Name, role of the continual runs and question of each part: the question, nameless, then its variants.

    >>> from pipeline.question.loading import read_question
    >>> question = read_question(["variants.short={continual: {steps: 10}, held_out: true}"])
    >>> [(name, role, own.continual.steps) for name, role, own in variants(question)]
    [('', 'fit', 300), ('short', 'confirm', 10)]
    """
    yield "", "fit", question
    plain_variant = _plain_variant(question)
    for name, keys in question.variants.items():
        yield name, *_of_variant(question, plain_variant, keys)


def variant_problems(question: Question, problems: Callable[[Question], Iterable[str]]) -> Iterator[str]:
    """What is wrong with the variants, a line each; `problems` tells it of a question."""
    known, plain_variant = set(problems(dataclasses.replace(question, variants={}))), _plain_variant(question)
    for name, keys in question.variants.items():
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
            yield f"variants: {name!r}; allowed: letters, digits, '_' and '-', not first"
        if not isinstance(keys, dict):
            yield f"variants.{name}: {keys!r}; allowed: keys that differ, like {{continual: {{steps: 100}}}}"
            continue
        try:
            _, own = _of_variant(question, plain_variant, keys)
        except OmegaConfBaseException as error:
            yield f"variants.{name}.{plain(error, Variant)}"
            continue
        yield from (f"variants.{name}.{line}" for line in problems(own) if line not in known)


def _plain_variant(question: Question) -> Any:
    """The variant that changes nothing, as OmegaConf checks what others change."""
    return OmegaConf.structured(Variant(**{name: getattr(question, name) for name in SHARED}))


def _of_variant(question: Question, plain_variant: Any, keys: dict[str, Any]) -> tuple[str, Question]:
    own = OmegaConf.to_object(OmegaConf.merge(plain_variant, keys))
    assert isinstance(own, Variant)
    if not isinstance(own.mixture.domain_ratio, list):
        own.mixture.domain_ratio = [own.mixture.domain_ratio]
    changed = {name: getattr(own, name) for name in SHARED}
    return "confirm" if own.held_out else "fit", dataclasses.replace(question, variants={}, **changed)
