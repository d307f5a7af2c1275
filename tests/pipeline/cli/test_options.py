"""Verbs and their help, and options beside keys: --json, --open, --help of a section, and those of Hydra."""

import dataclasses
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from pipeline.cli import verbs
from pipeline.cli.json_output import held_out_errors, json_of
from pipeline.cli.key_help import FIRST, FIRST_OF_STUDY
from pipeline.cli.main import run
from pipeline.cli.verb_table import VERBS, help_page
from pipeline.done import answer_digest, exported
from pipeline.goals.active.history import ChosenRun, DesignRound, write_rounds
from pipeline.goals.registry import refuse_other_runs
from pipeline.question.schema import LawConfig, Question
from pipeline.show.conclusion import conclusion_of
from pipeline.show.tables import mean_errors_table
from pipeline.steps import STEPS, step_after
from pipeline.study.artifacts import Export
from pipeline.study.context import Context, context_of
from pipeline.study.fits import POINTS
from pipeline.study.folder import Study, question_yaml
from tests.pipeline.show.report.report_study import make_study
from tests.pipeline.small import refused
from training.run import Exit

GUIDE = (Path(__file__).parents[3] / "docs/guide.md").read_text()


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> tuple[Study, Question]:
    law = {"transfer-anchored": LawConfig()}
    study, question = make_study(tmp_path_factory.mktemp("studies"), bootstrap=2, law=law)
    (study.folder / "study.yaml").write_text(question_yaml(question))
    return study, question


