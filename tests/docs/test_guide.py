"""The words of docs/guide.md are understood, its toy corpora come about and its plans are priced."""

import shlex
from pathlib import Path

import pytest

from pipeline.cli.main import run
from pipeline.goals.registry import load_question, read_question
from pipeline.study.folder import question_yaml
from tests.docs.pages import commands, read
from tests.docs.pages import run as run_page

WALK, REFERENCE = read("guide.md").split("## Which runs are trained?")
WORDS = WALK.split("cat > words <<END\n")[1].split("END\n")[0].split()
_, *COMMANDS = commands(WALK.replace("$(cat words)", shlex.join(WORDS)))


@pytest.fixture(scope="module")
def question_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("toy") / "study.yaml"
    file.write_text(question_yaml(read_question(WORDS)))
    return file


def test_its_commands_are_understood(question_file: Path) -> None:
    verbs = [command[0] for command in COMMANDS]
    assert verbs[:5] == ["prepare", "plan", "train", "status", "collect"]
    assert {"fit", "recommend", "confirm", "report"} < set(verbs)
    for verb, *words in COMMANDS:
        if words[0] == "studies/toy":
            keys = [word for word in words[1:] if verb != "predict" or not word.startswith("domain_ratio=")]
            load_question(question_file, keys, again=bool(keys))
        elif verb != "plan" and words != WORDS:
            read_question(words)


@pytest.mark.parametrize("command", commands(REFERENCE), ids=" ".join)
def test_its_other_commands_are_questions(command: list[str]) -> None:
    verb, *words = command
    if "/" not in words[0] or "=" in words[0]:
        read_question(words if words[0].startswith("experiment=") else ["experiment=quickstart", *words])
    elif verb not in ("tables", "follow"):
        assert read_question(["experiment=quickstart", "mixture=ratios", *words[1:]]).studies == "studies"


def test_its_plans_are_priced(tmp_path: Path, capsys, monkeypatch) -> None:
    places = [f"studies={tmp_path}", f"data={tmp_path}"]
    plans = [words for verb, *words in COMMANDS if verb == "plan" and "model=local" not in words]
    assert len(plans) == 2
    monkeypatch.chdir(tmp_path)
    Path("prose").mkdir()
    Path("code.jsonl").touch()
    for words in plans:
        assert run(["plan", *words, *places]) == 0, capsys.readouterr().err
        assert "this is an estimate" in capsys.readouterr().out


def test_its_corpora_come_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page("guide.md", {"__name__": "page"})
    assert len(list(Path("prose").glob("*.txt"))) == len(Path("code.jsonl").read_text().splitlines()) > 100
