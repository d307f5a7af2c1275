"""The time that plan prints: each model's speed, measured beside as many others as will train."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from pipeline.cli.main import run
from pipeline.goals.registry import read_question
from pipeline.plan.cost import costs, run_seconds
from pipeline.plan.duration import (
    COMPILED_GAIN,
    ENGINES_SECONDS,
    LARGE_VOCABULARY_GAIN,
    START_SECONDS,
    speed_of,
    wall_seconds,
)
from pipeline.plan.engines import measure_engine
from pipeline.plan.machine import measure_machine
from pipeline.plan.runs import estimate, planned_runs
from pipeline.question.schema import Question
from pipeline.study.artifacts import Machine, Speed
from pipeline.study.context import Context
from pipeline.study.folder import PlannedRun, Study, StudyError
from tests.pipeline.small import small_words
from training.engine import shape_hash
from training.evaluation_steps import evaluation_steps
from training.parameters import COMPILE_SECONDS
from training.run import choose_run_engine
from training.spec import Execution

WORDS = ["experiment=quickstart", "mixture=ratios", "ladder=[qwen2-0.05m,qwen2-0.15m]"]


SPEEDS = {"qwen2-0.05m": Speed(1000, 4000), "qwen2-0.15m": Speed(100, 300)}


def planned(
    folder: Path, *words: str, speeds: Mapping[str, Speed] = SPEEDS
) -> tuple[Question, Study, list[PlannedRun]]:
    """A question, its study with measured speeds, and its runs."""
    question, study = read_question([*WORDS, *words]), Study(folder)
    Machine("bf16", dict(speeds), {}, "a processor").write(study)
    return question, study, planned_runs(estimate(question, "bf16"))


def wall_of(plan: tuple[Question, Study, list[PlannedRun]]) -> float:
    """Its wall time, which is known."""
    question, study, runs = plan
    seconds = wall_seconds(Context(question, study), runs)
    assert seconds is not None
    return seconds


def test_each_model_takes_the_time_of_its_own_speed(tmp_path: Path) -> None:
    question, study, plan = planned(tmp_path, "engine=eager")
    rows = costs(plan, speed_of(Context(question, study), plan), question)
    times = {row.model: row.seconds for row in rows if row.role == "fit"}
    for model, speed in SPEEDS.items():
        fitted = [run.spec for run in plan if run.role == "fit" and run.model == model]
        validation = sum(len(evaluation_steps(spec.evaluation, spec.steps)) for spec in fitted) * 2 * 64 * 128
        trained = sum(spec.tokens for spec in fitted)
        assert times[model] == pytest.approx(trained / speed.training + validation / speed.evaluation)
    # The target's speed is not known, so neither is its time, nor that of the whole.
    assert [row.seconds for row in rows if row.model == "qwen2-0.7m"] == [None]
    assert wall_seconds(Context(question, study), plan) is None


def test_an_engine_that_runs_have_chosen_is_faster_than_the_plain_one(tmp_path: Path) -> None:
    question, study, plan = planned(tmp_path, "engine=eager")
    small = next(planned for planned in plan if planned.model == "qwen2-0.05m")
    record = {"engine": "eager-compiled", "shape": shape_hash(small.spec.model), "precision": "bf16"}
    record |= {"measured": {"eager": 900, "eager-compiled": 1500}, "evaluation": 6000, "seconds": 12.0}
    folder = study.folder / "engines"
    folder.mkdir()
    (folder / "one.json").write_text(json.dumps(record))
    (folder / "cut.json").write_text('{"engine": "ea')
    speed = speed_of(Context(question, study), plan)
    assert speed(small) == Speed(1500, 6000)
    assert speed(next(planned for planned in plan if planned.model == "qwen2-0.15m")) == Speed(100, 300)


def test_a_choice_made_here_says_what_compiling_takes(tmp_path: Path) -> None:
    question, study, plan = planned(tmp_path, "ladder=[qwen2-0.05m]", "model=qwen2-0.15m", "launcher.workers=1")
    small = next(planned for planned in plan if planned.model == "qwen2-0.05m")
    before = wall_of((question, study, plan))
    record = {"engine": "eager", "shape": shape_hash(small.spec.model), "precision": "bf16"}
    record |= {"measured": {"eager": round(1000 * COMPILED_GAIN)}, "evaluation": 4000 * COMPILED_GAIN, "seconds": 7.0}
    study.engines.mkdir()

    def wall_with(**facts: object) -> float:
        (study.engines / "one.json").write_text(json.dumps(record | facts))
        return wall_of((question, study, plan))

    # The small model needs no more measuring; the other one takes the seconds of one that was compiled.
    assert wall_with() == pytest.approx(before - ENGINES_SECONDS - COMPILE_SECONDS)
    compiled = {"eager": 900, "eager-compiled": round(1000 * COMPILED_GAIN)}
    with_compiling = wall_with(engine="eager-compiled", measured=compiled, seconds=21.5)
    assert with_compiling == pytest.approx(before - 2 * (ENGINES_SECONDS + COMPILE_SECONDS) + 21.5)


def test_prepare_chooses_the_engine_of_the_shape_that_trains_longest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int]] = []

    def measured_speed(model: Mapping[str, int], engine: str, *_: object, **__: object) -> dict[str, float]:
        asked.append((engine, model["hidden_size"]))
        return {"training": 300.0 if engine == "eager-compiled" else 100.0, "evaluation": 400.0}

    monkeypatch.setattr("training.engine.measured_speed", measured_speed)
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/g++")
    question, study, plan = planned(tmp_path, "ladder=[qwen2-0.05m]", "model=qwen2-0.15m")
    hidden = {run.model: run.spec.model["hidden_size"] for run in plan}["qwen2-0.15m"]
    lines: list[str] = []
    measure_engine(Context(question, study), plan, lines.append)
    assert asked == [(engine, hidden) for engine in ("sdpa", "eager", "eager-compiled")]
    assert lines[1].startswith("engine: eager-compiled (sdpa 100 tokens/s, eager 100 tokens/s, eager-compiled 300")
    # Its first run finds the choice, and a second prepare.
    run = next(run for run in plan if run.model == "qwen2-0.15m")
    assert choose_run_engine(run.spec, Execution(), study.engines)["engine"] == "eager-compiled"
    measure_engine(Context(question, study), plan, lines.append)
    assert (len(asked), len(lines)) == (3, 2)
    assert speed_of(Context(question, study), plan)(run) == Speed(300, 400)


def test_prepare_measures_no_engine_where_compiling_does_not_pay(tmp_path: Path) -> None:
    fast = planned(tmp_path, *ONE_MODEL, speeds={"qwen2-0.05m": Speed(10**6, 3 * 10**6)})
    measure_engine(Context(*fast[:2]), fast[2], pytest.fail)
    given = planned(tmp_path, *ONE_MODEL, "engine=eager")
    measure_engine(Context(*given[:2]), given[2], pytest.fail)
    assert not (tmp_path / "engines").exists()


ONE_MODEL = ["ladder=[]", "model=qwen2-0.05m", "mixture.domain_ratio=[0.25,0.5,1]", "launcher.workers=2"]


def test_two_workers_wait_for_the_pre_training_and_share_the_rest(tmp_path: Path) -> None:
    question, study, plan = planned(tmp_path, *ONE_MODEL, "engine=eager", "mixture.replicates=1")
    speed = speed_of(Context(question, study), plan)
    seconds = {run.name: run_seconds(run.spec, speed(run)) for run in plan}
    (pretraining,) = (seconds[run.name] for run in plan if run.role == "pretrain")
    continual = [seconds[run.name] for run in plan if run.role == "fit"]
    assert len(continual) == 3
    # Three equal runs on two workers take the time of two.
    assert wall_seconds(Context(question, study), plan) == pytest.approx(
        START_SECONDS + pretraining + 2 * max(continual)
    )


def test_a_plan_that_pays_for_compiling_counts_it_and_its_gain(tmp_path: Path) -> None:
    question, study, plan = planned(tmp_path, *ONE_MODEL)
    plain = planned(tmp_path, *ONE_MODEL, "engine=eager")
    uncompiled = wall_of(plain) - START_SECONDS
    expected = START_SECONDS + ENGINES_SECONDS + COMPILE_SECONDS + uncompiled / COMPILED_GAIN
    assert wall_seconds(Context(question, study), plan) == pytest.approx(expected, rel=1e-3)
    # At this speed the whole plan takes some seconds, and compiling would not pay.
    fast = planned(tmp_path, *ONE_MODEL, speeds={"qwen2-0.05m": Speed(10**6, 3 * 10**6)})
    eager = planned(tmp_path, *ONE_MODEL, "engine=eager", speeds={"qwen2-0.05m": Speed(10**6, 3 * 10**6)})
    assert wall_of(fast) == pytest.approx(ENGINES_SECONDS + wall_of(eager))
    # More is gained where logits take much of the time.
    large = planned(tmp_path, *ONE_MODEL, "+model.vocab_size=49152")
    expected = START_SECONDS + ENGINES_SECONDS + COMPILE_SECONDS + uncompiled / LARGE_VOCABULARY_GAIN
    assert wall_of(large) == pytest.approx(expected, rel=1e-3)


def test_a_speed_counts_for_runs_of_its_precision(tmp_path: Path) -> None:
    question, study, plan = planned(tmp_path, *ONE_MODEL)
    other = planned_runs(estimate(question))
    assert [speed_of(Context(question, study), runs)(runs[0]) is None for runs in (plan, other)] == [False, True]
    assert wall_seconds(Context(question, study), other) is None


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The precisions of each measurement, which gives bf16 twice the speed of fp32."""
    asked: list[list[str]] = []

    def measured_speeds(shapes: Mapping[str, object], *_: int, target: str, precisions: list[str], **__: object):
        asked.append(precisions)
        fast = {"fp32": {"training": 10.2, "evaluation": 30.0}, "bf16": {"training": 20.0, "evaluation": 0.1}}
        return {name: {shape: fast[name] for shape in shapes} for name in precisions}

    monkeypatch.setattr("training.engine.measured_speeds", measured_speeds)
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: {"avx512_bf16": True})
    return asked


