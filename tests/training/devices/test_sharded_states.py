"""States of sharded runs: each process writes what it holds, all of them or none, and any number reads them."""

import dataclasses
import errno
import json
import os
import signal
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from tests.training.runs import all_done, begin_from, in_process, losses_of, together, train_run
from training.checkpoints import pieces, states
from training.checkpoints.folder import is_whole
from training.checkpoints.states import StateWriter
from training.devices.group import Group, Parallel, join, leave
from training.evaluation_steps import EvaluationPolicy
from training.model import build_model, kept_buffers
from training.run import Exit
from training.spec import Initial, RunSpec

pytestmark = pytest.mark.slow

KINDS = ("fsdp2", "zero1", "zero2", "zero3")
KEPT = (4, 8)
STEPS = 12
NEXT = {"fsdp2": "zero1", "zero1": "fsdp2", "zero2": "zero3", "zero3": "zero2"}
"""Which kind continues the state of which, on four processes."""


def _run(group: Group, spec: RunSpec, folder: Path, manifest: Path, kind: str, **options: object) -> Exit | None:
    options = {"resume_every": 0, "kept_states": KEPT, **options}
    parallel = Parallel(kind, group.count, replicas=options.pop("replicas", 1))
    return train_run(spec, folder, manifest, group=group, parallel=parallel, **options)


def _full_disk(group: Group, spec: RunSpec, folder: Path, manifest: Path) -> str:
    """What each process raises when the disk of the last one is full at its second state."""
    inner, calls = pieces.save_file, []

    def failing(*arguments, **options):
        calls.append(1)
        if group.rank == 1 and len(calls) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return inner(*arguments, **options)

    pieces.save_file = failing
    try:
        _run(group, spec, folder, manifest, "fsdp2")
    except OSError as error:
        return f"{error.strerror} {sorted(path.name for path in (folder / 'resume').iterdir())}"
    finally:
        pieces.save_file = inner
    return "none"


def _beside_the_loop(group: Group, folder: Path) -> None:
    """Write states in the background while the main threads speak to each other."""
    values = torch.full((1000,), float(group.rank))
    file = pieces.StateFile(f"state-{group.rank}.safetensors", {"t": values}, {"t": (1000 * group.rank, (2000,))})
    with group.apart() as writers, StateWriter(folder, 2, (0,), writers) as writer:
        for step in range(10):
            group.broadcast(writer.wait)
            writer.write(step, file)
            assert [group.maximum(group.rank) for _ in range(20)] == [1] * 20


def _with_buffers(spec: RunSpec) -> RunSpec:
    """The run with an architecture that has tensors beside its weights."""
    shape = spec.model | {"model_type": "apertus", "initializer_range": 0.3}
    return dataclasses.replace(spec, model=shape, initial=Initial("directory", fingerprint="buffers"))


def _pair(rank: int, spec: RunSpec, base: Path, manifest: Path) -> None:
    group = join(Parallel("ddp", 2, timeout=60.0))
    for kind in KINDS:
        assert _run(group, spec, base / kind, manifest, kind) == Exit.DONE
    for kind in ("fsdp2", "zero3"):
        folder = base / f"buffers-{kind}"
        assert _run(group, _with_buffers(spec), folder, manifest, kind, start=base / "buffers") == Exit.DONE
    (base / f"full-{rank}").write_text(_full_disk(group, spec, base / "full", manifest))
    assert _run(group, spec, base / "full", manifest, "fsdp2") == Exit.DONE
    _beside_the_loop(group, base / "beside")
    leave(group)


def _four(rank: int, spec: RunSpec, base: Path, manifest: Path) -> None:
    group = join(Parallel("ddp", 4, timeout=60.0))
    for kind, after in NEXT.items():
        group.broadcast(begin_from, base / kind, 4, base / f"{kind}-{after}")
        assert _run(group, spec, base / f"{kind}-{after}", manifest, after) == Exit.DONE
    group.broadcast(begin_from, base / "zero1", 4, base / "hybrid")
    assert _run(group, spec, base / "hybrid", manifest, "fsdp2", replicas=2) == Exit.DONE
    leave(group)


def _single(jobs: list[tuple[RunSpec, Path, Path | None]], manifest: Path) -> None:
    for spec, folder, start in jobs:
        assert train_run(spec, folder, manifest, start=start, resume_every=0, kept_states=KEPT) == Exit.DONE


