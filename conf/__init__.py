"""Hydra's configuration files: what to run, a folder per group, or its words in words.yaml."""

from pathlib import Path
from typing import Any

import yaml

CONF = Path(__file__).parent
WORDS: dict[str, dict[str, Any]] = yaml.safe_load((CONF / "words.yaml").read_text())


def options(group: str) -> list[str]:
    """The options of a group, sorted."""
    return sorted({*(path.stem for path in (CONF / group).glob("*.yaml")), *WORDS.get(group, {})})
