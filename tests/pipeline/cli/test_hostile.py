"""Names and files of strangers: one clear line, nothing outside the study, nothing that a shell or a browser obeys."""

import dataclasses
import functools
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli.main import run
from pipeline.goals.registry import goal_problems, question_of_study, read_question
from pipeline.launch.slurm.script import driver_script, train_script
from pipeline.question.schema import LawConfig
from pipeline.question.validation import problems
from pipeline.study.folder import Study, question_yaml
from tests.pipeline.show.report.report_study import make_study
from tests.pipeline.show.report.test_report import Page
from tests.pipeline.small import refused
from training.corpora.source import Source

NAMES = [
    *("it's", 'say "x"', "$(touch pwned)", "`touch pwned`", "a\nb", "../up", "..", "-rf"),
    *("a;b", "a b", "", "<b>x</b>"),
]
Change = Callable[[dict[str, Any]], object]
SCRIPT = "<script>alert(1)</script>"


@functools.cache
def plain_study(folder: Path) -> Study:
    """A study with everything in it, of corpora that are nowhere; made once a process."""
    study, question = make_study(folder, bootstrap=4, law={"transfer-anchored": LawConfig()}, data=str(folder / "none"))
    (study.folder / "study.yaml").write_text(question_yaml(question))
    return study


