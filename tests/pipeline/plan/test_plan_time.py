"""The time that plan prints: each model's speed, measured beside as many others as will train."""

import json
from pathlib import Path

import pytest

from pipeline.cli.main import run
from pipeline.plan.cost import costs
from pipeline.plan.machine import read_machine, speed_of
from pipeline.plan.runs import placeholder_manifest, planned_runs
from pipeline.question.loading import read_question
from pipeline.study.artifacts import Machine
from pipeline.study.folder import Study
from tests.pipeline.small import small_words
from training.engine import shape_hash
from training.evaluation_steps import evaluation_steps

WORDS = ["experiment=quickstart", "mixture=ratios", "ladder=[qwen2-0.05m,qwen2-0.15m]"]


def test_each_model_takes_the_time_of_its_own_speed(tmp_path: Path) -> None:
    question, study = read_question(WORDS), Study(tmp_path)
    plan = planned_runs(question, placeholder_manifest(question), "bf16")
    assert {row.seconds for row in costs(plan, speed_of(study), question)} == {None}
    Machine("bf16", {"qwen2-0.05m": 1000, "qwen2-0.15m": 100}, {}, "a processor").write(study)
    times = {row.model: row.seconds for row in costs(plan, speed_of(study), question) if row.role == "fit"}
    fitted = [planned.spec for planned in plan if planned.role == "fit" and planned.model == "qwen2-0.05m"]
    windows = sum(len(evaluation_steps(spec.evaluation, spec.steps)) for spec in fitted) * 2 * 64 * 128
    expected = sum(spec.tokens for spec in fitted) + windows / 3
    assert times["qwen2-0.05m"] == pytest.approx(expected / 1000)
    assert times["qwen2-0.15m"] == pytest.approx(expected / 100)
    # The target's speed is not known, so neither is its time.
    assert [row.seconds for row in costs(plan, speed_of(study), question) if row.model == "qwen2-0.7m"] == [None]


def test_an_engine_that_runs_have_chosen_is_faster_than_the_plain_one(tmp_path: Path) -> None:
    question, study = read_question(WORDS), Study(tmp_path)
    plan = planned_runs(question, placeholder_manifest(question), "bf16")
    Machine("bf16", {"qwen2-0.05m": 1000, "qwen2-0.15m": 100}, {}, "a processor").write(study)
    small = next(planned for planned in plan if planned.model == "qwen2-0.05m")
    record = {"engine": "eager-compiled", "shape": shape_hash(small.spec.model), "precision": "bf16"}
    folder = study.folder / "engines"
    folder.mkdir()
    (folder / "one.json").write_text(json.dumps(record | {"measured": {"eager": 900.0, "eager-compiled": 1500.0}}))
    (folder / "cut.json").write_text('{"engine": "ea')
    speed = speed_of(study)
    assert speed(small) == 1500.0
    assert speed(next(planned for planned in plan if planned.model == "qwen2-0.15m")) == 100.0


@pytest.mark.slow
def test_prepare_measures_every_model_with_all_workers(texts: Path, tmp_path: Path) -> None:
    words = small_words(
        texts, tmp_path, "precision=auto", "launcher.workers=2", without=("precision", "launcher.workers")
    )
    assert run(["prepare", *words]) == 0
    machine = read_machine(Study(tmp_path / "studies" / "small"))
    assert machine is not None
    assert set(machine.speeds) == {"qwen2-0.05m", "qwen2-0.15m"}
    # Of the target, by precision; its speed is the faster one.
    assert machine.speeds["qwen2-0.15m"] == machine.measured[machine.precision] == max(machine.measured.values())
