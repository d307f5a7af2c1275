"""The time that plan prints, from the speeds that prepare measures and those that runs have had."""

import dataclasses
import json
import os
import signal
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from pipeline.cli.main import run
from pipeline.goals.active.candidates import asked_run
from pipeline.goals.ratio.asked import asked_lines
from pipeline.goals.registry import read_question
from pipeline.plan.cost import START_SECONDS, costs, run_seconds
from pipeline.plan.duration import speed_of, wall_seconds, whose_speed
from pipeline.plan.machine import measured_machine
from pipeline.plan.processes import Gpu
from pipeline.plan.runs import estimate, planned_runs
from pipeline.question.messages import ConfigError
from pipeline.question.schema import Question
from pipeline.show.tables import cost_table
from pipeline.study.artifacts import Machine
from pipeline.study.context import Context
from pipeline.study.folder import PlannedRun, Study, StudyError, question_yaml
from pipeline.study.number_format import cost_in, duration
from tests.pipeline.small import small_words
from training.engines import choose_engine
from training.evaluation_steps import evaluation_steps
from training.spec import Execution, Parallel
from training.stop import started_quietly

WORDS = ["experiment=quickstart", "mixture=ratios", "ladder=[qwen2-0.05m,qwen2-0.15m]"]


SPEEDS = {"qwen2-0.05m": 1000, "qwen2-0.15m": 100}


def planned(folder: Path, *words: str, speeds: Mapping[str, int] = SPEEDS) -> tuple[Question, Study, list[PlannedRun]]:
    """A question, its study with measured speeds, and its runs."""
    question, study = read_question([*WORDS, *words]), Study(folder)
    Machine("bf16", dict(speeds), {}, "a processor").write(study)
    return question, study, planned_runs(estimate(question, "bf16"))


def test_each_model_takes_the_time_of_its_own_speed(tmp_path: Path) -> None:
    question, study, plan = planned(tmp_path, "engine=eager")
    rows = costs(plan, speed_of(Context(question, study), plan), question)
    times = {row.model: row.seconds for row in rows if row.role == "fit"}
    for model, speed in SPEEDS.items():
        fitted = [run.spec for run in plan if run.role == "fit" and run.model == model]
        validation = sum(len(evaluation_steps(spec.evaluation, spec.steps)) for spec in fitted) * 2 * 64 * 128
        trained = sum(spec.tokens for spec in fitted)
        assert times[model] == pytest.approx((trained + validation / 3) / speed)
    # The target's speed is not known, so neither is its time, nor that of the whole.
    assert [row.seconds for row in rows if row.model == "qwen2-0.7m"] == [None]
    assert wall_seconds(Context(question, study), plan) is None


def test_runs_that_are_done_say_how_fast_others_of_their_shape_are(tmp_path: Path) -> None:
    question, study, plan = planned(tmp_path, "engine=eager")
    small = [planned for planned in plan if planned.model == "qwen2-0.05m"]
    for one, seconds in zip(small, ([20.0, 30.0], [50.0], [1.0])):
        folder = study.runs / one.name
        folder.mkdir(parents=True)
        (folder / "metrics.jsonl").write_text("".join(json.dumps({"seconds": each}) + "\n" for each in seconds))
        # The third is not done, and counts for nothing.
        (folder / ("DONE" if one is not small[2] else "other")).touch()
    speed = speed_of(Context(question, study), plan)
    assert speed(small[3]) == speed(small[0])
    assert sum(run_seconds(one.spec, speed(one)) or 0.0 for one in small[:2]) == pytest.approx(100.0, rel=1e-3)
    assert speed(next(planned for planned in plan if planned.model == "qwen2-0.15m")) == 100


