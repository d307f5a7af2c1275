"""Tensors that lie in pieces in several files: any range of them is read as if they were whole."""

import itertools
import json
import math
import os
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import distributed
from torch.testing._internal.distributed.fake_pg import FakeStore

from tests.conftest import tiny_spec
from training.checkpoints.folder import digest, is_whole
from training.checkpoints.pieces import StateFile, open_tensors
from training.checkpoints.weights import take_weights
from training.devices.group import Group, Parallel
from training.devices.placement import place_model
from training.model import build_model
from training.spec import SpecError


def _write(folder: Path, files: list[StateFile]) -> Path:
    digests = {file.name: digest(file.save(folder, 3), flush=True) for file in files}
    (folder / "DONE").write_text(json.dumps(digests))
    return folder


def _in_pieces(tensor: torch.Tensor, cuts: list[int]) -> list[StateFile]:
    """Files with the ranges of a flattened tensor between cuts, and one that has none."""
    ends = [0, *sorted(cuts), tensor.numel()]
    files = [StateFile("state-99.safetensors", {"other": torch.zeros(2)})]
    for rank, (start, end) in enumerate(itertools.pairwise(ends)):
        place = {"t": (start, tuple(tensor.shape))}
        files.append(StateFile(f"state-{rank}.safetensors", {"t": tensor.reshape(-1)[start:end].clone()}, place))
    return files


@st.composite
def _cut_tensors(draw):
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    count = math.prod(shape)
    cuts = draw(st.lists(st.integers(0, count), max_size=4))
    start, end = sorted((draw(st.integers(0, count)), draw(st.integers(0, count))))
    return torch.arange(count, dtype=torch.float32).reshape(shape), cuts, start, end


@settings(max_examples=60, deadline=None)
@given(_cut_tensors())
def test_any_range_is_read_from_any_pieces(given):
    tensor, cuts, start, end = given
    for files in (_in_pieces(tensor, cuts), [StateFile("state.safetensors", {"t": tensor})]):
        with tempfile.TemporaryDirectory() as folder, open_tensors(_write(Path(folder), files)) as state:
            assert torch.equal(state.read_range("t", start, end - start), tensor.reshape(-1)[start:end])
            assert torch.equal(state.read_whole("t"), tensor)


def test_types_and_numbers_without_dimension_are_kept(tmp_path):
    tensors = {"step": torch.tensor(7.0), "weights": torch.tensor([0.1, 0.2], dtype=torch.float64)}
    with open_tensors(_write(tmp_path, [StateFile("state.safetensors", tensors)])) as state:
        for name, tensor in tensors.items():
            read = state.read_whole(name)
            assert (read.dtype, read.shape, read.tolist()) == (tensor.dtype, tensor.shape, tensor.tolist())
        assert state.read_whole("absent") is None
        assert sorted(state.shapes) == sorted(tensors)


def test_what_is_read_does_not_change_the_file(tmp_path):
    with open_tensors(_write(tmp_path, _in_pieces(torch.ones(4), []))) as state:
        state.read_whole("t").zero_()
        assert state.read_whole("t").tolist() == [1, 1, 1, 1]


def test_a_missing_piece_is_named_in_one_line(tmp_path):
    files = _in_pieces(torch.ones(4, 2), [3, 5])
    del files[2]
    with open_tensors(_write(tmp_path, files)) as state:
        assert state.read_range("t", 5, 3).tolist() == [1, 1, 1]
        with pytest.raises(SpecError) as error:
            state.read_whole("t")
    assert str(error.value) == f"{tmp_path}: t lacks its value 3 of 8; run its parent again"


def test_a_file_that_done_does_not_list_is_not_read(tmp_path):
    _write(tmp_path, _in_pieces(torch.ones(4), []))
    StateFile("another.safetensors", {"t": torch.zeros(4)}, {"t": (0, (4,))}).save(tmp_path, 3)
    with open_tensors(tmp_path) as state:
        assert state.read_whole("t").tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")], ids=range(3))
def test_a_state_with_no_file_in_a_files_place_is_not_whole(tmp_path, make):
    state = _write(tmp_path, _in_pieces(torch.ones(4), []))
    assert is_whole(state)
    (state / "state-0.safetensors").unlink()
    make(state / "state-0.safetensors")
    assert not is_whole(state)


def test_a_process_of_fsdp2_gets_its_pieces_alone_and_its_device_never_the_model(monkeypatch):
    spec = tiny_spec()
    network, source = build_model(spec.model, "sdpa", seed=None), build_model(spec.model, "eager", seed=3)
    expected = {name: weight.detach().reshape(-1) for name, weight in source.named_parameters()}
    monkeypatch.setattr(network, "to", None)
    distributed.init_process_group("fake", store=FakeStore(), rank=1, world_size=3)
    try:
        devices = place_model(network, torch.sum, spec, Parallel("fsdp2", 3), Group(1, 3))
        take_weights(source, network, devices)
        pieces = {name: devices.piece(parameter) for name, parameter in devices.parameters.items()}
        for name, piece in pieces.items():
            own = expected[name][piece.start : piece.start + piece.weight.numel()]
            assert torch.equal(piece.weight.reshape(-1), own)
        assert 0 < sum(piece.weight.numel() for piece in pieces.values()) < network.num_parameters() / 2
    finally:
        distributed.destroy_process_group()
