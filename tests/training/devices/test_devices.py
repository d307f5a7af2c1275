"""Two processes on the processor: every kind gives the losses of one, goes on from a state of one, and saves the same
directory. One pair of processes does all of it, since each start would cost seconds."""

import dataclasses
import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.tensor import DTensor

from tests.training.runs import all_done, begin_from, diverging, in_process, masked, points_of, together, train_run
from training.attempt import LeaseLostError, attempts
from training.corpora.manifest import Manifest
from training.devices.group import ALONE, Group, Parallel, join, leave
from training.devices.placement import place_model
from training.durable import read_lines_whole
from training.engines import build_engine
from training.model import build_model
from training.run import Exit
from training.spec import RunSpec

# Starting the processes is most of it: half a minute.
pytestmark = pytest.mark.slow

KINDS = ("ddp", "fsdp2", "zero1", "zero2", "zero3")
STEPS = 30
DEEPSPEED = {"zero_optimization": {"overlap_comm": True, "contiguous_gradients": True}}
START = 20
"""Step of the single process's state from which others go on."""


def _run(group: Group, spec: RunSpec, folder: Path, manifest: Path, kind: str, **options: object) -> object:
    settings = {"resume_every": 0, "metrics_every": 1, **options}
    checkpointing = bool(settings.pop("activation_checkpointing", False))
    parallel = Parallel(kind, group.count, checkpointing, timeout=60.0, deepspeed=DEEPSPEED)
    try:
        return train_run(spec, folder, manifest, group=group, parallel=parallel, **settings)
    except LeaseLostError as error:
        return str(error)


def _alone(jobs: list[tuple[RunSpec, Path, Path | None]], manifest: Path) -> None:
    for spec, folder, start in jobs:
        if start is not None:
            begin_from(start, START, folder)
        assert _run(ALONE, spec, folder, manifest, "single", kept_states=(START,)) == Exit.DONE


def _all_jobs(rank: int, spec: RunSpec, base: Path, manifest: Path) -> None:
    group = join(Parallel("ddp", 2, timeout=60.0))
    outcomes = {}
    half = dataclasses.replace(spec, precision="bf16")
    for kind in KINDS:
        outcomes[kind] = _run(group, spec, base / kind, manifest, kind)
    for kind in KINDS:
        parts = {"activation_checkpointing": True, "micro_batch": 1}
        for name, of, options in (("parts", spec, parts), ("bf16", half, {})):
            folder = base / f"{name}-{kind}"
            group.broadcast(begin_from, base / "single", START, folder)
            outcomes[folder.name] = _run(group, of, folder, manifest, kind, **options)
    bert = masked(half, Manifest.open(manifest), steps=15)
    outcomes["bert-fsdp2"] = _run(group, bert, base / "bert-fsdp2", manifest, "fsdp2", micro_batch=1)
    (base / f"precisions-{rank}.json").write_text(json.dumps(_precisions(group, half)))
    (base / f"moved-{rank}.json").write_text(json.dumps({kind: _moved(group, spec, kind) for kind in KINDS}))
    outcomes["wild"] = _run(group, diverging(spec), base / "wild", manifest, "ddp")
    if rank == 1:
        _when(base / "stopped" / "points.jsonl", lambda: os.kill(os.getpid(), signal.SIGTERM))
    outcomes["stopped"] = _run(group, spec, base / "stopped", manifest, "ddp")
    outcomes["resumed"] = _run(group, spec, base / "stopped", manifest, "ddp")
    if rank == 0:
        lost = base / "lost" / "attempts" / "002.json"
        _when(base / "lost" / "points.jsonl", lambda: shutil.copy(lost.with_name("001.json"), lost))
    outcomes["lost"] = _run(group, spec, base / "lost", manifest, "ddp")
    leave(group)
    (base / f"outcomes-{rank}.json").write_text(json.dumps(outcomes))


