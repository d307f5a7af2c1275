"""docs/architecture.md matches the code: its picture's imports, and the imports along its three paths."""

from __future__ import annotations

import ast
import re
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PICTURE = re.search(r"```mermaid\n(.*?)```", PAGE, re.DOTALL)[1]  # pyright: ignore[reportOptionalSubscript]
PACKAGES = ("pipeline", "training", "fitting")


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
        (package, other)
        for package in PACKAGES
        for file in (ROOT / package).rglob("*.py")
        for other in _imported(file) & set(PACKAGES)
        if other != package
    }
    assert drawn == real
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    forbidden = {
        (own, other)
        for rule in contracts
        if rule["type"] == "forbidden"
        for own in rule["source_modules"]
        for other in rule["forbidden_modules"]
    }
    assert not drawn & forbidden
    # What is not drawn is forbidden, so that the picture stays true.
    assert {(own, other) for own in ("training", "fitting") for other in PACKAGES if own != other} <= forbidden


def test_every_file_that_it_names_is_there() -> None:
    linked = re.findall(r"\]\(([^)#]+)\)", PAGE)
    assert len(linked) > 25
    assert not [name for name in linked if not (ROOT / "docs" / name).exists()]


def _module(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _modules_imported(file: str) -> set[str]:
    nodes = ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8")))
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    return {name for node in froms for name in (node.module, *(f"{node.module}.{each.name}" for each in node.names))}


@pytest.mark.parametrize("path", ["token", "point", "configuration key"])
def test_each_stop_of_a_path_imports_its_neighbour(path: str) -> None:
    section = PAGE.split(f"## The path of a {path}\n")[1].split("\n## ")[0]
    stops = [f"{name}" for name in re.findall(r"^\d\. \[`[^`]+`\]\(\.\./([^)]+)\)", section, re.MULTILINE)]
    assert 5 <= len(stops) <= 8
    files = [stop for stop in stops if stop.endswith(".py")]
    for one, other in pairwise(files):
        assert _module(one) in _modules_imported(other) or _module(other) in _modules_imported(one), (one, other)


def test_the_configuration_key_is_read_from_its_first_stop() -> None:
    assert "domain_ratio:" in (ROOT / "conf/mixture/ratios.yaml").read_text(encoding="utf-8")
