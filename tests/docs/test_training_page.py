"""The commands of docs/training.md are understood, and its table counts right."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from pipeline.cli.main import run
from pipeline.plan.model_shape import configuration_of
from pipeline.question.loading import read_question
from pipeline.question.presets import preset
from tests.docs.pages import ROOT
from training.parameters import model_size

PAGE = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, flags=re.S) for line in block.splitlines()]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_priced(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, verb, *words = shlex.split(command)
    if verb == "evaluate":
        assert read_question(["experiment=quickstart", *words[1:]]).evaluate.tasks == ["hellaswag"]
        return
    assert run([verb, *words, f"studies={tmp_path}", f"data={tmp_path}"]) == 0, capsys.readouterr().err
    assert "this is an estimate" in capsys.readouterr().out


def test_the_table_counts_as_the_presets_do() -> None:
    units = {"M": 1e6, "B": 1e9}
    rows = re.findall(r"^\| ([a-z][^|]+) \| ([\d., BM]+) \| ([\d., BM]+) \|$", PAGE, flags=re.M)
    assert len(rows) == 5
    for names, *columns in rows:
        words = names.split(" (")[0].split(", ")
        family = words[0].rsplit("-", 1)[0]
        known = [word if "-" in word else f"{family}-{word}" for word in words]
        for column, field in zip(columns, ("non_embedding", "total"), strict=True):
            for name, text in zip(known, column.split(", "), strict=True):
                number, unit = text.strip().split()
                model = preset(name)
                size = model_size(configuration_of(model, model.vocab_size or 0, 1024, 0), 1024)
                digits = len(number.replace(".", ""))
                found = getattr(size, field) / units[unit]
                assert float(f"{found:.{digits}g}") == float(number), (name, field, found)
