"""What a key allows, beside its field: `steps: Count = 600`."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, get_args, get_type_hints


@dataclass(frozen=True)
class Allowed:
    """The values that a key allows; a null passes, and of a list each element is tested."""

    text: str
    """What a message says of them."""
    at_least: float = -math.inf
    above: float = -math.inf
    at_most: float = math.inf
    below: float = math.inf
    choices: tuple[str, ...] = ()

    def __contains__(self, value: Any) -> bool:
        if self.choices:
            return value in self.choices
        return math.isfinite(value) and self.at_least <= value <= self.at_most and self.above < value < self.below


def one_of(*choices: str) -> Allowed:
    """One of some words."""
    return Allowed(", ".join(choice or "empty" for choice in choices), choices=choices)


Count = Annotated[int, Allowed("1 or more", at_least=1)]
Natural = Annotated[int, Allowed("0 or more", at_least=0)]
NonNegative = Annotated[float, Allowed("0 or more", at_least=0)]
Positive = Annotated[float, Allowed("above 0", above=0)]
Seconds = Annotated[float, Allowed("above 0, seconds", above=0)]
Ratio = Annotated[float, Allowed("0 to 1", at_least=0, at_most=1)]
PositiveRatio = Annotated[float, Allowed("above 0, up to 1", above=0, at_most=1)]
RatioBelowOne = Annotated[float, Allowed("0 or more, below 1", at_least=0, below=1)]
OpenRatio = Annotated[float, Allowed("above 0, below 1", above=0, below=1)]


def key_problems(section: Any, prefix: str = "", without: tuple[str, ...] = ()) -> Iterator[str]:
    """A line for each value in a section, and in the sections inside it, that its key does not allow.

    >>> from training.spec import Optimizer
    >>> list(key_problems(Optimizer(beta2=1.0), "optimizer."))
    ['optimizer.beta2: 1.0; allowed: 0 or more, below 1']
    """
    for name, allowed in allowed_values(type(section)).items():
        if name in without:
            continue
        value, key = getattr(section, name), f"{prefix}{name}"
        inside = {key: value}
        if isinstance(value, Mapping):
            inside = {f"{key}.{below}": inner for below, inner in value.items()}
        elif isinstance(value, list | tuple):
            inside = {f"{key}[{number}]": inner for number, inner in enumerate(value)}
        for below, inner in inside.items():
            if is_dataclass(inner):
                yield from key_problems(inner, f"{below}.")
            elif allowed and inner is not None and inner not in allowed:
                yield f"{key}: {inner!r}; allowed: {allowed.text}"


@functools.cache
def allowed_values(schema: type) -> dict[str, Allowed | None]:
    """Field -> what its annotation allows, also inside X | None and list[X]."""
    hints = get_type_hints(schema, include_extras=True)
    return {item.name: next(_annotations(hints[item.name]), None) for item in fields(schema)}


def _annotations(hint: Any) -> Iterator[Allowed]:
    yield from (note for note in getattr(hint, "__metadata__", ()) if isinstance(note, Allowed))
    for inner in get_args(hint):
        yield from _annotations(inner)