def measure(folder: Path, *words: str) -> tuple[str, Machine | None]:
    """The precision that prepare finds for a study in a folder, and what it measured."""
    question, study = read_question([*WORDS, *words]), Study(folder)
    precision = measure_machine(dataclasses.replace(estimate(question), study=study, given_precision=None), str)
    return precision, Context(question, study).machine


def test_prepare_measures_a_configured_precision_alone(tmp_path: Path, measured: list[list[str]]) -> None:
    precision, machine = measure(tmp_path, "precision=fp32")
    assert (precision, machine and machine.measured) == ("fp32", {"fp32": 10})
    assert machine is not None
    assert machine.speeds == dict.fromkeys(["qwen2-0.05m", "qwen2-0.15m", "qwen2-0.7m"], Speed(10, 30))
    assert measure(tmp_path, "precision=fp32") == (precision, machine)
    assert measured == [["fp32"]]
    # It was not chosen: auto has yet to choose.
    question = read_question([*WORDS, "precision=auto"])
    assert Context(question, Study(tmp_path)).known_precision is None
    with pytest.raises(StudyError, match="of one precision, and precision=auto; run cptlaw prepare first"):
        _ = Context(question, Study(tmp_path)).precision
    precision, machine = measure(tmp_path, "precision=auto")
    # A speed that rounds to nothing is one, by which a time can be computed.
    assert (precision, machine and machine.speeds["qwen2-0.7m"]) == ("bf16", Speed(20, 1))
    # What was chosen stays.
    assert measure(tmp_path, "precision=fp32") == ("fp32", machine)
    assert measure(tmp_path, "precision=auto") == ("bf16", machine)
    assert measured == [["fp32"], ["fp32", "bf16"]]