def test_the_times_of_a_plan_are_by_one_speed(tmp_path: Path) -> None:
    words = ["mixture.replicates=1", "target.steps=600", "design.budget_unit=device-hours"]
    question, study, plan = planned(tmp_path, *ONE_MODEL, "engine=eager", *words)
    context = dataclasses.replace(estimate(question, "bf16"), study=study, given_machine=None)
    asked, of_fit = asked_run(context), [run for run in plan if run.role == "fit"]
    own = costs(of_fit, lambda run: 1000.0, question)[0].seconds or 0.0
    for faster, whose in ((1, "that prepare measured"), (4, "of runs that are done")):
        if faster > 1:
            folder = study.runs / of_fit[0].name
            folder.mkdir(parents=True)
            (folder / "metrics.jsonl").write_text(json.dumps({"seconds": own / len(of_fit) / faster}) + "\n")
            (folder / "DONE").touch()
        first, cost, together, *_ = asked_lines(context, plan)
        assert whose_speed(context, plan) == whose
        took = START_SECONDS + (run_seconds(asked.spec, 1000.0 * faster) or 0.0)
        assert first.endswith(f", {duration(took)} on one worker, with its start")
        # Three equal runs on two workers take the time of two.
        wall = duration(START_SECONDS + 2 * own / len(of_fit) / faster)
        assert f", by device-hours, {wall} on 2 workers at the speed {whose}, beside the pre-training" in cost
        table = cost_table(context, plan)
        assert f"its runs, without starts, over 2 workers of 1 thread, at the speed {whose}; all: " in table.note
        assert duration(own / 2 / faster) in table.rows[1]
        parent = run_seconds(plan[0].spec, 1000.0 * faster) or 0.0
        hours = (own / faster + parent + 4 * START_SECONDS + 2 * took) / 3600
        assert together.endswith(f" that run, {cost_in('device-hours', hours)} device-hours")
    unknown = dataclasses.replace(estimate(question, "bf16"), study=Study(tmp_path / "another"), given_machine=None)
    assert " of 1 thread; all: a simulated end" in cost_table(unknown, plan).note


def test_the_runs_of_a_shape_choose_its_engine_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/g++")
    spec, auto, sharded = dataclasses.replace(planned(tmp_path, *ONE_MODEL)[2][0].spec, steps=1), Execution(), "fsdp2"
    # Compiling takes longer than a run of some seconds. Of this shape 1e7 tokens are some 200 s of a thread.
    assert choose_engine(spec, auto) == "eager"
    assert choose_engine(spec, auto, 10**7) == "eager-compiled"
    assert choose_engine(spec, Execution(threads=2), 10**7) == "eager"
    # A run that is resumed goes on as it began, unless several processes share the model by now.
    assert choose_engine(spec, auto, 10**7, begun="eager") == "eager"
    two = Execution(parallel=Parallel(sharded, 2))
    assert choose_engine(spec, two, 10**7, begun="eager-compiled") == "eager"
    # Without a compiler, or of sharded models, nothing is compiled.
    assert choose_engine(dataclasses.replace(spec, sequence_length=1024), two, 10**7) == "sdpa"
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert choose_engine(spec, auto, 10**7) == "eager"


ONE_MODEL = ["ladder=[]", "model=qwen2-0.05m", "mixture.domain_ratio=[0.25,0.5,1]", "launcher.workers=2"]


def test_two_workers_wait_for_the_pre_training_and_share_the_rest(tmp_path: Path) -> None:
    question, study, plan = planned(tmp_path, *ONE_MODEL, "engine=eager", "mixture.replicates=1")
    speed = speed_of(Context(question, study), plan)
    seconds = {run.name: run_seconds(run.spec, speed(run)) or 0.0 for run in plan}
    (pretraining,) = (seconds[run.name] for run in plan if run.role == "pretrain")
    continual = [seconds[run.name] for run in plan if run.role == "fit"]
    assert len(continual) == 3
    # Three equal runs on two workers take the time of two.
    assert wall_seconds(Context(question, study), plan) == pytest.approx(
        START_SECONDS + pretraining + 2 * max(continual)
    )


