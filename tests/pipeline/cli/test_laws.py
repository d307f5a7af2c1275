"""cptlaw laws: the table of all laws, and the long form of each."""

import pytest

from fitting import LAWS
from pipeline.cli.main import run
from pipeline.cli.points_file import COLUMNS


def printed(capsys, *words: str) -> str:
    """What the command prints, its lines joined."""
    assert run(["laws", *words]) == 0
    return capsys.readouterr().out


def test_the_table_has_every_law(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    text = printed(capsys)
    assert all(f" {name} " in text for name in LAWS)


@pytest.mark.parametrize("name", LAWS)
def test_the_long_form_has_what_the_law_says_of_itself(name, capsys):
    law, text = LAWS[name], printed(capsys, name)
    joined = " ".join(text.split())
    assert text.startswith(f"{name}\n\n  {law.equation}\n")
    assert all(f"{p.name} {p.unit}; " in joined for p in law.parameters)
    assert law.source in joined
    columns = ("mixture.<corpus>",) if law.for_corpora is not None else law.columns
    assert all(f"{column} {COLUMNS[column]}; " in joined for column in columns)
    assert all(f"{column} (for {parameter})" in joined for column, parameter in law.varies.items())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["dcp"], "no law is called 'dcp'; did you mean dcpt?"),
        (["dcpt", "ddo"], "cptlaw laws: 2 names; allowed: one"),
        (["law=dcptt"], "law=dcptt: no such key; allowed: a name alone; did you mean dcpt?"),
    ],
)
def test_a_mistake_is_one_line(words, message, capsys):
    assert run(["laws", *words]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