@pytest.fixture(scope="session")
def confirmed(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """The study as it should be."""
    return plain_study(tmp_path_factory.getbasetemp() / "plain")


@pytest.fixture
def study(confirmed: Study, tmp_path: Path) -> Study:
    """A copy to be tampered with."""
    shutil.copytree(confirmed.folder, tmp_path / "studies" / "synthetic")
    return Study(tmp_path / "studies" / "synthetic")


def everything(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_verb_given_too_early_names_the_first_step_that_is_left(study: Study, capsys) -> None:
    left = {"recommend": "recommendation.json", "fit": "fits", "collect": "points.parquet", "train": "runs"}
    for step, name in left.items():
        path = study.folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        line = refused(["export", str(study.folder), "format=trl"], capsys, 3)
        assert f"missing; run cptlaw {step} first" in line
    assert "missing; run cptlaw train first" in refused(["recommend", str(study.folder)], capsys, 3)
    for verb in ("fit", "recommend", "confirm", "refine", "continue"):
        line = refused([verb, f"studies={study.folder.parent}", "name=never"], capsys, 3)
        assert "never: no study is there; give the folder of a study, like cptlaw fit studies/NAME, or make" in line
        assert line.rstrip().endswith(f"studies here: {study.folder}")


@pytest.mark.parametrize("name", [NAMES[0], NAMES[4], NAMES[5], ""])
def test_a_name_that_is_no_name(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quoted = "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"
    keys = ("corpora.domain", "model.name", "name")
    words = [f"studies={tmp_path / 'studies'}", f"data={tmp_path / 'data'}", *(f"{key}={quoted}" for key in keys)]
    assert run(["plan", *words]) == 2
    assert sorted(line.split(":")[0] for line in capsys.readouterr().err.splitlines()) == [*keys]
    assert everything(tmp_path) == {}


def test_each_name_that_is_no_name_is_one_line() -> None:
    question = read_question([])
    before = list(problems(question, goal_problems))
    for name in NAMES:
        corpora = dataclasses.replace(question.corpora, sources={**question.corpora.sources, name: Source()})
        model = dataclasses.replace(question.model, name=name)
        changed = dataclasses.replace(question, name=name, model=model, corpora=corpora)
        lines = [line for line in problems(changed, goal_problems) if line not in before]
        assert sorted(line.split(": ")[0] for line in lines) == ["corpora.sources", "model.name", "name"]
        assert "\n" not in "".join(lines)


PLANNED: dict[str, Change] = {
    "a folder above": lambda line: line.update(run=f"../../evil-{line['hash'][:8]}"),
    "an absolute folder": lambda line: line.update(run=f"/tmp/evil-{line['hash'][:8]}"),
    "a name of two lines": lambda line: line.update(run=f"a\n$(touch pwned)-{line['hash'][:8]}"),
    "a name that is a number": lambda line: line.update(run=5),
    "another role": lambda line: line.update(role=SCRIPT),
    "a role that is a list": lambda line: line.update(role=["fit"]),
    "a model that is a table": lambda line: line.update(model={"a": 1}),
    "weights from outside": lambda line: line.update(start="../../../etc"),
    "weights from outside after all": lambda line: line.update(start="runs/../../../etc"),
    "absolute weights": lambda line: line.update(start="/etc"),
    "weights from a number": lambda line: line.update(start=3),
    "steps without end": lambda line: line["spec"].update(steps=10**30),
    "a mixture over nothing": lambda line: line["spec"].update(mixture={"general": "1/0"}),
    "a corpus that is a path": lambda line: line["spec"].update(corpora={"../../x": "ff"}),
    "a schedule that is a number": lambda line: line["spec"].update(schedule=5),
    "no spec": lambda line: line.update(spec=None),
    "another schema": lambda line: line.update(schema=9),
}


def test_a_plan_of_a_stranger(study: Study, capsys: pytest.CaptureFixture[str]) -> None:
    planned, before = study.plan_file.read_text(), everything(study.folder)

    def error_of(change: Change, verb: str) -> str:
        lines = [json.loads(line) for line in planned.splitlines()]
        change(next(line for line in lines if line["role"] == "fit"))
        study.plan_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return refused([*verb.split(), str(study.folder)], capsys, 3)

    errors = {name: error_of(change, "status") for name, change in PLANNED.items()}
    errors |= {verb: error_of(PLANNED["no spec"], verb) for verb in ("collect", "report", "track sync")}
    for name, error in errors.items():
        assert error.startswith(f"{study.plan_file}: "), name
        assert error.endswith("with the question of this study; the finished runs are kept"), name
    study.plan_file.write_text(planned)
    assert everything(study.folder.parent) == before


def test_a_plan_that_lost_lines_is_refused(study: Study, capsys: pytest.CaptureFixture[str]) -> None:
    whole = study.plan_file.read_bytes()
    lines = whole.splitlines(keepends=True)
    assert len(lines) > 2
    remedy = "delete it and run cptlaw plan again, with the question of this study; the finished runs are kept"
    for left, problem in (
        (b"", "cut off, it is empty"),
        (whole[:-1], "cut off, its last line ends in "),
        (whole[:40], "cut off, its last line ends in "),
        (b"".join(lines[:-1]), f"{len(lines) - 1} of {len(lines)} lines are left"),
    ):
        study.plan_file.write_bytes(left)
        for verb in ("status", "collect"):
            error = refused([verb, str(study.folder)], capsys, 3)
            assert error.startswith(f"{study.plan_file}: {problem}")
            assert error.endswith(f"; {remedy}")
    study.write_plan([])
    assert study.read_plan() == []


def test_a_plan_whose_lines_are_no_runs(study: Study, capsys: pytest.CaptureFixture[str]) -> None:
    for line in ("[1]", '"x"', "null", "5", "{}", "[" * 100_000, "{'a': 1}"):
        study.plan_file.write_text(line + "\n")
        assert "plan.jsonl" in refused(["status", str(study.folder)], capsys, 3)


POINT = {"step": 5, "tokens": 80, "corpus": "code", "loss": 3.0, "loss_stderr": 0.1, "learning_rate": 1e-3}
WRONG_POINTS = {
    **{f"step {step}": json.dumps({**POINT, "step": step}) for step in (10**30, -3, "5", 5.5, None, [5])},
    **{f"loss {loss}": json.dumps({**POINT, "loss": loss}) for loss in ("3", [3], None, True)},
    "a loss without end": json.dumps({**POINT, "loss": 10}).replace("10", "1" + "0" * 400, 1),
    "tokens": json.dumps({**POINT, "tokens": 2**63}),
    "corpus": json.dumps({**POINT, "corpus": 5}),
    "a key more": json.dumps({**POINT, "x": 5}),
    "a key of another name": json.dumps(POINT).replace('"loss":', '"lose":', 1),
    "words": "what is this",
    "number": "5",
    "list": "[]",
    "nothing": "null",
    "brackets": "[" * 100_000,
    "bytes that are no text": json.dumps({**POINT, "corpus": "co\udc9ee"}, ensure_ascii=False),
}


def test_points_of_a_stranger(study: Study, capsys: pytest.CaptureFixture[str]) -> None:
    points = sorted(study.runs.glob("continual*/points.jsonl"))[0]
    whole = points.read_text()
    (study.folder / "points.parquet").unlink()
    for name, line in WRONG_POINTS.items():
        points.write_bytes((whole + line + "\n").encode(errors="surrogateescape"))
        error = refused(["collect", str(study.folder)], capsys, 3)
        assert f"{points} line" in error, name
        assert error.endswith(f"delete runs/{points.parent.name} to train it again"), name
    # A run that cannot be read keeps nobody from looking at the others.
    assert run(["status", str(study.folder)]) == 0
    assert not (study.folder / "points.parquet").exists()


ANSWERS: list[tuple[str, Change]] = [
    ("recommendation.json", lambda content: content.update(mixture={"general": 5, "code": -4})),
    ("recommendation.json", lambda content: content.update(mixture={"general": 0.5, "code": "0.5"})),
    ("recommendation.json", lambda content: content.update(mixture={"general": 0, "code": 10**400})),
    ("recommendation.json", lambda content: content.update(mixture="half")),
    ("recommendation.json", lambda content: content.update(low=SCRIPT)),
    ("recommendation.json", lambda content: content.update(binding=["x"])),
    ("recommendation.json", lambda content: content.update(warnings=[{"a": 2}])),
    ("recommendation.json", lambda content: content.update(target=None)),
    ("recommendation.json", lambda content: content["target"].update(D="1")),
    ("recommendation.json", lambda content: content.update(predicted={"code": {"loss": "x"}})),
    ("recommendation.json", lambda content: content.pop("law")),
    ("confirmation.json", lambda content: content["confirmations"][0].update(measured=SCRIPT)),
]


def test_an_answer_of_a_stranger(study: Study, capsys: pytest.CaptureFixture[str]) -> None:
    for name, change in ANSWERS:
        path = study.folder / name
        whole = path.read_text()
        content = json.loads(whole)
        change(content)
        path.write_text(json.dumps(content))
        assert name in refused(["report", str(study.folder)], capsys, 3), content
        path.write_text(whole)


def test_words_that_want_to_be_markup_are_words(study: Study, few_positions) -> None:
    """In every place of the files where a word may stand: none becomes an element of the report, or an attribute."""
    points = sorted(study.runs.glob("continual*/points.jsonl"))[0]
    names = (SCRIPT, "../../x", "[/red] [bold]", "")
    points.write_text(points.read_text() + "".join(json.dumps({**POINT, "corpus": name}) + "\n" for name in names))
    assert run(["collect", str(study.folder)]) == 0

    def hostile(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: hostile(item) for key, item in value.items()}
        if isinstance(value, list):
            return [hostile(item) for item in value]
        return f'"></script><img src=x onerror=alert(1)>{value}' if isinstance(value, str) else value

    for name, kept in (("recommendation.json", ("law", "goal")), ("confirmation.json", ())):
        content = json.loads((study.folder / name).read_text())
        changed = {key: value if key in kept else hostile(value) for key, value in content.items()}
        for row in changed.get("confirmations", []):
            row["corpus"], row["law"] = (row[key].split(">")[-1] for key in ("corpus", "law"))
        (study.folder / name).write_text(json.dumps(changed))
    for path in study.runs.glob("*/attempts/*.json"):
        record = json.loads(path.read_text())
        path.write_text(json.dumps({**hostile(record), **{key: record[key] for key in ("start", "end")}}))
    failed = next(study.runs.glob("continual*"))
    (failed / "DONE").unlink()
    (failed / "FAILED").write_text(SCRIPT + "[/red]\n")
    for verb in ("report", "status", "track sync"):
        assert run([*verb.split(), str(study.folder)]) == 0
    assert SCRIPT not in (study.folder / "report.html").read_text()
    elements = Page(study.folder / "report.html").elements
    assert "img" not in [tag for tag, _ in elements]
    assert "onerror" not in {name for _, attributes in elements for name in attributes}


@pytest.mark.parametrize("name", ["it's $(touch pwned) `touch pwned`", 'a"b;touch pwned', "-n\ntouch pwned"])
def test_no_shell_obeys_the_folder_of_a_study(name: str, study: Study, tmp_path: Path) -> None:
    """Every batch script that is made, run by bash with programs that only say what they were called with."""
    folder = study.folder.with_name(name)
    study.folder.rename(folder)
    question = question_of_study(folder, ["launcher.kind=slurm"])
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("srun", "python", "squeue", "scontrol"):
        (tools / tool).write_text('#!/bin/sh\nfor word; do printf "%s\\0" "$word"; done >> "$SAID"; exit 0\n')
        (tools / tool).chmod(0o755)
    question.launcher.slurm.python = str(tools / "python")
    work = tmp_path / "work"
    work.mkdir()
    (folder / "jobs").mkdir(exist_ok=True)
    (folder / "jobs" / "t.tasks").write_text("0 run-name\n")
    for text in (train_script(folder, question, "t"), driver_script(question, "continue", folder)):
        said = tmp_path / "said"
        said.unlink(missing_ok=True)
        surroundings = {"PATH": f"{tools}:/usr/bin:/bin", "SAID": str(said), "SLURM_JOB_ID": "1"}
        subprocess.run(["bash", "-c", text], cwd=work, env=surroundings, check=False, capture_output=True, timeout=30)
        words = said.read_text().split("\0")
        assert str(folder.resolve()) in words
        assert "srun" not in text or "run-name" in words
    assert not list(tmp_path.rglob("pwned"))