def documented(name: str) -> set[str]:
    """The keys in a row of the guide's tables, without the words in brackets."""
    row = next(line for line in GUIDE.splitlines() if line.startswith(f"| {name} |"))
    return {*re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", row.split("|")[2]))}


def test_the_guide_lists_the_keys_of_each_verb(study: tuple[Study, Question]) -> None:
    content: dict[str, Any] = {verb: json_of(verb, study[1]) for verb in ("status", "fit", "recommend", "confirm")}
    for verb, keys in content.items():
        assert json.loads(json.dumps(keys, allow_nan=False)) == keys
        assert {*keys} == documented(f"`{verb}`"), verb
    (fitted, *_) = content["fit"]["fits"]["code"].values()
    assert {*content["status"]["runs"][0]} == documented("a run")
    assert {*next(iter(fitted["parameters"].values()))} == documented("a parameter")
    known = conclusion_of(context_of(study[1]))
    words = {"conclusion": known.headline, "known": known.is_known, "confirmed": known.verdict}
    words["domain_ratio_by_runs"] = known.domain_ratio
    assert content["recommend"] == json.loads((study[0].folder / "recommendation.json").read_text()) | words
    assert content["confirm"] == json.loads((study[0].folder / "confirmation.json").read_text()) | words


def test_the_held_out_errors_of_json_are_those_of_the_table() -> None:
    rows = [("code", "dcpt", "size", run, error) for run, error in (("a", 0.1), ("a", 0.1), ("a", 0.1), ("b", -0.4))]
    tested = pd.DataFrame(rows, columns=["corpus", "law", "split", "run", "relative_error"])
    (errors,) = held_out_errors(tested)
    assert [errors[key] for key in ("split", "mean_error", "max_error", "points")] == ["size", 0.25, 0.4, 4]
    assert mean_errors_table(tested).rows[0][2] == "25.00%"


def test_json_alone_is_on_standard_output(study: tuple[Study, Question], tmp_path: Path, capsys) -> None:
    folder = str(study[0].folder)
    assert run(["status", folder, "--json"]) == 0
    captured = capsys.readouterr()
    runs = json.loads(captured.out)["runs"]
    assert [row["run"] for row in runs] == [planned.name for planned in study[0].read_plan()]
    assert captured.err.startswith("next: cptlaw ")
    assert run(["plan", "experiment=quickstart", f"data={tmp_path}", f"studies={tmp_path}", "--json"]) == 0
    captured = capsys.readouterr()
    plan = json.loads(captured.out)
    assert ({*plan}, plan["written"]) == (documented("`plan`"), False)
    assert {*plan["costs"][0]} == documented("a cost")
    assert {*plan["runs"][0]} < documented("a run")
    assert "runs" in captured.err
    (tmp_path / "runs.csv").write_text(
        "N,D,loss\n" + "".join(f"{n},{d},{2 + 1 / n + 1 / d}\n" for n in (1, 2, 4) for d in (1, 2, 4))
    )
    assert run(["fit", f"points={tmp_path / 'runs.csv'}", "law=chinchilla", "bootstrap=0", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert {*table} == {"schema", "points", "fits"}
    assert table["fits"][""]["chinchilla"]["points"] == 9
    # An error leaves it empty.
    assert run(["recommend", str(tmp_path), "--json"]) == 3
    assert capsys.readouterr().out == ""
    assert "allowed: cptlaw plan, status, fit, recommend, predict, confirm, follow" in refused(
        ["report", folder, "--json"], capsys, 2
    )


@pytest.mark.slow
@pytest.mark.parametrize(("words", "unbuffered"), [("--help", ""), ("status STUDY", ""), ("status STUDY --json", "1")])
def test_a_reader_that_goes_away_ends_a_verb_quietly(words: str, unbuffered: str, study) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    named = [str(study[0].folder) if word == "STUDY" else word for word in words.split()]
    command = [sys.executable, "-m", "pipeline.cli.main", *named]
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(command, env=environment, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    shown = [line for line in done.stderr.splitlines() if not line.startswith("next: ")]
    assert (done.returncode, shown) == (75, [])


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["--help"], ["plan", "--help"], ["--version"]):
        assert run(words) == (0 if words else 2)
        assert "cptlaw" in capsys.readouterr().out
    assert run(["reccomend"]) == 2
    assert "did you mean recommend?" in capsys.readouterr().err


def test_every_verb_has_its_function() -> None:
    for name, verb in VERBS.items():
        own = importlib.import_module(f"pipeline.cli.{verb.module}") if verb.module else None
        found = own.carry_out if own else verbs.FUNCTIONS.get(name)
        assert (name in STEPS) != callable(found), name
        assert own is None or help_page(name).startswith(f"usage: cptlaw {name} ")


def test_the_options_of_hydra(study: tuple[Study, Question], capsys) -> None:
    folder = str(study[0].folder)
    for words in (
        ["recommend", folder, "goal.tolerance=0.07", "--cfg", "job"],
        ["plan", "goal.tolerance=0.07", "-c=job"],
    ):
        assert run(words) == 0
        assert yaml.safe_load(capsys.readouterr().out)["goal"]["tolerance"] == 0.07
    lines = {
        ("plan", "--cfg", "jobs"): "--cfg: 'jobs'; allowed: job, hydra, all",
        ("plan", "--config-dir", "x"): "put one into",
        ("recommend", folder, "--info"): "--cfg job prints it",
        ("plan", "-m", "seed=1,2"): "--multirun: only cptlaw train sweeps",
        ("laws", "--cfg", "job"): "cptlaw plan takes the options of Hydra",
        ("plan", "--nonsense"): "no such option",
        ("plan", "experiment=nonsense", "--info"): "'nonsense' does not exist",
        ("-sc", "install=tcsh"): "allowed: install=bash install=zsh install=fish",
        ("plan", "--help", "gaol"): "did you mean goal?",
        ("plan", "--open"): "allowed: cptlaw report",
    }
    for words, part in lines.items():
        assert part in refused([*words], capsys, 2), words


def test_a_shell_completes_verbs_studies_and_keys(tmp_path: Path, monkeypatch, capsys) -> None:
    (tmp_path / "studies/mine").mkdir(parents=True)
    (tmp_path / "studies/mine/study.yaml").touch()
    monkeypatch.chdir(tmp_path)

    def completed(line: str) -> list[str]:
        monkeypatch.setenv("COMP_LINE", line)
        assert run(["-sc", "query=bash"]) == 0
        return capsys.readouterr().out.split()

    assert completed("cptlaw re") == ["recommend", "refine", "report"]
    assert completed("cptlaw report ") == ["studies/mine"]
    assert completed("cptlaw recommend studies/mine goal.tol") == ["goal.tolerance="]
    assert completed("cptlaw plan experiment=qu") == ["experiment=quickstart"]


def test_help_in_screens(capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    shown = {}
    for words in ((), ("goal",), ("all",), ("pretrain.steps",), ("experiment=own",)):
        assert run(["plan", "--help", *words]) == 0
        shown[words] = capsys.readouterr().out
    assert shown["pretrain.steps",].rstrip().splitlines()[-2].split() == ["pretrain.steps", "0", "Optimizer", "steps."]
    assert re.search(r"^ladder +\[qwen2-0.05m, qwen2-0.15m, qwen2-0.3m\]", shown["experiment=own",], re.M)
    assert re.search(r"^key +value +what", shown["experiment=own",], re.M)
    assert re.search(r"^model +qwen2-0.7m +The target model", shown["experiment=own",], re.M)
    assert re.search(r"^pretrain.steps +1000 ", shown["experiment=own",], re.M)
    assert len(FIRST) == 24
    assert all(re.search(rf"^{re.escape(key)}  ", text, re.M) for key in FIRST for text in (shown[()], shown["all",]))
    assert len(shown[()].splitlines()) < 45
    assert "goal.flops" in shown["goal",]
    assert "goal.flops" not in shown[()]
    assert "seed" not in shown["goal",]


@pytest.mark.parametrize("verb", [name for name, verb in VERBS.items() if verb.on_study and not verb.module])
def test_a_verb_of_a_study_shows_the_keys_that_it_reads(verb: str, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert run([verb, "--help"]) == 0
    shown = capsys.readouterr().out.partition("\nevery key: ")[0]
    assert "corpora.sources" not in shown
    assert "pretrain.steps" not in shown
    first = {
        "recommend": "goal.tolerance",
        "confirm": "confirm.neighbour",
        "fit": "law",
        "status": "launcher.stale_after",
    }
    if verb in first:
        assert re.search(rf"^key +default +what it is *\n{re.escape(first[verb])}", shown, re.M)
    patterns = FIRST_OF_STUDY[verb]
    names = (key.replace("[*]", "*").removesuffix(".*") for key in patterns)
    assert all(f"\n{name}" in shown for name in names)
    assert bool(patterns) != ("no key changes what it does" in shown)


def test_a_report_is_opened(study: tuple[Study, Question], capsys, monkeypatch) -> None:
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or len(opened) == 1)
    monkeypatch.setitem(STEPS, "report", dataclasses.replace(STEPS["report"], run=lambda context, console: Exit.DONE))
    for _ in range(2):
        assert run(["report", str(study[0].folder), "--open"]) == 0
    path = study[0].folder.resolve() / "report.html"
    assert opened == [path.as_uri()] * 2
    assert capsys.readouterr().out.count(f"no browser was found on this machine: open {path}\n") == 1


@pytest.mark.parametrize("verb", ["fit", "recommend", "confirm"])
def test_a_verb_after_train_does_not_change_the_runs(study: tuple[Study, Question], verb: str, capsys) -> None:
    """An answer to another question than that of study.yaml would be refused by what is next."""
    (made, question), word = study, study[0].word
    other = f"or first cptlaw train {word}"
    lines = {
        "sequence_length=64": "give target.sequence_length=64 to ask about a run of such sequences, "
        f"{other} sequence_length=64, which trains others",
        "pretrain.steps=9": f"{other} pretrain.steps=9, which trains others",
        "corpora.sources.code.path=x": f"{other} corpora.sources.code.path=x, which trains others",
        "model.name=qwen2-0.3m": f"or cptlaw predict {word} domain_ratio=RATIO model.name=qwen2-0.3m has its losses",
    }
    before = (made.folder / "study.yaml").read_text()
    for given, remedy in lines.items():
        line = f"{given}: {verb} cannot change the runs of the study; leave it out, {remedy}"
        assert refused([verb, str(made.folder), given], capsys, 2) == line
    assert (made.folder / "study.yaml").read_text() == before
    same = [f"sequence_length={question.sequence_length}", f"pretrain.steps={question.pretrain.steps}"]
    refuse_other_runs(verbs.question_of(verb, [str(made.folder), *same]), verb, same)


def test_train_ends_with_what_is_known(study: tuple[Study, Question], monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setitem(STEPS, "train", dataclasses.replace(STEPS["train"], run=lambda context, console: Exit.DONE))
    known = conclusion_of(Context(study[1], study[0])).lines
    assert run(["train", str(study[0].folder)]) == 0
    assert capsys.readouterr().out.splitlines()[:-1] == known
    # Of an answer to another question nothing is known.
    assert run(["train", str(study[0].folder), "goal.tolerance=0.5"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.slow
def test_each_verb_names_the_next_one(study: tuple[Study, Question], tmp_path: Path, capsys) -> None:
    copy = tmp_path / study[0].folder.name
    shutil.copytree(study[0].folder, copy)

    def following(verb: str, *words: str) -> str:
        assert run([verb, str(copy), *words]) == 0
        return capsys.readouterr().out.splitlines()[-1]

    export = f"next: cptlaw export {copy} format=trl output=trl.yaml without_validation=true"
    assert following("report") == following("cancel") == export
    # What was exported before the confirmation, for any ratio, is exported again.
    context, trl = Context(study[1], Study(copy)), tmp_path / "trl.yaml"
    (copy / "confirmation.json").rename(kept := copy / "kept.json")
    assert run(["export", str(copy), "format=trl", f"output={trl}", "domain_ratio=0.3"]) == 0
    assert exported(context)
    assert step_after("report", context) == "confirm"
    kept.rename(copy / "confirmation.json")
    capsys.readouterr()
    assert following("report") == export
    # An answer that was exported is trained.
    dataclasses.replace(Export.read(context.study), answer=answer_digest(context)).write(context.study)
    assert following("report") == following("status") == f"next: trl sft --config {trl}"
    # Its training is begun once its page is there.
    (page := copy / "follow.html").write_text("")
    after = f"next: cptlaw follow {copy} LOG, unless {page} shows the end of that run"
    assert following("report") == following("status") == after
    page.unlink()
    trl.unlink()
    assert following("cancel") == export
    # Who fits is shown the answer, though all is done.
    assert [step_after(verb, context) for verb in ("collect", "fit", "recommend")] == ["", "recommend", ""]
    # The report is older than the answer.
    os.utime(copy / "report.html", (1, 1))
    assert step_after("recommend", context) == "report"
    assert following("status") == f"next: cptlaw report {copy}"
    # So is it than the page of a run that was followed to its end, which it leads to.
    assert following("report") == export
    log = next(run.name for run in context.plan if run.role == "confirm")
    assert following("follow", str(copy / "runs" / log)) == following("status") == f"next: cptlaw report {copy}"
    assert following("report") == following("status") == export
    # What would tell an answer that is not known leads, in place of its report.
    known = (copy / "recommendation.json").read_text()
    (copy / "recommendation.json").write_text(known.replace('"identified": true', '"identified": false'))
    assert following("status") == following("cancel") == f"next: cptlaw refine {copy}"
    (copy / "recommendation.json").write_text(known)
    # Runs that refine has chosen are its own to go on with, also once their points are collected.
    one = next(run for run in context.plan if run.role == "fit")
    chosen = ChosenRun(one.name, one.model, 0.5, one.spec.steps, 0, 1.0, None)
    write_rounds(context.study, [DesignRound(1, "", 0.0, 0.0, 0.05, None, None, 1, [chosen], "", more=True)])
    assert following("status") == f"next: cptlaw report {copy}"
    (done := copy / "runs" / one.name / "DONE").rename(kept)
    assert following("status") == f"next: cptlaw refine {copy}"
    kept.rename(done)
    (copy / "recommendation.json").write_text(re.sub('"points": ".*"', '"points": "0-0"', known))
    assert following("status") == f"next: cptlaw refine {copy}"
    (copy / "design.jsonl").unlink()
    (copy / "recommendation.json").write_text(known)
    # No mixture keeps to so small a tolerance: nothing is left to confirm or to export.
    assert run(["recommend", str(copy), "goal.tolerance=-0.9"]) == 1
    again = f"next: cptlaw recommend {copy} goal.tolerance=TOLERANCE"
    assert capsys.readouterr().out.splitlines()[-1] == again
    assert following("status") == following("report") == again
    shutil.copy(study[0].folder / "study.yaml", copy)
    (copy / "recommendation.json").write_text(known)
    # What decides on it cannot be read.
    (made := copy / "confirmation.json").write_text("{")
    line = refused(["status", str(copy)], capsys, 3)
    assert line.startswith(f"{made}: not JSON")
    assert line.endswith(f"run cptlaw confirm {copy} again")
    assert following("cancel") == f"next: cptlaw status {copy}"
    made.write_bytes((study[0].folder / made.name).read_bytes())
    # Who has fitted need not fit again.
    (copy / "recommendation.json").write_text(re.sub('"fits": ".*"', '"fits": "0"', known))
    assert following("status") == f"next: cptlaw recommend {copy}"
    assert conclusion_of(context).remedy.startswith(f"Run cptlaw recommend {copy}, with")
    (digest := copy / context.study.fitted(POINTS)).rename(kept)
    digest.write_text("0-0\n")
    assert following("status") == f"next: cptlaw fit {copy}"
    kept.rename(digest)
    (copy / "recommendation.json").write_text(known)
    left = {"confirmation.json": "confirm", "recommendation.json": "recommend", "fits": "fit"}
    for file, verb in (left | {"points.parquet": "collect"}).items():
        path = copy / file
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        assert following("status") == f"next: cptlaw {verb} {copy}"
    assert following("collect") == f"next: cptlaw fit {copy}"
    assert following("fit", "bootstrap=2") == following("status") == f"next: cptlaw recommend {copy}"
    assert following("recommend") == f"next: cptlaw confirm {copy}"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("predict S domainratio=0.3 domain_ratio=0.4", "domainratio: no such key; did you mean domain_ratio?"),
        ("export S fromat=trl", "fromat: no such key; did you mean format?"),
        ("export S format=trl otput=x.yaml", "otput: no such key; did you mean output?"),
        ("follow S log.csv wacth=3", "wacth: no such key; did you mean watch?"),
        ("import log.csv losses=abc name=x", "losses: 'abc'; allowed: {key: value, ...}"),
        ("fit points=log.csv columns=3", "columns: 3; allowed: {key: value, ...}"),
    ],
)
def test_a_misspelt_key_or_a_wrong_value_of_a_verb_is_named_with_what_it_takes(words: str, line: str, capsys) -> None:
    assert refused(words.split(), capsys) == line
