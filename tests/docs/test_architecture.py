"""docs/architecture.md matches the code: its picture's imports, and the imports along its three paths."""

import ast
import re
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, read

PAGE = read("architecture.md")
PICTURE = re.search(r"```mermaid\n(.*?)```", PAGE, re.DOTALL)[1]  # pyright: ignore[reportOptionalSubscript]
PACKAGES = ("pipeline", "training", "fitting")


def _imported(file: Path) -> set[str]:
    """The modules that a file imports, and what it imports from modules, with the module before it."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def test_the_arrows_of_imports_are_those_of_the_files() -> None:
    drawn = set(re.findall(r"(\w+) -- \"imports\" --> (\w+)", PICTURE))
    real = {
        (package, other)
        for package in PACKAGES
        for file in (ROOT / package).rglob("*.py")
        for other in {name.split(".")[0] for name in _imported(file)} & {*PACKAGES} - {package}
    }
    assert drawn == real
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    forbidden = {
        (source, other)
        for rule in contracts
        if rule["type"] == "forbidden"
        for source in rule["source_modules"]
        for other in rule["forbidden_modules"]
    }
    assert not drawn & forbidden
    # What is not drawn is forbidden, so that the picture stays true.
    assert {(one, other) for one in ("training", "fitting") for other in PACKAGES if one != other} <= forbidden


def _module(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@pytest.mark.parametrize("path", ["token", "point", "configuration key"])
def test_each_stop_of_a_path_imports_its_neighbour(path: str) -> None:
    section = PAGE.split(f"## The path of a {path}\n")[1].split("\n## ")[0]
    stops = re.findall(r"^\d\. \[`[^`]+`\]\(\.\./([^)]+)\)", section, re.MULTILINE)
    assert 5 <= len(stops) <= 8
    files = [stop for stop in stops if stop.endswith(".py")]
    for one, other in pairwise(files):
        assert _module(one) in _imported(ROOT / other) or _module(other) in _imported(ROOT / one), (one, other)


def test_the_configuration_key_is_read_from_its_first_stop() -> None:
    assert "domain_ratio:" in (ROOT / "conf/words.yaml").read_text(encoding="utf-8")