def _precisions(group: Group, spec: RunSpec) -> dict[str, list[str]]:
    """Names of the dtypes that micro-batches under FSDP2 compute with and leave; their gradients are those of DDP."""
    seen: dict[str, set[torch.dtype]] = {key: set() for key in ("layer", "norm", "input", "gradient", "weight")}

    def look(layer: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        for name, weight in layer.named_parameters():
            seen["norm" if "norm" in name else "layer"].add(weight.dtype)
        seen["input"].add(inputs[0].dtype)

    gradients: list[dict[str, torch.Tensor]] = []
    for kind in ("ddp", "fsdp2"):
        network, losses = build_engine(spec, "sdpa-chunked", threads=1)
        network.load_state_dict(build_model(spec.model, "sdpa", seed=0).state_dict())
        if kind == "fsdp2":
            network.base_model.get_submodule("layers.0").register_forward_pre_hook(look)
        devices = place_model(network.train(), losses, spec, Parallel(kind, group.count), group)
        for number in range(2):
            tokens = torch.arange(17)[None] * (3 + number + group.rank) % 250
            with devices.accumulate(number == 1):
                devices.backward(devices.losses(tokens).sum())
        held = {name: parameter.grad for name, parameter in devices.parameters.items()}
        gradients.append({name: _whole(grad) for name, grad in held.items() if grad is not None})
        if kind == "fsdp2":
            seen["gradient"] = {grad.dtype for grad in gradients[1].values()}
            parameters = devices.parameters.values()
            seen["weight"] = {devices.weight(each).dtype for each in parameters}
            seen["weight"] |= {devices.piece(each).weight.dtype for each in parameters}
        devices.release()
    for name, expected in gradients[0].items():
        assert (gradients[1][name] - expected).norm() <= 1e-4 * expected.norm(), name
    return {key: sorted(str(dtype) for dtype in dtypes) for key, dtypes in seen.items()}


def _moved(group: Group, spec: RunSpec, kind: str) -> int:
    """The most weights that go to the device at once while a model is placed on it."""
    network, losses = build_engine(spec, "sdpa", threads=1)
    move, moved = torch.nn.Module.to, []

    def count(module: torch.nn.Module, *arguments: object) -> torch.nn.Module:
        moved.append(sum(parameter.numel() for parameter in module.parameters()))
        return move(module, *arguments)

    torch.nn.Module.to = count
    try:
        place_model(network.train(), losses, spec, Parallel(kind, group.count, deepspeed=DEEPSPEED), group).release()
    finally:
        torch.nn.Module.to = move
    return max(moved, default=0)


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _when(path: Path, act) -> None:
    """Act once a file is there."""

    def watch() -> None:
        while not path.exists():
            time.sleep(0.001)
        act()

    threading.Thread(target=watch, daemon=True).start()


@pytest.fixture(scope="module")
def long(spec) -> RunSpec:
    return dataclasses.replace(spec, steps=STEPS)


@pytest.fixture(scope="module")
def base(long, manifest, tmp_path_factory) -> Path:
    """A folder with a run of each kind, after the pair of processes has done its jobs."""
    folder = tmp_path_factory.mktemp("kinds")
    half = dataclasses.replace(long, precision="bf16")
    jobs = [(long, folder / "single", None), (half, folder / "bf16-single", folder / "single")]
    jobs.append((masked(half, manifest, steps=15), folder / "bert-single", None))
    assert in_process(_alone, jobs, manifest.folder) == 0
    assert all_done(together(_all_jobs, long, folder, manifest.folder))
    return folder


def _losses(folder: Path) -> list[float]:
    points = points_of(folder)
    assert [point["step"] for point in points if point["corpus"] == "code"][-1] == STEPS
    return [point["loss"] for point in points]


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_gives_the_losses_of_one_process(kind, base):
    assert _losses(base / kind) == pytest.approx(_losses(base / "single"), abs=1e-5)
    lines, alone = (read_lines_whole(base / name / "metrics.jsonl") for name in (kind, "single"))
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    for key, tolerance in (("loss", 1e-5), ("gradient_norm", 1e-4), ("learning_rate", 0)):
        assert [line[key] for line in lines] == pytest.approx([line[key] for line in alone], abs=tolerance)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_saves_the_same_directory(kind, base):
    saved, alone = (base / name / "checkpoints" / f"step-{STEPS}" for name in (kind, "single"))
    assert sorted(path.name for path in saved.iterdir()) == sorted(path.name for path in alone.iterdir())
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert (saved / name).read_bytes() == (alone / name).read_bytes()
    weights, expected = (load_file(path / "model.safetensors") for path in (saved, alone))
    assert weights.keys() == expected.keys()
    for name, tensor in expected.items():
        assert weights[name].shape == tensor.shape
        assert (weights[name] - tensor).abs().max() < 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_goes_on_from_a_state_of_one_process_in_parts_or_in_bf16(kind, base):
    end = _losses(base / "single")[-2:]
    assert _losses(base / f"parts-{kind}")[-2:] == pytest.approx(end, abs=1e-6)
    half = _losses(base / f"bf16-{kind}")[-2:]
    # Of ten steps. Of the last five of 50 ddp is 1.9e-4 off: the gradients of fsdp2 are compared with its, closely.
    assert half == pytest.approx(_losses(base / "bf16-single")[-2:], abs=2e-4 if kind == "fsdp2" else 1e-4)
    assert half != pytest.approx(end, abs=1e-6)


def test_fsdp2_trains_a_tied_model_with_layer_norms_in_bf16(base):
    ends = [[point["loss"] for point in points_of(base / f"bert-{kind}")] for kind in ("fsdp2", "single")]
    # bf16 rounds the gradients of each process, which grows in 15 steps.
    assert ends[0] == pytest.approx(ends[1], abs=1e-3)


def test_fsdp2_gathers_layers_in_bf16_and_all_else_is_fp32(base):
    half, full = ["torch.bfloat16"], ["torch.float32"]
    for rank in (0, 1):
        seen = json.loads((base / f"precisions-{rank}.json").read_text())
        assert seen == {"layer": half, "norm": full, "input": full, "gradient": full, "weight": full}


def test_all_processes_stop_together(base):
    outcomes, other = (json.loads((base / f"outcomes-{rank}.json").read_text()) for rank in (0, 1))
    assert outcomes == other
    assert outcomes["wild"] == Exit.CRASH
    assert " at step " in (base / "wild" / "FAILED").read_text()
    assert outcomes["stopped"] == Exit.RUN_ME_AGAIN
    assert attempts(base / "stopped")[0]["exit_code"] == Exit.RUN_ME_AGAIN
    assert outcomes["resumed"] == Exit.DONE
    assert _losses(base / "stopped") == pytest.approx(_losses(base / "single"), abs=1e-6)
    assert outcomes["lost"] == "lost: taken over by another process"
    assert all(outcomes[name] == Exit.DONE for name in outcomes if name not in ("wild", "stopped", "lost"))
    assert attempts(base / "zero2")[0]["parallel"] == "zero2"


@pytest.mark.parametrize("kind", KINDS)
def test_no_device_holds_a_whole_model_whose_weights_are_sharded(kind, base, spec):
    everything = sum(parameter.numel() for parameter in build_model(spec.model, "sdpa", seed=None).parameters())
    for rank in range(2):
        moved = json.loads((base / f"moved-{rank}.json").read_text())[kind]
        assert moved == (0 if kind in ("fsdp2", "zero3") else everything)
