"""Names and files of strangers: one clear line, nothing outside the study, nothing that a shell or a browser obeys."""

import functools
import itertools
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli.main import run
from pipeline.goals.registry import question_of_study
from pipeline.launch.slurm.script import driver_script, train_script
from pipeline.question.schema import LawConfig
from pipeline.study.artifacts import Confirmation, Recommendation
from pipeline.study.collect import collect
from pipeline.study.folder import Study, StudyError, question_yaml
from tests.pipeline.show.report.report_study import Page, make_study
from tests.pipeline.small import refused

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


@pytest.fixture
def study(tmp_path_factory, tmp_path: Path) -> Study:
    """A copy to be tampered with."""
    whole = plain_study(tmp_path_factory.getbasetemp() / "plain")
    return Study(shutil.copytree(whole.folder, tmp_path / "studies" / "synthetic"))


def everything(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def error_of(read: Callable[..., object], *given: object) -> str:
    """The error of a file that cannot be read, which verbs print."""
    with pytest.raises(StudyError) as error:
        read(*given)
    return str(error.value)


def test_a_verb_given_too_early_names_the_first_step_that_is_left(study: Study, capsys) -> None:
    left = {"recommend": "recommendation.json", "fit": "fits", "collect": "points.parquet", "train": "runs"}
    for step, name in left.items():
        path = study.folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        line = refused(["export", str(study.folder), "format=trl"], capsys, 3)
        assert f"missing; run cptlaw {step} {study.word} first" in line
    assert f"missing; run cptlaw train {study.word} first" in refused(["recommend", str(study.folder)], capsys, 3)
    for verb in ("fit", "recommend", "confirm", "refine", "continue"):
        line = refused([verb, f"studies={study.folder.parent}", "name=never"], capsys, 3)
        assert "never: no study is there; give the folder of a study, like cptlaw fit studies/NAME, or make" in line
        assert line.rstrip().endswith(f"studies here: {study.folder}")


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_no_name(name: str, tmp_path: Path, capsys) -> None:
    quoted = "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"
    keys = ("corpora.domain", "model.name", "name")
    words = [f"studies={tmp_path / 'studies'}", f"data={tmp_path / 'data'}", *(f"{key}={quoted}" for key in keys)]
    assert run(["plan", *words]) == 2
    assert sorted(line.split(":")[0] for line in capsys.readouterr().err.splitlines()) == [*keys]
    assert everything(tmp_path) == {}


PLANNED: tuple[Change, ...] = (
    lambda line: line.update(run=f"../../evil-{line['hash'][:8]}"),
    lambda line: line.update(run=f"/tmp/evil-{line['hash'][:8]}"),
    lambda line: line.update(run=f"a\n$(touch pwned)-{line['hash'][:8]}"),
    lambda line: line.update(run=5),
    lambda line: line.update(role=SCRIPT),
    lambda line: line.update(role=["fit"]),
    lambda line: line.update(model={"a": 1}),
    lambda line: line.update(start="../../../etc"),
    lambda line: line.update(start="runs/../../../etc"),
    lambda line: line.update(start="/etc"),
    lambda line: line.update(start=3),
    lambda line: line["spec"].update(steps=10**30),
    lambda line: line["spec"].update(mixture={"general": "1/0"}),
    lambda line: line["spec"].update(corpora={"../../x": "ff"}),
    lambda line: line["spec"].update(schedule=5),
    lambda line: line.update(schema=9),
    lambda line: line.update(spec=None),
)


def test_a_plan_of_a_stranger(study: Study, capsys) -> None:
    whole, before = study.plan_file.read_bytes(), everything(study.folder)
    lines = whole.splitlines(keepends=True)
    last_line = "cut off, its last line ends in "
    plans = {b"": "cut off, it is empty", whole[:-1]: last_line, whole[:40]: last_line}
    plans[b"".join(lines[:-1])] = f"{len(lines) - 1} of {len(lines)} lines are left"
    plans |= {f"{line}\n".encode(): "" for line in ("[1]", '"x"', "null", "5", "{}", "[" * 100_000, "{'a': 1}")}
    for change in PLANNED:
        content = [json.loads(line) for line in lines]
        change(next(line for line in content if line["role"] == "fit"))
        plans["".join(json.dumps(line) + "\n" for line in content).encode()] = ""
    for content, problem in plans.items():
        study.plan_file.write_bytes(content)
        error = error_of(study.read_plan)
        assert error.startswith(str(study.plan_file)), content
        assert problem in error
        assert error.endswith("with the question of this study; the finished runs are kept"), content
    for verb in ("status", "collect", "report", "track sync"):
        assert refused([*verb.split(), str(study.folder)], capsys, 3) == error
    study.plan_file.write_bytes(whole)
    assert everything(study.folder) == before
    study.write_plan([])
    assert study.read_plan() == []


POINT = {"step": 5, "tokens": 80, "corpus": "code", "loss": 3.0, "loss_stderr": 0.1, "learning_rate": 1e-3}
WRONG_POINTS = (
    *(json.dumps({**POINT, "step": step}) for step in (10**30, -3, "5", 5.5, None, [5])),
    *(json.dumps({**POINT, "loss": loss}) for loss in ("3", [3], None, True)),
    json.dumps({**POINT, "loss": 10}).replace("10", "1" + "0" * 400, 1),
    *(json.dumps({**POINT, **more}) for more in ({"tokens": 2**63}, {"corpus": 5}, {"x": 5})),
    json.dumps(POINT).replace('"loss":', '"lose":', 1),
    *("what is this", "5", "[]", "null", "[" * 100_000),
    json.dumps({**POINT, "corpus": "co\udc9ee"}, ensure_ascii=False),
)


def test_points_of_a_stranger(study: Study, capsys) -> None:
    points = sorted(study.runs.glob("continual*/points.jsonl"))[0]
    whole = points.read_text()
    (study.folder / "points.parquet").unlink()
    for line in WRONG_POINTS:
        points.write_bytes((whole + line + "\n").encode(errors="surrogateescape"))
        error = error_of(collect, study, "general")
        assert f"{points} line" in error, line[:100]
        assert error.endswith(f"delete runs/{points.parent.name} to train it again")
    assert refused(["collect", str(study.folder)], capsys, 3) == error
    # A run that cannot be read keeps nobody from looking at the others.
    assert run(["status", str(study.folder)]) == 0
    assert not (study.folder / "points.parquet").exists()


ANSWERS: list[tuple[str, Change]] = [
    ("recommendation.json", lambda content: content.update(mixture={"general": 5, "code": -4})),
    ("recommendation.json", lambda content: content.update(mixture={"general": 0.5, "code": "0.5"})),
    ("recommendation.json", lambda content: content.update(mixture={"general": 0, "code": 10**400})),
    ("recommendation.json", lambda content: content.update(mixture="half")),
    ("recommendation.json", lambda content: content.update(mixture={"general": 0.5, "code": 0.1})),
    ("recommendation.json", lambda content: content.update(peak_learning_rate=0)),
    ("recommendation.json", lambda content: content["loss_before"].update(code=0)),
    ("recommendation.json", lambda content: content["target"].update(D=0)),
    ("recommendation.json", lambda content: content.update(low=SCRIPT)),
    ("recommendation.json", lambda content: content.update(binding=["x"])),
    ("recommendation.json", lambda content: content.update(warnings=[{"a": 2}])),
    ("recommendation.json", lambda content: content.update(target=None)),
    ("recommendation.json", lambda content: content["target"].update(D="1")),
    ("recommendation.json", lambda content: content.update(predicted={"code": {"loss": "x"}})),
    ("recommendation.json", lambda content: content.pop("law")),
    ("confirmation.json", lambda content: content["confirmations"][0].update(measured=SCRIPT)),
]


def test_an_answer_of_a_stranger(study: Study, capsys) -> None:
    kinds = {"recommendation.json": Recommendation, "confirmation.json": Confirmation}
    for name, change in ANSWERS:
        path = study.folder / name
        whole = path.read_text()
        content = json.loads(whole)
        change(content)
        path.write_text(json.dumps(content))
        assert name in error_of(kinds[name].read, study), content
        if (name, change) == ANSWERS[-1]:
            assert name in refused(["report", str(study.folder)], capsys, 3)
        path.write_text(whole)


def test_words_that_want_to_be_markup_are_words(study: Study) -> None:
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


@pytest.mark.parametrize("name", ["it's $(touch pwned) `touch pwned`", '-n\n#SBATCH --pwned\na"b;touch pwned'])
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
        # sbatch reads options down to the first command.
        assert "pwned" not in "".join(itertools.takewhile(lambda line: line.startswith("#"), text.splitlines()))
        said = tmp_path / "said"
        said.unlink(missing_ok=True)
        surroundings = {"PATH": f"{tools}:/usr/bin:/bin", "SAID": str(said), "SLURM_JOB_ID": "1"}
        subprocess.run(["bash", "-c", text], cwd=work, env=surroundings, check=False, capture_output=True, timeout=30)
        words = said.read_text().split("\0")
        assert str(folder.resolve()) in words
        assert "srun" not in text or "run-name" in words
    assert not list(tmp_path.rglob("pwned"))
