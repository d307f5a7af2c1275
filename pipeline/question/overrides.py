"""A word of the command line, key=value, as Hydra reads it; the value of a key that holds text is the text as given."""

import contextlib
import re
import shlex
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, NoReturn

from omegaconf.grammar_parser import parse
from omegaconf.grammar_visitor import GrammarVisitor

from pipeline.question.messages import ConfigError, element_type, hints_of, required, suggested_key

LONGEST = 10_000
"""Characters of the longest word: the parser is slow, and recursive."""
_KEY = r"(~|\+\+?)?[A-Za-z_][\w.$/-]*(@[\w.]*(:[\w.]+)?)?"
_FORMS: dict[object, str] = {int: "a whole number", float: "a number", bool: "true or false"}
_LACKS_ELEMENT = re.compile(r"^[^\"'\\]*[\[{,]\s*,|^[^\"'\\]*,\s*[\]}]")
"""Nothing between two commas, or beside one; OmegaConf reads it as an empty text, with a warning."""
_NOTHING = object()
_SWEEP = object()


def key_and_value(word: str, hint: Any = Any) -> tuple[str, Any]:
    """The key of key=value, and its value; errors and `hint` as of `readable`.

    >>> key_and_value("columns={N: params / 1e9, loss: 'val loss'}")
    ('columns', {'N': 'params / 1e9', 'loss': 'val loss'})
    """
    key, _, value = readable(word, hint).partition("=")
    return key, _read(key, value)


def readable(word: str, hint: Any, *, is_group: bool = False, sweeps: bool = False) -> str:
    """The word in a spelling that Hydra reads as it was meant.

    Where a key holds text, 001, 1e3, a,b and a=b are text, and ~/ is the home directory; so are the elements of a list
    of texts. Where it holds whole numbers 1e3 is one. `hint`: the type of the key, None of an unknown one. `is_group`:
    the key selects a file of conf/ or a law. `sweeps`: a,b are two values of a sweep.

    Raises ConfigError: it cannot be read; one line, with a spelling that can.

    >>> readable("path=a,b.jsonl", str), readable("extra=[--gres=gpu:4]", list[str]), readable("seed=1", int)
    ("path='a,b.jsonl'", "extra=['--gres=gpu:4']", 'seed=1')
    """
    key, equals, value = word.partition("=")
    if len(word) > LONGEST or not re.fullmatch(_KEY, key, re.ASCII) or not (equals or key.startswith("~")):
        shown = word if len(word) < LONGEST and word.isprintable() else repr(word[:100])
        indexed = "; the first element of a list is KEY.0" if "[" in key else ""
        raise ConfigError([f"{shown}: not key=value, of {LONGEST:,} characters at most{indexed}"])
    if key.startswith("~"):
        return word
    given, hint = _read(key, value), required(hint)
    if given is _SWEEP and (sweeps or is_group):
        if sweeps:
            return word
    elif is_group:
        hint = list[str] if value.startswith("[") else str
    if int in (hint, element_type(hint)) and (whole := with_whole_numbers(given, hint)) is not given:
        return f"{key}={whole}".replace(" ", "")
    if hint is bool and type(given) is int and given not in (0, 1):
        raise ConfigError([_advice(word, hint, several=False)])
    if hint is str and not (given is None and not is_group):
        text = given if isinstance(given, str) else value
        return word if text == given and not text.startswith("~/") else f"{key}={_quoted(text)}"
    if given is _NOTHING and hint is not str and _LACKS_ELEMENT.search(value):
        raise ConfigError([_advice(word, hint, several=False)])
    if element_type(hint) is str and (texts := _texts(given if isinstance(given, str) else value, given)) is not None:
        return word if texts == given else f"{key}=[{','.join(map(_quoted, texts))}]"
    if given is _NOTHING or given is _SWEEP:
        raise ConfigError([_advice(word, hint, several=given is _SWEEP)])
    return word


