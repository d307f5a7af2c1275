"""The words of a verb with keys of its own: names, and the settings of a schema that is not a question's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
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
            (override,) = OverridesParser.create().parse_overrides([word])
            key = override.get_key_element()
            # Of a mapping, like loss_before, any key.
            is_new = "." in key and key.split(".")[0] in settings
            OmegaConf.update(settings, key, override.value(), merge=True, force_add=is_new)
        except (HydraException, OmegaConfBaseException, AttributeError) as error:
            problems.append(one_line(error, schema))
    return problems


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
