"""The words of a verb with keys of its own: names, and the settings of a schema that is not a question's."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar, get_origin

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console

from pipeline.question.messages import ConfigError, nearest, one_line, required, type_of, value_problems
from pipeline.question.overrides import key_and_value
from pipeline.question.presets import is_group
from pipeline.question.schema import Question
from training.keys import allowed_values, key_problems

T = TypeVar("T")


def names_and_keys(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words that are names or existing files, and those that are key=value, ~key, or an option."""
    names = [word for word in words if _is_name(word)]
    return [str(Path(name).expanduser()) if name.startswith("~/") else name for name in names], [
        word for word in words if word not in names
    ]


def _is_name(word: str) -> bool:
    # A folder like studies/seed=1, which a sweep makes.
    return os.path.lexists(word) if "=" in word else not word.startswith(("-", "+", "~")) or word.startswith("~/")


def text_keys(words: Iterable[str]) -> dict[str, str]:
    """Key -> text of words key=value; without those of null, which is as if they were not given."""
    return {key: str(value) for key, value in (key_and_value(word, str) for word in words) if value is not None}


def own_words(words: Iterable[str], schema: type) -> tuple[list[str], list[str]]:
    """The words that set keys of a verb's schema, and the others, which are those of a question.

    Raises ConfigError: words whose key is near one of the schema, and no key of a question.
    """
    names, own, others, problems = [item.name for item in fields(schema)], [], [], []
    for word in words:
        key = word.partition("=")[0]
        (own if key.split(".")[0] in names else others).append(word)
        if "." not in key and key not in names and type_of(key) is None and not is_group(key.split("@")[0]):
            problems += [f"{key}: no such key{near}" for near in filter(None, [nearest(key, names)])]
    if problems:
        raise ConfigError(problems)
    return own, others


def settings_of(schema: type[T], words: Iterable[str], problems: Sequence[str] = (), base: Any = None) -> T:
    """What words key=value set of a schema, over its defaults or `base`; a key that holds a list takes one element too.

    Raises ConfigError: `problems`, mistakes in the words, and values that are not allowed.
    """
    made, problems = None, list(problems)
    settings = OmegaConf.structured(schema) if base is None else base
    for word in words:
        try:
            hint = required(type_of(word.partition("=")[0], schema))
            key, value = key_and_value(word, hint)
            if get_origin(hint) is list and not isinstance(value, list | None):
                value = [value]
            if get_origin(hint) is dict and not isinstance(value, Mapping | None):
                raise ConfigError([*value_problems(key, value, schema)])
            # Of a mapping, like loss_before, any key.
            OmegaConf.update(settings, key, value, merge=True, force_add="." in key and key.split(".")[0] in settings)
        except Exception as error:
            problems += error.lines if isinstance(error, ConfigError) else [one_line(error, schema)]
    named = {re.split(r"[:.\[]", line)[0] for line in problems}
    try:
        missing = sorted(OmegaConf.missing_keys(settings))
        needs = {key: f"allowed: {known.text}" for key, known in allowed_values(schema).items() if known}
        wrong = [f"{key}: has no value; {needs.get(key, f'give {key}=...')}" for key in missing if key not in named]
        # What ${...} stands for is of any type.
        lines = [] if missing else value_problems("", OmegaConf.to_container(settings, resolve=True), schema)
        wrong += [line.lstrip(".") for line in lines]
        made = None if missing or wrong else OmegaConf.to_object(settings)
        problems += wrong if made is None else key_problems(made)
    except (OmegaConfBaseException, ValueError) as error:
        problems.append(one_line(error, schema))
    if problems:
        raise ConfigError(problems)
    assert isinstance(made, schema)
    return made


def yaml_with_text_names(text: str) -> str:
    """The YAML with the keys below runs in quotes, since YAML reads 001 and 1e3 as numbers. ValueError: no keys."""
    document = yaml.compose(text, yaml.SafeLoader)
    if not isinstance(document, yaml.MappingNode | None):
        raise ValueError(f"{text.strip()!r:.60}; allowed: keys with values, like peak: 1e-3")
    runs = [value for key, value in document.value if key.value == "runs"] if document else []
    for name in (name for node in runs if isinstance(node, yaml.MappingNode) for name, _ in node.value):
        name.tag, name.style = "tag:yaml.org,2002:str", '"'
    return yaml.serialize(document) if document else ""


def refuse_rehearsal(question: Question) -> None:
    """Raise ConfigError for a study that is a rehearsal, where a number is to be used."""
    if question.rehearsal:
        name = f"{question.studies}/{question.name}"
        raise ConfigError([f"{name}: a rehearsal, whose numbers say nothing; give the study without rehearsal=true"])


def print_line(console: Console, line: str) -> None:
    """Print a line without markup and without wrapping."""
    console.print(line, highlight=False, markup=False, soft_wrap=True)