def with_whole_numbers(value: Any, hint: Any) -> Any:
    """The value with whole numbers where its type asks for them and it has floats, like 4.5e6; itself: there are none.

    >>> with_whole_numbers(4.5e6, int), with_whole_numbers([1e3, 0.5], list[int]), with_whole_numbers(1e3, float)
    (4500000, [1000, 0.5], 1000.0)
    """
    kind = required(hint)
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    keys = hints_of(kind) if is_dataclass(kind) and isinstance(kind, type) else {}
    if isinstance(value, dict):
        changed = {key: with_whole_numbers(one, keys.get(key, element_type(kind))) for key, one in value.items()}
        return value if all(changed[key] is value[key] for key in value) else changed
    if isinstance(value, list):
        elements = [with_whole_numbers(one, element_type(kind)) for one in value]
        return value if all(one is other for one, other in zip(elements, value)) else elements
    return value


def _read(key: str, value: str) -> Any:
    """The value as Hydra reads it, _SWEEP of several, _NOTHING if it cannot, or lacks an element beside a comma."""
    if _LACKS_ELEMENT.search(value):
        return _NOTHING
    if value == value.strip():
        # OmegaConf's grammar of values is a part of Hydra's, which takes a tenth of a second to load.
        with contextlib.suppress(Exception):
            return GrammarVisitor(_refuse, _refuse, None).visit(parse(value, "singleElement", "VALUE_MODE"))
    from hydra.core.override_parser.overrides_parser import OverridesParser

    with contextlib.suppress(Exception):  # Also of Python's own, like a recursion without end.
        (override,) = OverridesParser.create().parse_overrides([f"{key}={value}"])
        return _SWEEP if override.is_sweep_override() else override.value()
    return _NOTHING


def _refuse(*_: object) -> NoReturn:
    raise ValueError("an interpolation")


def _texts(value: str, given: Any) -> list[str] | None:
    """The elements of a list of texts, with their home directories; None: it is no list of texts without quotes."""
    listed = re.fullmatch(r"\s*\[([^\[\]{}\"']*)\]\s*", value)
    if not isinstance(given, list) or not all(isinstance(text, str) for text in given):
        given = [text.strip() for text in listed[1].split(",")] if listed else None
    return given and [_at_home(text) for text in given]


def _quoted(text: str) -> str:
    """The text between quotes, as Hydra reads them: only quotes, and backslashes before them, are escaped."""
    return "'" + re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), _at_home(text)) + "'"


def _at_home(text: str) -> str:
    return str(Path(text).expanduser()) if text.startswith("~/") else text


def _advice(word: str, hint: Any, *, several: bool) -> str:
    """What is wrong with a word that cannot be read, and a spelling that can."""
    key, _, value = word.partition("=")
    if several:
        is_open = hint is Any or element_type(hint) is not None or key == "law"
        listed = f"; as a list: {shlex.quote(f'{key}=[{value}]')}" if is_open else ""
        return f"{word}: several values; allowed: one, or with cptlaw train -m a sweep{listed}"
    if hint is None:
        return f"{key}: no such key{suggested_key(key)}"
    if hint in _FORMS:
        return f"{key}: {value!r}; allowed: {_FORMS[hint]}"
    if _LACKS_ELEMENT.search(value):
        return f"{key}: {value} lacks an element beside a comma; remove the comma"
    spelling = re.sub(r"[^\[\]{},]+", _with_quotes, value)
    spelling = _quoted(value) if _read(key, spelling) is _NOTHING else spelling
    return f"{word}: cannot be read as key=value; quote the value: {shlex.quote(f'{key}={spelling}')}"


def _with_quotes(found: re.Match[str]) -> str:
    """An element of a list, or a `key: value` of a dictionary, with quotes around text."""
    name, colon, text = found[0].rpartition(": ") if found[0].count(": ") == 1 else ("", "", found[0])
    text = text.strip()
    if not text or re.fullmatch(r"[\"'].*[\"']|[-+\w.]+", text, re.ASCII):
        return found[0]
    return f'{name}{colon}"{text}"'
