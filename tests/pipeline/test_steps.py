"""Which steps are left, as the folder of a study says."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from pipeline.question.schema import Question
from pipeline.show.report.pages import write_pages
from pipeline.steps import STEPS, next_steps
from pipeline.study.artifacts import Machine
from pipeline.study.context import Context
from pipeline.study.folder import Study, question_yaml
from tests.pipeline.show.report.report_study import long_corpora, whole_study


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
    ("left", "name"),
    [("confirm", "confirmation.json"), ("fit", "recommendation.json"), ("collect", "points.parquet")],
)
def test_what_is_missing_is_made_again_with_all_behind_it(
    confirmed: Context, left: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Context, "is_prepared", True)
    (confirmed.study.folder / name).unlink()
    assert next_steps(confirmed)[0] == left
    assert next_steps(confirmed)[-1] == "report"
    assert write_pages(confirmed)[0].exists()  # As far as there is something to show.


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
