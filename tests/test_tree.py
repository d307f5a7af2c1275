"""Names at the top, sizes of files and functions, and imports without circles."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("pipeline", "training", "fitting")
FILES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def test_only_the_agreed_names_at_the_top() -> None:
    import subprocess

    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    agreed = {"pyproject.toml", "README.md", "conf", "pipeline", "training", "fitting", "tests", "slurm", "docs"}
    agreed |= {"Makefile", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md"}
    assert {name.split("/")[0] for name in names if not name.startswith(".")} <= agreed


def test_ci_calls_the_readmes_test_command() -> None:
    readme, ci = ((ROOT / page).read_text() for page in ("README.md", ".ci/run"))
    assert "make test " in readme
    assert "make test-all " in readme
    assert "tests=test-all\n" in ci
    assert ci.count('make "$tests" ') == 2


def test_torch_is_pinned() -> None:
    assert "torch==2.13.0\n" in (ROOT / ".ci" / "constraints.txt").read_text()


def test_no_two_files_import_each_other_in_a_circle() -> None:
    import grimp
    import networkx

    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True, cache_dir=None)
    imports = networkx.DiGraph(
        (module, imported) for module in graph.modules for imported in graph.find_modules_directly_imported_by(module)
    )
    assert [sorted(circle) for circle in networkx.strongly_connected_components(imports) if len(circle) > 1] == []


def test_files_functions_and_folders_are_small() -> None:
    long_files = {str(path.relative_to(ROOT)) for path in FILES if len(path.read_text().splitlines()) > 400}
    long_functions = {
        f"{path.relative_to(ROOT)}: {node.name}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and _code_lines(node) > 80
    }
    files = [str(path.parent.relative_to(ROOT)) for path in FILES]
    assert long_files == set()
    assert long_functions == set()
    assert {folder for folder in files if files.count(folder) > 22} == set()
    assert len([path for path in (ROOT / "pipeline").iterdir() if (path / "__init__.py").exists()]) <= 10


def _code_lines(function: ast.FunctionDef) -> int:
    """Lines of a function's body without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_commands_in_messages_quote_the_study_folder() -> None:
    named = re.compile(r"cptlaw [a-z {}]+ \{(?!folder\}\[)[\w.]*folders?(\[0\])?\}")
    lines = [f"{path.relative_to(ROOT)}: {line}" for path in FILES for line in path.read_text().splitlines()]
    assert [line for line in lines if named.search(line)] == []