@pytest.fixture(scope="module")
def short(spec) -> RunSpec:
    # On four processes rows are cut unevenly (30), and some hold none (2).
    shape = {"hidden_size": 12, "num_attention_heads": 6, "num_key_value_heads": 1, "intermediate_size": 30}
    evaluation = EvaluationPolicy("dense", every=2)
    return dataclasses.replace(spec, model=spec.model | shape, steps=STEPS, evaluation=evaluation)


@pytest.fixture(scope="module")
def base(short, manifest, tmp_path_factory) -> Path:
    """Runs of each kind on two processes, and on four from their states."""
    folder = tmp_path_factory.mktemp("sharded")
    other = _with_buffers(short)
    source = build_model(other.model, "eager", seed=3)
    for buffer in kept_buffers(source).values():
        buffer.add_(1)
    source.save_pretrained(folder / "buffers")
    jobs = [(short, folder / "single", None), (other, folder / "buffers-single", folder / "buffers")]
    assert in_process(_single, jobs, manifest.folder) == 0
    assert all_done(together(_pair, short, folder, manifest.folder))
    assert all_done(together(_four, short, folder, manifest.folder, count=4))
    return folder


def _numbers(file: Path) -> int:
    """How many weights a file of a state holds."""
    with safe_open(file, "pt") as state:
        names = [name for name in state.keys() if name.startswith("weight.")]  # noqa: SIM118
        return sum(state.get_tensor(name).numel() for name in names)


@pytest.mark.parametrize("kind", KINDS)
def test_a_process_saves_what_it_holds(kind, base):
    whole = _numbers(base / "single" / "resume" / "step-8" / "state.safetensors")
    for step in KEPT:
        state = base / kind / "resume" / f"step-{step}"
        files = ["state-0.safetensors", "state-1.safetensors"]
        assert sorted(path.name for path in state.iterdir()) == ["DONE", *files]
        assert sorted(json.loads((state / "DONE").read_text())) == files
        assert is_whole(state)
        numbers = [_numbers(state / file) for file in files]
        assert sum(numbers) == whole
        assert max(numbers) < 0.52 * whole


@pytest.mark.parametrize("kind", ["fsdp2", "zero3"])
def test_all_processes_have_the_buffers_of_the_first_weights(kind, base):
    run = base / f"buffers-{kind}"
    assert losses_of(run) == pytest.approx(losses_of(base / "buffers-single"), abs=1e-5)
    kept = [
        load_file(folder / "checkpoints" / f"step-{STEPS}" / "model.safetensors")
        for folder in (run, base / "buffers-single")
    ]
    assert kept[0].keys() == kept[1].keys()
    with pieces.open_tensors(run / "resume" / "step-8") as state:
        assert state.read_whole("weight.model.layers.0.mlp.act_fn.beta") == 1.5


@pytest.mark.parametrize("kind", KINDS)
def test_four_processes_of_another_kind_continue_it(kind, base):
    run = base / f"{kind}-{NEXT[kind]}"
    assert len(list((run / "resume" / "step-8").glob("state-*"))) == 4
    assert losses_of(run) == pytest.approx(losses_of(base / "single"), abs=1e-6)
    if NEXT[kind] == "fsdp2":
        with safe_open(run / "resume" / "step-8" / "state-3.safetensors", "pt") as last:
            held = {name: last.get_slice(name).get_shape() for name in last.keys()}  # noqa: SIM118
        assert not [name for name in held if "k_proj" in name]
        assert held["weight.model.layers.0.mlp.gate_proj.weight"] == [6 * 12]


def test_two_replicas_of_two_processes_train_alike_and_one_saves(base):
    saved = (base / "hybrid" / "resume" / "step-8").glob("state-*")
    assert sorted(path.name for path in saved) == ["state-0.safetensors", "state-1.safetensors"]
    assert losses_of(base / "hybrid") == pytest.approx(losses_of(base / "single"), abs=1e-6)