@pytest.mark.usefixtures("elsewhere")
def test_a_speed_counts_for_runs_of_its_precision(tmp_path: Path) -> None:
    question, study, plan = planned(tmp_path, *ONE_MODEL)
    other = planned_runs(estimate(question))
    assert [speed_of(Context(question, study), runs)(runs[0]) is None for runs in (plan, other)] == [False, True]
    assert wall_seconds(Context(question, study), other) is None


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each precision was measured; bf16 has twice the speed of fp32."""
    asked = Counter[str]()

    def process_speed(*arguments: object) -> float:
        asked[precision := str(arguments[-1])] += 1
        return {"fp32": 10.2, "bf16": 20.0}[precision]

    monkeypatch.setattr("pipeline.plan.machine._process_speed", process_speed)
    monkeypatch.setattr("training.devices.processor.fast_precisions", lambda: ["fp32", "bf16"])
    return asked


def measure(folder: Path, *words: str) -> tuple[str, Machine | None]:
    """The precision that prepare finds for a study in a folder, and what it measured, in this process alone."""
    question, study = read_question([*WORDS, "launcher.workers=1", *words]), Study(folder)
    if machine := measured_machine(dataclasses.replace(estimate(question), study=study, given_precision=None), str):
        machine.write(study)
    context = Context(question, study)
    return context.precision, context.machine


def test_on_a_gpu_the_precision_is_chosen_and_no_speed_measured(tmp_path, measured: Counter[str], monkeypatch) -> None:
    monkeypatch.setattr("pipeline.plan.processes.visible_gpus", lambda: [Gpu("0", name="NVIDIA H200")])
    # What was measured is the plain engine, half as fast as the compiled one, which is what trains.
    assert measure(tmp_path, "precision=fp32") == ("fp32", None)
    precision, machine = measure(tmp_path, "precision=auto")
    assert (precision, machine and machine.speeds, machine and machine.chose_precision) == ("bf16", {}, True)
    assert measured == {}


def test_prepare_measures_a_configured_precision_alone(tmp_path: Path, measured: Counter[str]) -> None:
    precision, machine = measure(tmp_path, "precision=fp32")
    assert (precision, machine and machine.measured) == ("fp32", {"fp32": 10})
    assert machine is not None
    assert machine.speeds == dict.fromkeys(["qwen2-0.05m", "qwen2-0.15m", "qwen2-0.7m"], 10)
    assert measure(tmp_path, "precision=fp32") == (precision, machine)
    assert measured == {"fp32": 3}
    # It was not chosen: auto has yet to choose.
    question = read_question([*WORDS, "precision=auto"])
    assert Context(question, Study(tmp_path)).known_precision is None
    for first in ("give these words to cptlaw prepare", f"run cptlaw prepare {tmp_path}"):
        with pytest.raises(StudyError, match=f"of one precision, and precision=auto; {first} first"):
            _ = Context(question, Study(tmp_path)).precision
        (tmp_path / "study.yaml").touch()
    precision, machine = measure(tmp_path, "precision=auto")
    assert (precision, machine and machine.measured) == ("bf16", {"fp32": 10, "bf16": 20})
    # What was chosen stays.
    assert measure(tmp_path, "precision=fp32") == ("fp32", machine)
    assert measure(tmp_path, "precision=auto") == ("bf16", machine)
    assert measured == {"fp32": 4, "bf16": 3}


def test_models_that_are_new_are_measured_in_the_precision_of_the_study(tmp_path, measured: Counter[str]) -> None:
    few, all_models = [*ONE_MODEL[:2], "precision=auto"], ["precision=auto"]
    assert measure(tmp_path, *few)[0] == "bf16"
    assert measured == {"fp32": 1, "bf16": 1}
    precision, machine = measure(tmp_path, *all_models)
    assert (precision, machine and machine.measured) == ("bf16", {"fp32": 10, "bf16": 20})
    assert machine is not None
    assert machine.speeds == dict.fromkeys(["qwen2-0.05m", "qwen2-0.15m", "qwen2-0.7m"], 20)
    assert measured == {"fp32": 1, "bf16": 3}
    assert measure(tmp_path, *few) == measure(tmp_path, *all_models) == (precision, machine)
    assert measured == {"fp32": 1, "bf16": 3}


def test_a_machine_is_measured_again_where_that_is_asked_for(tmp_path, measured: Counter[str]) -> None:
    words = [*ONE_MODEL[:2], "precision=auto"]
    assert measure(tmp_path, *words)[0] == "bf16"
    assert measure(tmp_path, *words, "remeasure=true")[0] == "bf16"
    assert measured == {"fp32": 1, "bf16": 2}
    assert "remeasure: false" in question_yaml(read_question([*WORDS, "remeasure=true"]))


def killed(*_: object) -> float:
    """In place of `measured_speed`, in a process of its own: what happens when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


@pytest.mark.parametrize(
    ("words", "counted"), [(["launcher.device_memory=0.001"], 0), pytest.param([], 1, marks=pytest.mark.slow)]
)
@pytest.mark.usefixtures("own_speed")
def test_a_model_that_memory_does_not_hold_has_no_speed(words: list[str], counted: int, tmp_path, monkeypatch) -> None:
    started: list[int] = []
    monkeypatch.setattr("training.timing.measured_speed", killed)
    monkeypatch.setattr("pipeline.plan.machine.started_quietly", lambda: started.append(1) or started_quietly())
    precision, machine = measure(tmp_path, *ONE_MODEL[:2], "precision=fp32", *words)
    assert machine is not None
    assert (precision, machine.speeds, machine.measured) == ("fp32", {"qwen2-0.05m": None}, {"fp32": 0})
    assert len(started) == counted
    # It is not measured again, unless that is asked for.
    assert measure(tmp_path, *ONE_MODEL[:2], "precision=fp32", *words) == (precision, machine)
    assert len(started) == counted


