"""The run that an answer is for."""

import dataclasses
from pathlib import Path

import pytest

from pipeline.goals.active.candidates import losses_before
from pipeline.goals.registry import read_question
from pipeline.question.schema.training import BranchConfig, ScheduleConfig
from pipeline.study.collect import collect
from pipeline.study.target import find_target
from tests.pipeline.show.report.report_study import make_study, write_runs
from training.schedule import Piece


def test_a_branch_of_the_pre_training_is_not_what_is_continued(tmp_path: Path) -> None:
    question = read_question(["experiment=quickstart", "schedule@pretrain.schedule=constant"])
    decay = BranchConfig(question.pretrain.steps, 240, ScheduleConfig([Piece("linear", end=0.0)]))
    phase = dataclasses.replace(question.pretrain, branches=[decay])
    study, question = make_study(tmp_path, until="plan", pretrain=phase)
    write_runs(study, question, study.read_plan())
    points = collect(study, "general")
    model = question.ladder[0]
    target = find_target(question, points, model)
    begun = points[(points["model"] == model) & (points["phase"] == "continual") & (points["step"] == 0)]
    assert target.before == dict(zip(begun["corpus"], begun["loss_before"])) == losses_before(points)[model]
    assert target.rate_before == phase.peak_learning_rate
    assert target.s1_pretrain == pytest.approx(begun["s1_pretrain"].iloc[0])
