"""What only one verb or one kind of source needs is an extra, and without it an error names the extra."""

import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from pipeline.cli import sweep
from tests.docs.pages import ROOT
from tests.pipeline.small import refused
from training.corpora.documents import CorpusError
from training.corpora.locations import location

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_every_extra_that_a_message_names_is_one() -> None:
    files = [
        *ROOT.glob("*.md"),
        *(path for top in ("pipeline", "training", "docs") for path in (ROOT / top).rglob("*")),
    ]
    named = {
        extra
        for path in files
        if path.suffix in (".py", ".md")
        for extra in re.findall(r"pip install -e '\.\[(\w+)\]'", path.read_text())
    }
    extras = PROJECT["optional-dependencies"]
    assert named == {*extras} - {"dev"}
    (all_of_them,) = (one for one in extras["dev"] if one.startswith("cptlaw["))
    assert {*re.findall(r"\w+", all_of_them)} == {"cptlaw", *named}


def test_without_an_extra_its_name_is_said(monkeypatch, tmp_path: Path, capsys) -> None:
    for package in ("upath", "plotly", "gguf", "sklearn"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(CorpusError, match=r"^s3://a/b: URLs need universal-pathlib: pip install -e '\.\[urls\]'$"):
        location("s3://a/b")
    words = ["quickstart", f"studies={tmp_path}", f"data={tmp_path}"]
    assert refused(words, capsys, 3) == "report: the figures need plotly: pip install -e '.[report]'"
    assert not list(tmp_path.iterdir())
    (tmp_path / "model.gguf").touch()
    for name in ("smollm2-135m", f"{tmp_path / 'model.gguf'}"):
        line = f"{name}: reading GGUF needs the package gguf: pip install -e '.[gguf]'"
        assert refused(["model", name, f"data={tmp_path}"], capsys, 3) == line
    assert "regmix needs scikit-learn; pip install -e '.[regmix]'" in refused(
        ["plan", "goal=weights", "weights.methods=[regmix]"], capsys, 2
    )
    monkeypatch.setattr(metadata.Distribution, "from_name", _absent)
    for package, word in sweep.PLUGINS.items():
        line = f"{word}_x: needs {package}: pip install -e '.[sweeps]'"
        assert refused(["train", "-m", "experiment=quickstart", f"{word}_x"], capsys, 2) == line


def _absent(name: str) -> metadata.Distribution:
    raise metadata.PackageNotFoundError(name)
