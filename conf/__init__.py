"""Hydra's configuration files: what to run, a folder per group."""

from pathlib import Path

CONF = Path(__file__).parent


def options(group: str) -> list[str]:
    """The options of a group, sorted: the files in its folder."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))
