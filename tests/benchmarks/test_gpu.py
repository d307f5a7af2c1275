"""The GPU benchmark runs where there is no GPU too, and every measurement of it ends without an error."""

import argparse
import json

import pytest

from tests.benchmarks.gpu import measure
from tests.processes import FORKS


@pytest.mark.slow
@pytest.mark.parametrize(("part", "lines"), [("correctness", 9), ("speed", 3), ("packed", 3), ("parallel", 1)])
def test_every_measurement_of_a_part_is_a_line(part, lines, tmp_path, monkeypatch):
    monkeypatch.setattr("tests.benchmarks.gpu.KINDS", ("zero3",))
    # Without a GPU processes may fork from one that has loaded torch.
    monkeypatch.setattr("tests.benchmarks.gpu.SPAWN", FORKS)
    measure(argparse.Namespace(part=part, out=tmp_path, shape=["tiny"], length=32, batch=4, seconds=300.0))
    found = [json.loads(line) for line in (tmp_path / f"{part}.jsonl").read_text().splitlines()]
    assert [line["error"] for line in found if "error" in line] == []
    assert len(found) == lines
    by_name = {line["measured"]: line for line in found}
    if part == "correctness":
        for of_losses in ("losses, {}", "losses, {}, documents"):
            assert by_name[of_losses.format("fp32")]["largest_relative_difference"] < 1e-6
            assert by_name[of_losses.format("bf16")]["largest_relative_difference"] < 1e-2
        assert by_name["kill and resume"]["largest_relative_difference"] == 0
        assert by_name["kill and resume"]["exit_code"] == "-9"
    elif part == "parallel":
        assert all(line["largest_relative_difference"] < 1e-2 for line in found)
    else:
        assert all(line["tokens_per_second"] > 0 for line in found)


def test_no_measurement_begins_too_late(tmp_path):
    measure(argparse.Namespace(part="speed", out=tmp_path, shape=["tiny"], length=32, batch=4, seconds=-1.0))
    assert not (tmp_path / "speed.jsonl").exists()
