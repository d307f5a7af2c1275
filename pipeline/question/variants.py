"""Arms of a study: parts that differ in a few keys, like schedules, each planned as a question of its own."""

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
class Arm:
    """What an arm may change; each begins as the question has it."""

    ladder: list[str]
    mixture: MixtureConfig
    pretrain: PhaseConfig
    continual: PhaseConfig
    transfer_steps: list[int]
    held_out: bool = False
    """Whether no fit may see its continual runs: they are there to be predicted."""


SHARED = [field.name for field in dataclasses.fields(Arm) if field.name != "held_out"]
"""Keys that an arm and a question have."""


def arms(question: Question) -> Iterator[tuple[str, str, Question]]:
    """Name, role of the continual runs and question of each part: the question itself, without a name, then its arms.

    >>> from pipeline.question.loading import read_question
    >>> question = read_question(["arms.short={continual: {steps: 10}, held_out: true}"])
    >>> [(name, role, own.continual.steps) for name, role, own in arms(question)]
    [('', 'fit', 300), ('short', 'confirm', 10)]
    """
    yield "", "fit", question
    plain_arm = _plain_arm(question)
    for name, keys in question.arms.items():
        yield name, *_of_arm(question, plain_arm, keys)


def arm_problems(question: Question, problems: Callable[[Question], Iterable[str]]) -> Iterator[str]:
    """What is wrong with the arms, a line each; `problems` tells it of a question."""
    known, plain_arm = set(problems(dataclasses.replace(question, arms={}))), _plain_arm(question)
    for name, keys in question.arms.items():
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
            yield f"arms: {name!r}; allowed: letters, digits, '_' and '-', not first"
        if not isinstance(keys, dict):
            yield f"arms.{name}: {keys!r}; allowed: keys that differ, like {{continual: {{steps: 100}}}}"
            continue
        try:
            _, own = _of_arm(question, plain_arm, keys)
        except OmegaConfBaseException as error:
            yield f"arms.{name}.{plain(error, Arm)}"
            continue
        yield from (f"arms.{name}.{line}" for line in problems(own) if line not in known)


def _plain_arm(question: Question) -> Any:
    """The arm that changes nothing, as OmegaConf checks what others change."""
    return OmegaConf.structured(Arm(**{name: getattr(question, name) for name in SHARED}))


def _of_arm(question: Question, plain_arm: Any, keys: dict[str, Any]) -> tuple[str, Question]:
    own = OmegaConf.to_object(OmegaConf.merge(plain_arm, keys))
    assert isinstance(own, Arm)
    if not isinstance(own.mixture.domain, list):
        own.mixture.domain = [own.mixture.domain]
    changed = {name: getattr(own, name) for name in SHARED}
    return "confirm" if own.held_out else "fit", dataclasses.replace(question, arms={}, **changed)
