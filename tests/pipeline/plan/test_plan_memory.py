"""Memory and GPU-hours of a plan, the GPUs of a machine, and what does not fit."""

import dataclasses
import os
import re
from pathlib import Path

import pytest
from rich.console import Console

from pipeline.goals.registry import read_question
from pipeline.launch.launcher import launch
from pipeline.launch.local import train_locally
from pipeline.plan.cost import _least_step_seconds, costs, gpu_note
from pipeline.plan.memory import all_fit, check_memory, fitted_run, memory_lines
from pipeline.plan.processes import MEMORY, free_gpus, gpus, process_memory, runs_on_device, visible_gpus, workers
from pipeline.plan.runs import estimate, planned_runs
from pipeline.question.messages import ConfigError
from pipeline.question.schema import Question
from pipeline.show.tables import cost_table
from pipeline.study.artifacts import Machine
from pipeline.study.context import Context
from pipeline.study.folder import PlannedRun, Study
from tests.pipeline.plan.test_plan_time import ONE_MODEL, planned

LARGE = ["experiment=own", "model=qwen2.5-1.5b", "ladder=[]", "mixture.domain_ratio=[0.5]", "precision=bf16"]
LARGE += ["sequence_length=2048", "target.global_batch=32", "pretrain.global_batch=32", "evaluation_budget=1"]
SLURM = ["launcher=slurm", "launcher.slurm.gpus=8"]
LISTING = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5c89)
  MIG 3g.20gb     Device  0: (UUID: MIG-c6d4)
  MIG 1g.5gb      Device  1: (UUID: MIG-0a11)
GPU 1: An odd GPU 7 (UUID: GPU-77aa)
GPU 2: NVIDIA H100 80GB HBM3 (UUID: GPU-9b00)
"""


@pytest.fixture(autouse=True)
def forget_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    visible_gpus.cache_clear()
    monkeypatch.delenv(MEMORY, raising=False)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose nvidia-smi lists two GPUs, and two slices of a third."""
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    memory = "40960\\n24576\\n81559\\n"
    program.write_text(f"#!/bin/sh\ncase $1 in -L) printf '{LISTING}';; *) printf '{memory}';; esac\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ["MIG-c6d4", "MIG-0a11", "1", "2"]),
        ("", []),
        ("-1", []),
        ("2, 1", ["2", "1"]),
        ("1,-1,2", ["1"]),
        ("GPU-9b", ["GPU-9b"]),
        ("MIG-0a11,GPU-77aa", ["MIG-0a11", "GPU-77aa"]),
        ("1,7,2", ["1"]),
    ],
)
def test_gpus_are_those_that_cuda_would_see(machine, visible, expected, monkeypatch) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpus() == expected