def test_one_process_continues_what_four_saved(short, base, manifest):
    begin_from(base / "hybrid", 8, base / "hybrid-single")
    jobs = [(short, base / "hybrid-single", None)]
    for kind, after in NEXT.items():
        begin_from(base / f"{kind}-{after}", 8, base / f"{kind}-{after}-single")
        jobs.append((short, base / f"{kind}-{after}-single", None))
    assert in_process(_single, jobs, manifest.folder) == 0
    for _, folder, _ in jobs:
        assert losses_of(folder) == pytest.approx(losses_of(base / "single"), abs=1e-6)


def test_a_branch_starts_from_a_sharded_state(short, base, manifest):
    child = dataclasses.replace(short, phase="continual", initial=Initial("run", run="parent", step=8, moments=True))
    jobs = [(child, base / f"branch-{kind}", base / kind / "resume" / "step-8") for kind in ("single", *KINDS)]
    assert in_process(_single, jobs, manifest.folder) == 0
    expected = losses_of(base / "branch-single")
    assert expected != losses_of(base / "single")
    for kind in KINDS:
        assert losses_of(base / f"branch-{kind}") == pytest.approx(expected, abs=1e-6)


def test_a_damaged_piece_is_refused_and_the_state_before_is_taken(short, base, manifest, tmp_path):
    for step in KEPT:
        begin_from(base / "zero1", step, tmp_path / "run")
    newest = tmp_path / "run" / "resume" / "step-8"
    piece = newest / "state-1.safetensors"
    data = bytearray(piece.read_bytes())
    data[-5] ^= 1
    piece.write_bytes(data)
    with pytest.raises(states.SpecError) as error:
        states.whole_state(newest)
    assert str(error.value) == f"{newest}: no complete state here; run its parent again"
    assert in_process(_single, [(short, tmp_path / "run", None)], manifest.folder) == 0
    assert json.loads((tmp_path / "run" / "attempts" / "001.json").read_text())["from_step"] == 4
    assert losses_of(tmp_path / "run") == pytest.approx(losses_of(base / "single"), abs=1e-6)


def test_a_full_disk_of_one_process_ends_all_and_leaves_no_half_state(base):
    heard = [(base / f"full-{rank}").read_text() for rank in (0, 1)]
    assert heard == [f"{os.strerror(errno.ENOSPC)} ['step-4']"] * 2
    assert losses_of(base / "full") == pytest.approx(losses_of(base / "single"), abs=1e-6)


def test_states_are_written_while_the_main_threads_speak(base):
    folder = base / "beside" / "resume"
    assert sorted(path.name for path in folder.iterdir()) == ["step-0", "step-8", "step-9"]
    for state in folder.iterdir():
        with pieces.open_tensors(state) as tensors:
            assert torch.equal(tensors.read_whole("t"), torch.arange(2).repeat_interleave(1000).float())


def _train_and_die(rank: int, spec: RunSpec, folder: Path, manifest: Path, kind: str, victim: int, place: str) -> None:
    from training.checkpoints import folder as folders

    module = pieces if place == "save_file" else folders
    inner, calls = getattr(module, place), []

    def dying(*arguments, **options):
        calls.append(1)
        # The last part of the second state.
        if rank == victim and len(calls) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return inner(*arguments, **options)

    setattr(module, place, dying)
    group = join(Parallel(kind, 2, timeout=10.0))
    _run(group, spec, folder, manifest, kind)
    leave(group)


DEATHS = [("fsdp2", 1, "save_file"), ("zero1", 0, "save_file"), ("zero3", 0, "write_whole")]


@pytest.mark.parametrize(("kind", "victim", "place"), DEATHS, ids=lambda value: str(value))
def test_a_kill_between_the_writes_leaves_no_state(kind, victim, place, short, base, manifest, tmp_path):
    pair = together(_train_and_die, short, tmp_path, manifest.folder, kind, victim, place)
    for process in pair:
        process.join(timeout=150.0)
    assert pair[victim].exitcode == -signal.SIGKILL
    assert pair[1 - victim].exitcode not in (0, None)
    left = sorted(path.name for path in (tmp_path / "resume").iterdir())
    assert left[-1] == "step-4"
    assert all(name.startswith(".step-") for name in left[:-1])
    assert in_process(_single, [(short, tmp_path, None)], manifest.folder) == 0
    assert not list(tmp_path.glob("*/.step-*.part"))
    assert losses_of(tmp_path) == pytest.approx(losses_of(base / "single"), abs=1e-6)