@pytest.mark.parametrize(("busy", "dry", "count"), [(80.0, False, 1), (80.0, True, 1), (20.0, False, 0)])
def test_a_busy_machine_is_said(
    busy: float, dry: bool, count: int, tmp_path, measured: Counter[str], monkeypatch
) -> None:
    monkeypatch.setattr("pipeline.plan.machine.psutil.cpu_percent", lambda seconds: busy)
    lines: list[str] = []
    question = read_question([*WORDS, *ONE_MODEL[:2], "launcher.workers=1"])
    context = estimate(dataclasses.replace(question, dry_run=dry))
    measured_machine(dataclasses.replace(context, study=Study(tmp_path), given_precision=None), lines.append)
    assert sum(line.startswith("other processes use 80% of the cores, so speeds are ") for line in lines) == count
    # A dry run keeps no precision.
    kept = sum("; the precision, on which losses depend, is chosen by these speeds and stays" in line for line in lines)
    assert kept == count * (not dry)


@pytest.mark.parametrize(("fp32", "bf16", "chosen"), [(30.0, 20.0, "fp32"), (30.0, 0.0, "bf16"), (0.0, 0.0, "bf16")])
def test_two_measured_speeds_overrule_what_the_processor_has(
    fp32: float, bf16: float, chosen: str, tmp_path: Path, measured: Counter[str], monkeypatch
) -> None:
    speeds = {"fp32": fp32, "bf16": bf16}
    monkeypatch.setattr("pipeline.plan.machine._process_speed", lambda *arguments: speeds[arguments[-1]])
    precision, machine = measure(tmp_path, "precision=auto")
    assert machine
    assert (precision, machine.measured) == (chosen, {name: round(speed) for name, speed in speeds.items()})
    speed = 30 if chosen == "fp32" else None
    assert machine.speeds == dict.fromkeys(["qwen2-0.05m", "qwen2-0.15m", "qwen2-0.7m"], speed)


def test_bf16_is_not_measured_where_the_processor_lacks_its_products(tmp_path, measured, monkeypatch) -> None:
    monkeypatch.setattr("training.devices.processor.fast_precisions", lambda: ["fp32"])
    precision, machine = measure(tmp_path, "precision=auto")
    assert (precision, machine and machine.measured) == ("fp32", {"fp32": 10, "bf16": 0})
    # It was chosen, and stays.
    assert measure(tmp_path, "precision=auto") == (precision, machine)
    assert measured == {"fp32": 3}


def test_a_machine_that_submits_chooses_no_precision(tmp_path: Path, measured: Counter[str], monkeypatch) -> None:
    # A damaged file of an earlier measurement is no obstacle.
    (tmp_path / "machine.json").write_text("{")
    assert measure(tmp_path, "precision=bf16", "launcher=slurm") == ("bf16", None)
    assert not measured
    assert measure(tmp_path, "launcher=slurm", "launcher.slurm.gpus=1") == ("bf16", None)
    with pytest.raises(ConfigError, match=r"precision: auto with launcher=slurm .* allowed: fp32, bf16 if .* srun"):
        measure(tmp_path, "launcher=slurm")
    assert not measured
    monkeypatch.setenv("SLURMD_NODENAME", "node-1")
    assert measure(tmp_path, "launcher=slurm")[0] == "bf16"
    assert measured == {"fp32": 1, "bf16": 3}


@pytest.mark.slow
@pytest.mark.usefixtures("own_speed")
def test_prepare_measures_every_model_in_as_many_processes_as_workers(texts: Path, tmp_path: Path) -> None:
    words = small_words(
        texts, tmp_path, "precision=auto", "launcher.workers=2", without=("precision", "launcher.workers")
    )
    assert run(["prepare", *words]) == 0
    machine = Machine.read(Study(tmp_path / "studies" / "small"))
    assert machine is not None
    assert set(machine.speeds) == {"qwen2-0.05m", "qwen2-0.15m"}
    # Of the target, by precision; its speed is the faster one.
    assert set(machine.measured) == {"fp32", "bf16"}
    speed = machine.speeds["qwen2-0.15m"]
    assert speed
    assert speed == machine.measured[machine.precision] == max(machine.measured.values())
    assert all(machine.speeds.values())
