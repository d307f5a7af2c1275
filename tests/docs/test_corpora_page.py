"""docs/corpora.md: its commands do what they say on small text, its Python prints what it says."""

import gzip
import json
import random
import re
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from pipeline.cli.main import run as cptlaw
from tests.conftest import SHAPE, write_text
from tests.docs.pages import ROOT, assert_same_output, commands, read, run
from tests.pipeline.small import SMALL
from training.corpora.manifest import Manifest
from training.corpora.source import Generation, Source
from training.corpora.tokenizer import train_tokenizer
from training.model import build_model

PAGE = read("corpora.md")
DOMAINS = ("general", "math", "law", "chemistry", "music", "medical")
# Only sizes: what a small text and a hurried test need.
SIZES = [word for word in SMALL if not word.startswith(("experiment=", "name=", "law"))]
SIZES += ["corpora.validation_ratio=0.2", "validation.sample=40", "validation.keep=10"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that the page's commands name."""
    folder = tmp_path_factory.mktemp("page")
    write_text(folder / "prose", 1)
    rows = [
        {
            "text": text.read_text(),
            "body": text.read_text(),
            "source": f"book {number % 30}",
            "language": ("en", "de", "fr")[number % 3],
            "meta": {"court": ("Supreme Court", "District Court")[number % 2]},
        }
        for number, text in enumerate(sorted((folder / "prose").iterdir()))
    ]
    random.Random(0).shuffle(rows)
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (folder / "law.jsonl.gz").write_bytes(gzip.compress(lines))
    (folder / "texts").mkdir()
    for name in DOMAINS:
        (folder / "texts" / f"{name}.jsonl.gz").write_bytes(gzip.compress(lines))
    for name in ("web", "cases"):
        (folder / "sets" / name).mkdir(parents=True)
        parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "sets" / name / "train.parquet")
    for seed, name in enumerate(("one", "other")):
        train_tokenizer([row["text"] for row in rows], 300, folder / "models" / name)
        build_model({**SHAPE, "vocab_size": 300}, "eager", seed).save_pretrained(folder / "models" / name)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("command", commands(PAGE), ids=" ".join)
def test_a_command_does_what_it_says(command: list[str], place: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(place)
    small = ["corpora.sources.code.max_bytes=500000", "ladder=[]"] if "corpora=dcpt-six" in command else []
    assert cptlaw([*command, *SIZES, *small]) == 0, capsys.readouterr().err
    if "validation" in command:
        assert len((place / "sets" / "chosen" / "domain.jsonl").read_text().splitlines()) == 10
        return
    newest = max((place / "data").glob("*/manifest.json"), key=lambda path: path.stat().st_mtime_ns)
    corpora = Manifest.open(newest.parent).corpora
    if "corpora=dcpt-six" in command:
        assert set(corpora) == {*DOMAINS, "code"}
    if any("where" in word for word in command):
        assert corpora["domain"].dropped == {"where.language": 40, "where.meta.court": 40}
    if any("kind=generated" in word for word in command):
        assert corpora["general"].tokens["train"] > 3000
        assert list((place / "data" / "generated").glob("one-*/000000.jsonl"))
    if any("max_bytes" in word for word in command):
        assert 20_000 <= sum(corpora["domain"].bytes.values()) < 21_000
    if any("corpora.validation" in word for word in command):
        assert corpora["domain"].documents["validation"] == 10
        # The page's law is its prose again, so that each corpus' set is also in the other's text.
        assert corpora["domain"].dropped["validation.same"] > 10


def test_the_python_prints_what_the_page_says(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    assert_same_output(run("corpora.md", {"__name__": "page"}))


def _first_cells(section: str) -> set[str]:
    """Names in the first cells of a section's table."""
    cells = re.findall(r"^\| (`.*?) \|", section, flags=re.M)
    return {name for cell in cells for name in re.findall(r"`([\w-]+)`", cell)}


def test_the_table_has_the_keys_of_a_source() -> None:
    keys = set(Source.__dataclass_fields__) - {"part", "exclude"}
    assert _first_cells(PAGE.split("## The Hugging Face hub")[0]) == keys


def test_the_table_has_the_keys_of_generated_text() -> None:
    keys = set(Generation.__dataclass_fields__)
    assert _first_cells(PAGE.split("## Text that the base model writes")[1].split("\n## ")[0]) == keys


def test_the_presets_are_those_that_there_are() -> None:
    there = {path.stem for path in (ROOT / "conf" / "corpora").glob("*.yaml")}
    assert _first_cells(PAGE.split("## Many corpora")[1].split("\n## ")[0]) == there