@pytest.mark.parametrize("instructions", [{"avx2": True, "amx_bf16": False}, {"amx_bf16": True}, {"bf16": True}])
def test_bf16_is_measured_where_the_processor_has_its_products(
    instructions: dict[str, bool], tmp_path: Path, measured: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: instructions)
    precision, machine = measure(tmp_path, "precision=auto")
    assert machine
    if any(instructions[name] for name in instructions if "bf16" in name):
        assert (precision, machine.measured, measured) == ("bf16", {"fp32": 10, "bf16": 20}, [["fp32", "bf16"]])
    else:
        assert (precision, machine.measured, measured) == ("fp32", {"fp32": 10, "bf16": 0}, [["fp32"]])
    # It was chosen, and stays.
    assert measure(tmp_path, "precision=auto") == (precision, machine)
    assert len(measured) == 1


def test_a_configured_precision_is_not_measured_for_other_machines(tmp_path: Path, measured: list[list[str]]) -> None:
    # A damaged file of an earlier measurement is no obstacle.
    (tmp_path / "machine.json").write_text("{")
    assert measure(tmp_path, "precision=bf16", "launcher=slurm") == ("bf16", None)
    assert measured == []
    assert measure(tmp_path, "launcher=slurm")[0] == "bf16"
    assert measured == [["fp32", "bf16"]]


@pytest.mark.slow
def test_prepare_measures_every_model_with_all_workers(texts: Path, tmp_path: Path) -> None:
    words = small_words(
        texts, tmp_path, "precision=auto", "launcher.workers=2", without=("precision", "launcher.workers")
    )
    assert run(["prepare", *words]) == 0
    machine = Machine.read(Study(tmp_path / "studies" / "small"))
    assert machine is not None
    assert set(machine.speeds) == {"qwen2-0.05m", "qwen2-0.15m"}
    # Of the target, by precision; its speed is the faster one.
    assert set(machine.measured) == {"fp32", "bf16"}
    assert (
        machine.speeds["qwen2-0.15m"].training == machine.measured[machine.precision] == max(machine.measured.values())
    )
    # A forward pass is a part of a step.
    assert all(speed.evaluation > speed.training for speed in machine.speeds.values())