def test_two_studies_take_different_gpus(machine, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    every = [["MIG-c6d4"], ["MIG-0a11"], ["1"], ["2"]]
    with free_gpus(1, 2) as first, free_gpus(1, 9) as second:
        assert (first, second) == (every[:2], every[2:])
        # Where none is left all are shared.
        with free_gpus(2, 1) as pair:
            assert pair == [["MIG-c6d4", "MIG-0a11"], ["1", "2"]]
    with free_gpus(1, 1) as first, free_gpus(2, 1) as pair:
        assert (first, pair) == (every[:1], [["1", "2"]])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-9b")
    visible_gpus.cache_clear()
    with free_gpus(1, 1) as first, free_gpus(1, 1) as second:
        assert first == second == [["GPU-9b"]]


def test_memory_is_that_of_the_smallest_gpu_shared_by_the_runs_on_it(machine, monkeypatch) -> None:
    assert [gpu.memory for gpu in visible_gpus()] == [20e9, 5e9, 24576 * 2**20, 81559 * 2**20]
    question = read_question([*LARGE, "launcher.workers=8"])
    assert process_memory(question) == 2.5e9
    assert process_memory(read_question([*LARGE, "launcher.workers=8", "launcher.device_memory=30"])) == 15e9
    assert (workers(question), runs_on_device(question)) == (8, 2)
    question = read_question([*LARGE, "launcher.runs_per_device=3"])
    assert (workers(question), runs_on_device(question)) == (12, 3)
    question = read_question([*LARGE, "launcher.workers=8"])
    # Of Slurm's nodes nothing is known here, and a worker knows what its command has found.
    assert process_memory(read_question([*LARGE, *SLURM]), here=False) is None
    monkeypatch.setenv(MEMORY, "7e9")
    assert process_memory(question) == 7e9


def _large(*words: str) -> tuple[Question, list[PlannedRun]]:
    question = read_question([*LARGE, *words])
    return question, planned_runs(estimate(question, "bf16"))


def test_a_plan_says_what_is_done_to_fit_and_what_to_do_where_nothing_is() -> None:
    question, runs = _large(*SLURM)
    (line,) = memory_lines(question, runs)
    assert "GB a process in micro-batches of 32; give launcher.device_memory" in line
    assert fitted_run(question, runs[0].spec).micro_batch == 32
    question, runs = _large(*SLURM, "launcher.device_memory=80")
    (line,) = memory_lines(question, runs)
    assert line.startswith("qwen2.5-1.5b: micro-batches of 8 of 32: ")
    assert line.endswith(", to fit in 80.0 GB")
    check_memory(question, runs)
    question, runs = _large(*SLURM, "launcher.device_memory=24")
    with pytest.raises(ConfigError) as caught:
        check_memory(question, runs)
    (line,) = caught.value.lines
    assert line.startswith("launcher.device_memory: 24.0 GB a process is too little for qwen2.5-1.5b: micro-batches of")
    assert "; give parallel=fsdp2 parallel.processes=2 (" in line
    check_memory(*_large(*SLURM, "launcher.device_memory=24", "parallel=fsdp2", "parallel.processes=2"))
    with pytest.raises(ConfigError, match=r": 20\.0 GB a process is too little .*; give launcher\.runs_per_device=2$"):
        check_memory(*_large(*SLURM, "launcher.device_memory=80", "launcher.runs_per_device=4"))


@pytest.mark.parametrize(
    ("memory", "remedy"),
    [(60, "give launcher.workers=1"), (30, "give a smaller model, or more memory: shorter sequences")],
)
def test_what_is_proposed_fits(memory: int, remedy: str) -> None:
    """On CPUs, where no kind of sharding is proposed: 48 GB a process."""
    words = f"launcher.device_memory={memory}", "launcher.workers=2"
    question, runs = _large(*words)
    assert not all_fit(question, runs)
    (line,) = memory_lines(question, runs)
    assert f"; {remedy}" in line
    assert all_fit(*_large(*words, "launcher.workers=1")) == (memory == 60)


def test_memory_that_was_not_given_is_named_as_this_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.plan.processes._main_memory", lambda: 30e9)
    (line,) = memory_lines(*_large())
    assert line.startswith("memory of this machine: 15.0 GB a process is too little for qwen2.5-1.5b: ")


def test_nothing_is_trained_that_does_not_fit(tmp_path: Path) -> None:
    question, study, plan = planned(tmp_path, *ONE_MODEL, "launcher.device_memory=0.9")
    study.write_plan(plan)
    with pytest.raises(ConfigError, match=r"launcher.device_memory: 0\.5 GB a process is too little for qwen2-0\.05m"):
        launch(Context(question, study), Console())
    assert not study.runs.exists()


def test_more_processes_than_gpus_are_refused(machine, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")
    question, study, plan = planned(tmp_path, *ONE_MODEL, "parallel=ddp", "parallel.processes=4")
    study.write_plan(plan)
    with pytest.raises(ConfigError, match=r"parallel.processes: 4, but 2 GPUs are visible; allowed: 1 to 2,"):
        train_locally(study, question, Console())


def test_gpu_hours_of_a_known_speed_are_shared_by_the_runs_of_a_gpu(tmp_path: Path, monkeypatch) -> None:
    speeds = dict.fromkeys(["qwen2-0.7m"], 1000)
    monkeypatch.setattr(Context, "machine", Machine("bf16", speeds, {"fp32": 0, "bf16": 0}, "H100"))

    def times(*words: str) -> tuple[list[str], str]:
        question, runs = _large("model=qwen2-0.7m", *SLURM, *words)
        table = cost_table(Context(question, Study(tmp_path)), runs)
        return [str(row[6]) for row in table.rows], table.note

    alone, _ = times()
    shared, note = times("launcher.runs_per_device=4")
    hours = [[float(cell.removesuffix(" GPU-h")) for cell in cells] for cells in (alone, shared)]
    assert [one / other for one, other in zip(*hours, strict=True)] == pytest.approx([4.0] * len(alone), rel=0.1)
    timed = "at the speed of runs that are done or that prepare measured on H100, 4 at once on a GPU"
    assert f". Time: one run after the other, without starts, {timed}. Memory" in note
    # A job of one run holds all eight GPUs; side by side, three of them work once the pre-training is done.
    ratios = "mixture.domain_ratio=[0.2,0.5,0.8]"
    (cells, note), (_, side_by_side) = times(ratios), times(ratios, "launcher.runs_per_device=1")
    used = float(cells[-1].removesuffix(" GPU-h"))
    whole, packed = (float(re.findall(r"The jobs hold about ([\d.]+) GPU-h", one)[0]) for one in (note, side_by_side))
    assert whole == pytest.approx(8 * used, rel=0.05)
    assert used < packed < 0.9 * whole
    assert "The jobs hold" not in times("launcher.slurm.gpus=1")[1]
    # What CPUs did in another precision says nothing.
    monkeypatch.setattr(Context, "machine", Machine("fp32", speeds, {"fp32": 0, "bf16": 0}, "a CPU"))
    cells, note = times("precision=bf16")
    assert {*cells} == {"?"}
    assert "Time: one run after the other, without starts. Memory" in note
    assert note.endswith("?: the speed is not known; the first runs do, launcher.device=H100 or another GPU assumes it")


def test_large_models_in_jobs_without_gpus_are_noted() -> None:
    def note(*words: str) -> str:
        question, runs = _large("launcher=slurm", *words)
        return gpu_note(runs, question)

    asked = "launcher.slurm.gpus=1 asks for one, launcher.slurm.gpus=0 for none"
    each = "each run of qwen2.5-0.5b trains on 3 cores"
    assert note("model=qwen2.5-0.5b", "launcher.slurm.cpus=3") == f"note: no GPUs are asked for, {each}; {asked}"
    assert not note("model=qwen2-0.7m")
    for word in ("launcher.slurm.gpus=1", "launcher.slurm.gpus=0", "launcher.slurm.extra=['--gres=gpu:1']"):
        assert not note("model=qwen2.5-0.5b", word)
    assert not note("model=qwen2.5-0.5b", "launcher=local")


def test_gpus_of_a_job_that_no_process_uses_are_noted() -> None:
    def note(*words: str) -> str:
        question, runs = _large("launcher=slurm", *words)
        return gpu_note(runs, question)

    ways = "give fewer, launcher.runs_per_device=1 for a run on each, or parallel=ddp parallel.processes=8"
    idle = f"note: launcher.slurm.gpus=8: a job trains one run, of 1 process, and 7 of its GPUs do nothing; {ways}"
    assert note("launcher.slurm.gpus=8") == idle
    of_20 = note("launcher.slurm.gpus=8", "pretrain.global_batch=20", "target.global_batch=20")
    assert of_20.endswith("or parallel=ddp parallel.processes=5 (the most up to 8 that divides each batch)")
    assert note("launcher.slurm.gpus=8", "pretrain.global_batch=11").endswith(
        "launcher.runs_per_device=1 for a run on each"
    )
    question, runs = _large("launcher=slurm", "launcher.slurm.gpus=8", "launcher.runs_per_device=2")
    given = "launcher.slurm.gpus=8 launcher.runs_per_device=2"
    few = f"note: {given}: for 3 runs at least 6 of a job's GPUs do nothing; 2 would do"
    assert gpu_note((runs * 2)[:3], question) == few
    assert not gpu_note((runs * 16)[:15], question)
    assert not note("launcher.slurm.gpus=8", "parallel=ddp", "parallel.processes=8", "pretrain.global_batch=8")


def test_a_plan_in_fp32_on_gpus_says_that_it_is_one() -> None:
    def note(*words: str) -> str:
        question, runs = _large(*words)
        return gpu_note(runs, question)

    for where in (["launcher.device=H100"], ["launcher=slurm", "launcher.slurm.gpus=1"]):
        assert note("precision=fp32", *where).startswith("note: precision=fp32: a plan in fp32 on GPUs, without TF32, ")
        assert not note("precision=bf16", *where)
        assert not note("precision=auto", *where)
    assert not note("precision=fp32")


def test_the_cost_of_rounds_so_far_is_not_that_of_all(tmp_path: Path) -> None:
    question, study, plan = planned(tmp_path, *ONE_MODEL)
    assert cost_table(Context(question, study), plan).title == ""
    in_rounds = read_question(["experiment=quickstart", "ladder=[]", "mixture=chosen"])
    assert cost_table(Context(in_rounds, study), plan).title == "the runs that are chosen so far"


def test_gpu_hours_are_assumed_where_no_speed_is_known(tmp_path: Path) -> None:
    fast, slow = (
        [each.assumed_seconds or 0.0 for each in costs(runs, None, question)]
        for question, runs in (_large(*SLURM, f"launcher.device={name}") for name in ("H100", "A100"))
    )
    assert [one / other for one, other in zip(slow, fast, strict=True)] == pytest.approx([989 / 312] * len(fast))
    # A peak in fp32 is not known.
    for unknown in (SLURM, [*SLURM, "launcher.device=H100", "precision=fp32"]):
        assert {each.assumed_seconds for each in costs(_large(*unknown)[1], None, _large(*unknown)[0])} == {None}
    # Of small models the graph of a step takes the time, .45 ms a layer, or the core that launches its operations.
    small = "model=qwen2-0.7m", "pretrain.global_batch=8", *SLURM, "launcher.device=H100"
    question, runs = _large(*small)
    pretrain = runs[0].spec
    least = "40% of the peak of H100, a layer and micro-batch at least 0.45 ms as a CUDA graph, else 3 ms"
    assert f". *: assumed, {least}" in cost_table(Context(question, Study(tmp_path)), runs).note
    assert costs(runs, None, question)[0].assumed_seconds == pytest.approx(pretrain.steps * 4 * 4.5e-4)
    # In each micro-batch; runs that share a GPU replay one after another.
    question.launcher.micro_batch, question.launcher.runs_per_device = pretrain.global_batch // 4, 4
    assert costs(runs, None, question)[0].assumed_seconds == pytest.approx(pretrain.steps * 4 * 4 * 4.5e-4)
    # By any name of the number of layers; what is not replayed is launched side by side.
    model = {("n_layers" if key == "num_hidden_layers" else key): value for key, value in pretrain.model.items()}
    other = dataclasses.replace(pretrain, model=model)
    assert _least_step_seconds(other, question) == pytest.approx(4 * 4 * 3e-3 / 4)
    question, runs = _large(*small, "parallel=ddp", "parallel.processes=2")
    assert costs(runs, None, question)[0].assumed_seconds == pytest.approx(pretrain.steps * 4 * 3e-3)
    with pytest.raises(ConfigError, match=r"launcher.device: 'Tesla T4'; allowed: a name with one of B300, "):
        _large(*SLURM, "launcher.device=Tesla T4")
