"""Error messages of a question: one line per mistake, with the key, its value, what is allowed and the closest key."""

import difflib
import functools
import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from rich.table import Table
from yaml import MarkedYAMLError

from conf import options
from pipeline.question.schema import Question
from training.keys import Allowed, allowed_values

_CONVERSION = re.compile(
    r"(.*: )?Value '(.*)' (?:of type '(\w+)' could not be converted to (Float|Integer)|is not a valid bool .*)",
    re.DOTALL,
)
"""OmegaConf's words for a value that is no number, or neither true nor false."""


class ConfigError(ValueError):
    """The mistakes in a question, a line each; of a word of more than 500 characters its beginning."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = [re.sub(r"\S{501,}?(?=[;:]?(?:\s|$))", _beginning, line) for line in lines]
        super().__init__("\n".join(self.lines))


class StudyError(ValueError):
    """A study folder, or another file of the user, that cannot be used; one line."""


class MissingError(StudyError):
    """A file of a study that a step has yet to make."""

    def __init__(self, path: Path, verb: str, folder: Path) -> None:
        super().__init__(f"{path}: missing; run cptlaw {verb} {shlex.quote(str(folder))} first")
        self.path, self.verb, self.folder = path, verb, folder


def _beginning(word: re.Match[str]) -> str:
    return f"{word[0][:100]}... ({len(word[0]):,} characters)"


def one_line(error: Exception, schema: type = Question) -> str:
    """A message of Hydra, OmegaConf or YAML as one line: the key, the value, what is allowed, or the line."""
    if isinstance(error, MarkedYAMLError) and error.problem_mark:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    text, cause = str(error), str(error.__cause__ or error)
    full = re.search(r"full_key: (\S+)", cause)
    key = full.group(1) if full else ""
    if re.search(r"Key '[^']+' (is )?not in", cause):
        owner = getattr(error.__cause__ or error, "object_type", None)
        if is_dataclass(owner) and isinstance(owner, type) and owner is not schema and "." not in key:
            # In an element of a list OmegaConf's key is the last name alone.
            return unknown_key(key, owner)
        return f"{key}: no such key{suggested_key(key, schema)}"
    if key and "missing mandatory value" in cause:
        return f"{key}: has no value; give {key}=..."
    if missing := re.search(r"Could not (?:find|load) '([^']+)'", text):
        group, _, name = missing.group(1).rpartition("/")
        return unknown_choice(group, name, getattr(error, "options", None) or options(group))
    line = next((line.strip() for line in cause.splitlines() if line.strip()), type(error).__name__)
    return _with_allowed(key, f"{key}: {line}" if key and not line.startswith(key) else line, schema)


def unknown_choice(group: str, name: str, known: Iterable[str]) -> str:
    """The message for an option that a group does not have."""
    known = sorted(known)
    return f"{group}: {name!r} does not exist; allowed: {', '.join(known)}{nearest(name, known)}"


def unknown_key(key: str, owner: type) -> str:
    """The message for a key that is no field of the dataclass at its place."""
    names, (*_, name) = [item.name for item in fields(owner)], key.split(".")
    return f"{key}: no such key; allowed: {', '.join(names)}{nearest(name, names)}"


def value_problems(key: str, value: Any, schema: type = Question) -> Iterator[str]:
    """A line for each mistake inside the value of a key, with its path.

    OmegaConf stops at the first, and its path begins anew in each element of a list.

    >>> list(value_problems("continual.phases", [{"share": "half"}, {"step": 3}]))  # doctest: +NORMALIZE_WHITESPACE
    ["continual.phases[0].share: 'half'; allowed: a number, above 0, up to 1",
     'continual.phases[1].step: no such key; allowed: steps, share, domain_ratio, mixture, schedule; did you mean
     steps?']
    """
    for line in _problems_of(key, value, type_of(key, schema) or Any):
        yield _with_allowed(line.partition(": ")[0], line, schema)


def _with_allowed(key: str, line: str, schema: type) -> str:
    """A line about a key; where OmegaConf says that a value is of no such type, in its place what the key allows."""
    if not (found := _CONVERSION.fullmatch(line)):
        return line
    before, value, kind, number = found.groups()
    form = {"Float": "a number", "Integer": "a whole number"}.get(number, "true or false")
    allowed = _type_and_allowed(key, schema)[1]
    shown_as = value if kind == "float" else repr(value)
    return f"{before or ''}{shown_as}; allowed: {form}{f', {allowed.text}' if allowed else ''}"


def type_of(key: str, schema: type = Question) -> Any:
    """The type of a key, also of an element of a list or a dictionary; None: no such key."""
    return _type_and_allowed(key, schema)[0]


def _type_and_allowed(key: str, schema: type) -> tuple[Any, Allowed | None]:
    """The type of a key as `type_of` gives it, and which values its annotation allows."""
    hint: Any = schema
    allowed = None
    for name in re.findall(r"[^.\[\]]+", key):
        kind = required(hint)
        if isinstance(kind, type) and is_dataclass(kind):
            hint, allowed = hints_of(kind).get(name), allowed_values(kind).get(name)
        else:
            hint = element_type(kind)
    return hint, allowed


def is_below_a_value(key: str) -> bool:
    """Whether a key lies below one that has a plain value, and no keys.

    >>> is_below_a_value("corpora.general.path"), is_below_a_value("corpora.general")
    (True, False)
    """
    names = key.split(".")
    return any(required(type_of(".".join(names[:end]))) in (str, int, float, bool) for end in range(1, len(names)))


def element_type(hint: Any) -> Any:
    """The type of the elements of a list or of the values of a dictionary; None: of neither; Any is of all."""
    arguments = get_args(hint)
    return hint if hint is Any else arguments[0 if get_origin(hint) in (list, tuple) else -1] if arguments else None


@functools.cache
def hints_of(schema: type) -> Mapping[str, Any]:
    """Field -> type of a dataclass, whose annotations are compiled once."""
    return get_type_hints(schema)


def _problems_of(key: str, value: Any, hint: Any) -> Iterator[str]:
    """A line for each mistake in a value that must be of the type `hint`."""
    kind = required(hint)
    schema = kind if isinstance(kind, type) and is_dataclass(kind) else None
    is_list, is_dict = get_origin(kind) in (list, tuple), get_origin(kind) is dict
    if schema and isinstance(value, dict):
        hints = hints_of(schema)
        for name, inner in value.items():
            below = f"{key}.{name}"
            yield from _problems_of(below, inner, hints[name]) if name in hints else [unknown_key(below, schema)]
    elif is_dict and isinstance(value, dict):
        for name, inner in value.items():
            yield from _problems_of(f"{key}.{name}", inner, get_args(kind)[1])
    elif is_list and isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _problems_of(f"{key}[{number}]", inner, get_args(kind)[0])
    elif schema or is_dict or is_list:
        names = f" with keys {', '.join(item.name for item in fields(schema))}" if schema else ""
        allowed = "a list, [...]" if is_list else f"{{key: value, ...}}{names}"
        if not (isinstance(value, str) and "${" in value) and not (value is None and hint is not kind):
            yield f"{key}: {value!r}; allowed: {allowed}"
    elif not (type(value) is kind or (value is None and hint is not kind)) or "${" in str(value):
        try:
            DictConfig({"": value}, element_type=hint)
        except OmegaConfBaseException as error:
            yield f"{key}: {str(error).splitlines()[0]}"


def required(hint: Any) -> Any:
    """The type X of X | None, else the type itself."""
    kinds = [kind for kind in get_args(hint) if kind is not type(None)]
    return kinds[0] if type(None) in get_args(hint) and len(kinds) == 1 else hint


def studies_beside(folder: Path) -> str:
    """Which studies are in the place of a folder that is none, else in studies/, or an empty string."""
    places = (sorted(place.glob("*/study.yaml")) for place in (folder.parent, Path("studies")))
    others = ([str(path.parent) for path in paths if path.parent != folder] for paths in places)
    found = next(filter(None, others), [])
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    return f"; studies here: {', '.join(found[:5])}{more}" if found else ""


def nearest(word: str, words: Iterable[str]) -> str:
    """A suggestion of the closest valid word, or an empty string.

    >>> nearest("chinchila", ["chinchilla", "dcpt"])
    '; did you mean chinchilla?'
    >>> nearest("domain_ratio", ["goal.domain_ratio", "mixture.domain_ratio"])
    '; did you mean goal.domain_ratio or mixture.domain_ratio?'
    """
    words = list(words)
    if 1 < len(same := [known for known in words if known.endswith(f".{word}")]) <= 3:
        return f"; did you mean {' or '.join(same)}?"
    close = difflib.get_close_matches(word, words, 1, 0.5)
    close = close or [known for known in words if known.split(".")[-1] == word.split(".")[-1]][:1]
    return f"; did you mean {close[0]}?" if close else ""


def suggested_key(key: str, schema: type = Question) -> str:
    """A suggestion of the closest key, with the user's own names in it.

    >>> suggested_key("corpora.sources.general.pth")
    '; did you mean corpora.sources.general.path?'
    """
    known = [_with_names_of(key, name) for name, *_ in keys_of(schema)]
    section, _, last = key.rpartition(".")
    if section and last not in {name.rpartition(".")[2] for name in known}:
        beside = {name.rpartition(".")[2] for name in known if name.rpartition(".")[0] == section}
        if close := difflib.get_close_matches(last, sorted(beside), 1, 0.5):
            return f"; did you mean {section}.{close[0]}?"
    # A name that a user chooses is known as any other is, but not there.
    if key in known:
        return ""
    lacking = [whole for name, *_ in keys_of(schema) if (whole := _with_a_missing_name(key, name))]
    return f"; did you mean {lacking[0]}?" if lacking else nearest(key, known)


def _with_a_missing_name(key: str, known: str) -> str:
    """A known key of which `key` lacks one name, with the user's own names in it; empty: it lacks none, or several.

    >>> _with_a_missing_name("corpora.law.path", "corpora.sources.*.path")
    'corpora.sources.law.path'
    """
    names, given = known.split("."), key.split(".")
    is_longer = len(names) == len(given) + 1 > 2 and names[-1] != "*"
    for gap, missing in enumerate(names if is_longer else []):
        rest = [*names[:gap], *names[gap + 1 :]]
        if missing != "*" and all(name in ("*", own) for name, own in zip(rest, given)):
            return ".".join([*given[:gap], missing, *given[gap:]])
    return ""


def _with_names_of(key: str, known: str) -> str:
    """A known key with the names that `key` has in place of *, as far as they agree."""
    names, given = known.split("."), key.split(".")
    for number, (name, own) in enumerate(zip(names, given)):
        if name not in ("*", own):
            break
        names[number] = own
    return ".".join(names)


def keys_of(schema: type = Question, prefix: str = "") -> Iterator[tuple[str, type, Field[Any]]]:
    """Every key, with the class and the field that define it; * stands for names that a user chooses."""
    hints = hints_of(schema)
    for item in fields(schema):
        hint, key = hints[item.name], f"{prefix}{item.name}"
        inner = next((arg for arg in (hint, *get_args(hint)) if isinstance(arg, type) and is_dataclass(arg)), None)
        key += ".*" if inner not in (None, hint) else ""
        yield key, schema, item
        if inner:
            yield from keys_of(inner, f"{key}.")


def describe_keys(schema: type = Question) -> Iterator[tuple[str, str, str]]:
    """Every key with its default and the docstring of its field."""
    from pydantic import ConfigDict, TypeAdapter  # Takes a third of a second, for help alone.

    @functools.cache
    def notes(owner: type) -> dict[str, dict[str, str]]:
        owner.__pydantic_config__ = ConfigDict(use_attribute_docstrings=True)  # pyright: ignore[reportAttributeAccessIssue]
        return TypeAdapter(owner).json_schema()["properties"]

    keys = list(keys_of(schema))
    for number, (key, owner, item) in enumerate(keys):
        has_keys = number + 1 < len(keys) and keys[number + 1][0].startswith(f"{key}.")
        note = " ".join(notes(owner)[item.name].get("description", "").split())
        if key.startswith("pretrain."):
            note = note.split(" Of continual:")[0]
        yield key, "" if has_keys else _default(item), note


def key_table(rows: Iterable[tuple[str, str, str]], meaning: str, value: str = "default") -> Table:
    """Keys, values and meanings for `cptlaw VERB --help`."""
    table = Table("key", value, meaning, box=None, header_style="bold", padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*row)
    return table


def _default(item: Field[Any]) -> str:
    value = item.default_factory() if item.default_factory is not MISSING else item.default
    return "" if value is MISSING or value == "???" else shown_value(value)


def shown_value(value: object) -> str:
    """A value as YAML writes it, where that is one line."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list | tuple) else str(value)


def finite_above(value: float | None, low: float) -> bool:
    """Whether a key has a finite value above `low`."""
    return value is not None and low < value < math.inf


def shown(value: float | None) -> str:
    """A number as a message of the preflight prints it."""
    return "null" if value is None else f"{value:g}"
