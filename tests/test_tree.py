"""The files at the top keep their promises."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_only_the_agreed_names_at_the_top() -> None:
    import subprocess

    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    agreed = {"pyproject.toml", "README.md", "conf", "pipeline", "training", "fitting", "tests", "slurm", "docs"}
    agreed |= {"Makefile", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md"}
    assert {name.split("/")[0] for name in names if not name.startswith(".")} <= agreed


def test_ci_calls_the_readmes_test_command() -> None:
    assert "make test\n" in (ROOT / ".ci" / "run").read_text()
    assert "make test " in (ROOT / "README.md").read_text()


def test_torch_is_pinned() -> None:
    assert "torch==2.13.0\n" in (ROOT / ".ci" / "constraints.txt").read_text()
