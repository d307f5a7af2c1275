"""The words of a verb with keys of its own: names, and the settings of a schema that is not a question's."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import yaml
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.grammar_parser import parse
from omegaconf.grammar_visitor import GrammarVisitor
from rich.console import Console

from pipeline.question.messages import one_line


def names_and_keys(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words that are names or existing files, and those that are key=value."""
    names = [word for word in words if "=" not in word or Path(word).exists()]
    return names, [word for word in words if word not in names]


def update_settings(settings: DictConfig | ListConfig, words: Iterable[str], schema: type) -> list[str]:
    """Set the keys of the words in the structured settings of a schema; returns the mistakes, a line each."""
    problems = []
    for word in words:
        try:
            key, value = key_and_value(word)
            # Of a mapping, like loss_before, any key.
            is_new = "." in key and key.split(".")[0] in settings
            OmegaConf.update(settings, key, value, merge=True, force_add=is_new)
        except Exception as error:
            problems.append(one_line(error, schema))
    return problems


def key_and_value(word: str) -> tuple[str, Any]:
    """The key of key=value, and its value as Hydra reads it.

    >>> key_and_value("columns={N: params / 1e9, loss: 'val loss'}")
    ('columns', {'N': 'params / 1e9', 'loss': 'val loss'})
    """
    key, _, text = word.partition("=")
    if re.fullmatch(r"[A-Za-z_][\w.]*", key) and text == text.strip():
        # OmegaConf's grammar of values is a part of Hydra's, which takes a tenth of a second to load.
        with contextlib.suppress(Exception):
            return key, GrammarVisitor(_refuse, _refuse, None).visit(parse(text, "singleElement", "VALUE_MODE"))
    from hydra.core.override_parser.overrides_parser import OverridesParser

    (override,) = OverridesParser.create().parse_overrides([word])
    return override.get_key_element(), override.value()


def _refuse(*_: object) -> NoReturn:
    raise ValueError("an interpolation")


def yaml_with_text_names(text: str) -> str:
    """The YAML with the keys below runs in quotes, since YAML reads 001 and 1e3 as numbers."""
    document = yaml.compose(text, yaml.SafeLoader)
    runs = [value for key, value in document.value if key.value == "runs"] if document else []
    for name in (name for node in runs if isinstance(node, yaml.MappingNode) for name, _ in node.value):
        name.tag, name.style = "tag:yaml.org,2002:str", '"'
    return yaml.serialize(document) if document else ""


def print_line(console: Console, line: str) -> None:
    """Print a line without markup and without wrapping."""
    console.print(line, highlight=False, markup=False, soft_wrap=True)
