"""docs/architecture.md shows the rooms as the code has them: its picture's imports are those of the files."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PICTURE = re.search(r"```mermaid\n(.*?)```", PAGE, re.DOTALL)[1]  # pyright: ignore[reportOptionalSubscript]
ROOMS = ("pipeline", "training", "fitting")


def _imported(file: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


def test_the_arrows_of_imports_are_those_of_the_files() -> None:
    drawn = set(re.findall(r"(\w+) -- \"imports\" --> (\w+)", PICTURE))
    real = {
        (room, other)
        for room in ROOMS
        for file in (ROOT / room).rglob("*.py")
        for other in _imported(file) & set(ROOMS)
        if other != room
    }
    assert drawn == real
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    forbidden = {
        (own, other) for rule in contracts for own in rule["source_modules"] for other in rule["forbidden_modules"]
    }
    assert not drawn & forbidden
    # What is not drawn is forbidden, so that the picture stays true.
    assert {(own, other) for own in ("training", "fitting") for other in ROOMS if own != other} <= forbidden


def test_every_file_that_it_names_is_there() -> None:
    linked = re.findall(r"\]\(([^)#]+)\)", PAGE)
    assert len(linked) > 25
    assert not [name for name in linked if not (ROOT / "docs" / name).exists()]
