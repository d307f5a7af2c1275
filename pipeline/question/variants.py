"""Variants of a study: parts that differ in a few keys, like schedules, each planned as a question of its own."""

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pipeline.question.messages import one_line, value_problems
from pipeline.question.schema import MixtureConfig, PhaseConfig, Question


@dataclass
class Variant:
    """The keys that a variant may change; their defaults are the question's values."""

    ladder: list[str]
    mixture: MixtureConfig
    pretrain: PhaseConfig
    continual: PhaseConfig
    transfer_steps: list[int]
    held_out: bool = False
    """Whether no fit may see its continual runs, which are then predicted."""


SHARED = [field.name for field in dataclasses.fields(Variant) if field.name != "held_out"]
"""Keys that a variant and a question have in common."""


def variants(question: Question) -> Iterator[tuple[str, str, Question]]:
    """Name, role of the continual runs, and question of each part: the question, nameless, then its variants.

    >>> from pipeline.question.loading import read_question
    >>> question = read_question(["variants.short={continual: {steps: 10}, held_out: true}"])
    >>> [(name, role, part.continual.steps) for name, role, part in variants(question)]
    [('', 'fit', 300), ('short', 'confirm', 10)]
    """
    yield "", "fit", question
    if not question.variants:
        return
    defaults = _defaults(question)
    for name, keys in question.variants.items():
        yield name, *_variant(question, defaults, keys)


def variant_questions(question: Question) -> Iterator[tuple[str, Question | str]]:
    """The key of each variant and its question, or the rest of a message where its keys are wrong."""
    if not question.variants:
        return
    defaults = _defaults(question)
    for name, keys in question.variants.items():
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
            yield "variants", f": {name!r}; allowed: letters, digits, '_' and '-', not first"
        key = f"variants.{name}"
        if not isinstance(keys, dict):
            yield key, f": {keys!r}; allowed: keys that differ, like {{continual: {{steps: 100}}}}"
            continue
        try:
            yield key, _variant(question, defaults, keys)[1]
        except OmegaConfBaseException as error:
            lines = list(value_problems("", keys, Variant)) or [f".{one_line(error, Variant)}"]
            yield from ((key, line) for line in lines)


def _defaults(question: Question) -> Any:
    """The variant that changes nothing; OmegaConf checks the others against it."""
    return OmegaConf.structured(Variant(**{name: getattr(question, name) for name in SHARED}))


def _variant(question: Question, defaults: Any, keys: dict[str, Any]) -> tuple[str, Question]:
    variant = OmegaConf.to_object(OmegaConf.merge(defaults, keys))
    assert isinstance(variant, Variant)
    if not isinstance(variant.mixture.domain_ratio, list):
        variant.mixture.domain_ratio = [variant.mixture.domain_ratio]
    changed = {name: getattr(variant, name) for name in SHARED}
    return "confirm" if variant.held_out else "fit", dataclasses.replace(question, variants={}, **changed)
