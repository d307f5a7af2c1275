"""Which steps are left, and how they are taken: for each domain, up to what is queued, with a report after failures."""

import dataclasses
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from pipeline import steps
from pipeline.goals.registry import read_question
from pipeline.question.schema import Question
from pipeline.show.report.pages import write_pages
from pipeline.steps import STEPS, Step, go_on, next_steps
from pipeline.study.artifacts import Machine, Recommendation
from pipeline.study.context import Context
from pipeline.study.folder import Study, StudyError, question_yaml
from tests.pipeline.show.report.report_study import long_corpora, whole_study
from training.run import Exit

TWO_DOMAINS = ["experiment=dcpt-six-small", "corpora.folder=there", "corpora.domains=[law,music]", "corpora.domain=law"]
ANSWER = ("fit", "recommend", "confirm", "report")


@pytest.fixture
def confirmed(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Context:
    """A grid that is trained, answered and confirmed, in a copy to change."""
    made, question = whole_study(tmp_path_factory.getbasetemp() / "report")
    study = Study(shutil.copytree(made.folder, tmp_path / made.folder.name))
    return context_in(study, dataclasses.replace(question, studies=str(tmp_path)))


def context_in(study: Study, question: Question) -> Context:
    (study.folder / "study.yaml").write_text(question_yaml(question))
    Machine("bf16", {}, {"fp32": 1, "bf16": 2}, "a CPU").write(study)
    return Context(question, study, long_corpora(study, *question.corpora.sources))


def test_nothing_but_the_report_is_left_of_a_confirmed_study(confirmed: Context, monkeypatch) -> None:
    assert next_steps(confirmed) == list(STEPS)  # Its corpora are nowhere.
    monkeypatch.setattr(Context, "is_prepared", True)
    assert next_steps(confirmed.fresh()) == ["report"]


@pytest.mark.parametrize(
    ("left", "name"), [("confirm", "confirmation.json"), ("fit", "recommendation.json"), ("collect", "points.parquet")]
)
def test_what_is_missing_is_made_again_with_all_behind_it(
    confirmed: Context, left: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Context, "is_prepared", True)
    (confirmed.study.folder / name).unlink()
    assert next_steps(confirmed)[0] == left
    assert next_steps(confirmed)[-1] == "report"
    assert write_pages(confirmed)[0].exists()  # As far as there is something to show.


def test_a_confirmation_of_another_answer_is_none(confirmed: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Context, "is_prepared", True)
    answer = Recommendation.read(confirmed.study)
    ratio = (answer.mixture or {})[confirmed.question.corpora.domain]
    moved = {"general": 1 - ratio + 0.1, confirmed.question.corpora.domain: ratio - 0.1}
    dataclasses.replace(answer, mixture=moved).write(confirmed.study)
    assert next_steps(confirmed) == ["confirm", "report"]


def test_another_question_is_planned_anew_and_an_open_run_trained(confirmed: Context, monkeypatch) -> None:
    monkeypatch.setattr(Context, "is_prepared", True)
    other = dataclasses.replace(confirmed.question, bootstrap=7)
    assert next_steps(confirmed.asking(other))[0] == "plan"
    goal = dataclasses.replace(confirmed.question.goal, tolerance=0.01)
    asked = dataclasses.replace(confirmed.question, goal=goal)
    assert next_steps(context_in(confirmed.study, asked))[0] == "fit"
    run = next(run for run in confirmed.plan if run.role == "fit")
    (confirmed.study.runs / run.name / "DONE").unlink()
    assert next_steps(context_in(confirmed.study, confirmed.question))[0] == "train"


def test_planning_another_question_says_what_changes_and_leaves_its_runs_out(
    confirmed: Context, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Context, "is_prepared", True)
    asked, (first, second) = confirmed.question, [run for run in confirmed.plan if run.role == "confirm"]

    def planned(**target: int) -> tuple[list[str], str]:
        question = dataclasses.replace(asked, target=dataclasses.replace(asked.target, **target))
        steps.plan(confirmed.asking(question), Console(soft_wrap=True))
        return [run.name for run in confirmed.fresh().plan if run.role == "confirm"], capsys.readouterr().out

    same, printed = planned()
    assert same == [first.name, second.name]
    assert "changes" not in printed
    assert "left out" not in printed
    # A run that confirms an earlier answer and never began would be trained by the next train.
    shutil.rmtree(confirmed.study.runs / second.name)
    begun, printed = planned()
    assert begun == [first.name]
    assert "1 run is not of this question and left out" in printed
    other, printed = planned(global_batch=8)
    assert other == []
    assert "study.yaml: the question of later commands changes: target.global_batch=8 (was 16)" in printed
    assert "1 run is not of this question and left out; their files stay" in printed


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The steps that were taken; those before train are done, and a plan is there."""
    taken: list[str] = []

    def step(name: str) -> Step:
        def take(context: Context, console: Console) -> Exit:
            of_answer = name in ANSWER
            taken.append(f"{name} {context.question.corpora.domain}" if of_answer else name)
            return Exit.DONE

        return Step(take, lambda context: name in ("prepare", "plan"), of_answer=name in ANSWER)

    monkeypatch.setattr(steps, "STEPS", {name: step(name) for name in steps.STEPS})
    monkeypatch.setattr(steps, "report", steps.STEPS["report"].run)
    monkeypatch.setattr(Context, "plan", [SimpleNamespace(name="run")])
    monkeypatch.setattr(Study, "state", lambda *_: "done")
    return taken


def _fail(name: str, outcome: Exit | Exception, monkeypatch: pytest.MonkeyPatch, domain: str = "law") -> None:
    before = steps.STEPS[name].run

    def run(context: Context, console: Console) -> Exit:
        code = before(context, console)
        if context.question.corpora.domain != domain:
            return code
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setitem(steps.STEPS, name, Step(run, steps.STEPS[name].is_done, steps.STEPS[name].of_answer))


@pytest.mark.parametrize("outcome", [Exit.CRASH, StudyError("no fit"), RuntimeError("a bug")])
def test_what_fails_for_one_domain_leaves_the_other_its_answer(taken, monkeypatch, outcome) -> None:
    question = read_question([*TWO_DOMAINS, "~dense.code"])
    _fail("recommend", outcome, monkeypatch)
    if isinstance(outcome, Exception):
        with pytest.raises(type(outcome), match=str(outcome)):
            go_on(question, Console(quiet=True))
    else:
        assert go_on(question, Console(quiet=True)) == outcome
    law, music = ("fit law", "recommend law", "report law"), [f"{name} music" for name in ANSWER]
    assert taken == ["train", "collect", *law, *music]


def test_a_failed_training_is_reported_for_each_domain(taken, monkeypatch) -> None:
    _fail("train", Exit.CRASH, monkeypatch)
    assert go_on(read_question([*TWO_DOMAINS, "~dense.code"]), Console(quiet=True)) == Exit.CRASH
    assert taken == ["train", "report law", "report music"]


@pytest.mark.parametrize(("launcher", "goes_on"), [("local", True), ("slurm", False)])
def test_a_job_leaves_what_it_has_queued_to_the_next_job(taken, monkeypatch, launcher: str, goes_on: bool) -> None:
    # The run has ended, but was open before: on a cluster a job is behind it.
    states = iter(["open"])
    monkeypatch.setattr(Study, "state", lambda *_: next(states, "done"))
    assert go_on(read_question(["experiment=quickstart", f"launcher={launcher}"]), Console(quiet=True)) == Exit.DONE
    assert ("collect" in taken) == goes_on
