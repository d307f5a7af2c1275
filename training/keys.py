"""What a key allows, beside its field: `steps: Count = 600`."""

import difflib
import functools
import math
import re
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
    pattern: str = ""
    """Regular expression of a whole text."""

    def __contains__(self, value: Any) -> bool:
        if self.choices:
            return value in self.choices
        if self.pattern:
            return isinstance(value, str) and re.fullmatch(self.pattern, value) is not None
        return self.at_least <= value <= self.at_most and self.above < value < self.below

    def problem(self, value: Any) -> str:
        """What a message says of a value that is not allowed, and of the choice that is like it.

        >>> one_of("none", "linear").problem("liner")
        "'liner'; allowed: none, linear; did you mean linear?"
        """
        near = difflib.get_close_matches(str(value), self.choices, 1)
        return f"{value!r}; allowed: {self.text}{f'; did you mean {near[0]}?' if near else ''}"


def one_of(*choices: str) -> Allowed:
    """One of some words."""
    return Allowed(", ".join(choice or "empty" for choice in choices), choices=choices)


def between(low: float, high: float, note: str = "") -> Allowed:
    """The numbers from `low` to `high`; both are allowed.

    >>> between(1, 1000, "seeds").text
    '1 to 1,000, seeds'
    """
    return Allowed(f"{low:,} to {high:,}{f', {note}' * bool(note)}", at_least=low, at_most=high)


def up_to(high: float, note: str = "") -> Allowed:
    """The numbers above 0, up to `high`."""
    return Allowed(f"above 0, up to {high:,}{f', {note}' * bool(note)}", above=0, at_most=high)


MOST_STEPS = 10_000_000
"""Steps of the longest run: its learning rates are an array in memory."""
Count = Annotated[int, between(1, 1_000_000_000)]
Natural = Annotated[int, between(0, 1_000_000_000)]
Steps = Annotated[int, between(1, MOST_STEPS)]
Step = Annotated[int, between(0, MOST_STEPS)]
Repeats = Annotated[int, between(1, 1000)]
Size = Annotated[int, between(0, 1_000_000)]
Seed = Annotated[int, between(0, 2**32 - 1)]
Tokens = Annotated[int, between(1, 10_000_000)]
Seconds = Annotated[float, Allowed("above 0, below 86400, seconds", above=0, below=86400)]
Ratio = Annotated[float, Allowed("0 to 1", at_least=0, at_most=1)]
PositiveRatio = Annotated[float, up_to(1)]
RatioBelowOne = Annotated[float, Allowed("0 or more, below 1", at_least=0, below=1)]
OpenRatio = Annotated[float, Allowed("above 0, below 1", above=0, below=1)]
LearningRate = Annotated[float, up_to(10)]
NAME = Allowed("letters, digits, '_', '.' and '-', not first", pattern=r"[A-Za-z0-9][A-Za-z0-9_.-]*")
Name = Annotated[str, NAME]
RopeTheta = Annotated[float, between(1, 10**12)]


def key_problems(section: Any, prefix: str = "", without: tuple[str, ...] = ()) -> Iterator[str]:
    """A line for each value in a section, and in the sections inside it, that its key does not allow.

    >>> from training.spec import Optimizer
    >>> list(key_problems(Optimizer(beta2=1.0), "optimizer."))
    ['optimizer.beta2: 1.0; allowed: 0 or more, below 1']
    """
    for name, allowed in allowed_values(type(section)).items():
        if name not in without:
            yield from _problems_of(f"{prefix}{name}", f"{prefix}{name}", getattr(section, name), allowed)


def _problems_of(key: str, at: str, value: Any, allowed: Allowed | None) -> Iterator[str]:
    """The lines of one value; `key` is named of an element `at` of a list."""
    if is_dataclass(value):
        yield from key_problems(value, f"{at}.")
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _problems_of(f"{at}.{name}", f"{at}.{name}", inner, allowed)
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _problems_of(key, f"{at}[{number}]", inner, allowed)
    elif allowed and value is not None and value not in allowed:
        yield f"{key}: {allowed.problem(value)}"


@functools.cache
def allowed_values(schema: type) -> dict[str, Allowed | None]:
    """Field -> what its annotation allows, also inside X | None and list[X]."""
    hints = get_type_hints(schema, include_extras=True)
    return {item.name: next(_annotations(hints[item.name]), None) for item in fields(schema)}


def _annotations(hint: Any) -> Iterator[Allowed]:
    yield from (note for note in getattr(hint, "__metadata__", ()) if isinstance(note, Allowed))
    for inner in get_args(hint):
        yield from _annotations(inner)
