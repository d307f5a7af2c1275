"""The commands of docs/training.md are understood, and its table counts right."""

import re
from pathlib import Path

import pytest

from pipeline.cli.main import run
from pipeline.goals.registry import read_question
from pipeline.plan.model_shape import configuration_of
from pipeline.question.presets import preset
from tests.docs.pages import commands, read
from training.parameters import model_size

PAGE = read("training.md")


@pytest.mark.slow
@pytest.mark.parametrize("command", commands(PAGE), ids=" ".join)
def test_a_command_is_priced(command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verb, *words = command
    if verb != "plan":
        changed = [word for word in words if "=" in word]
        assert read_question(changed if changed[0].startswith("experiment=") else ["experiment=quickstart", *changed])
        return
    assert run([verb, *words, f"studies={tmp_path}", f"data={tmp_path}"]) == 0, capsys.readouterr().err
    assert "this is an estimate" in capsys.readouterr().out


def test_the_table_counts_as_the_presets_do() -> None:
    units = {"M": 1e6, "B": 1e9}
    rows = re.findall(r"^\| ([a-z][^|]+) \| ([\d., BM]+) \| ([\d., BM]+) \|$", PAGE, flags=re.M)
    assert len(rows) == 6
    for names, *columns in rows:
        words = names.split(" (")[0].split(", ")
        family = words[0].rsplit("-", 1)[0]
        for word, *counts in zip(words, *(column.split(", ") for column in columns), strict=True):
            model = preset(word if "-" in word else f"{family}-{word}")
            size = model_size(configuration_of(model, model.vocab_size or 0, 1024, 0), 1024)
            for text, count in zip(counts, (size.non_embedding, size.total), strict=True):
                number, unit = text.split()
                digits = len(number.replace(".", ""))
                assert float(f"{count / units[unit]:.{digits}g}") == float(number), (word, count)
