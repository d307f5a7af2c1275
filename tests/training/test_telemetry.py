"""metrics.jsonl and its warnings."""

import json
import os

import pytest

from training.durable import FileError
from training.parameters import peak_flops
from training.telemetry import NonFiniteLossError, Telemetry, peak_memory


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def telemetry(spec, tmp_path, warnings) -> Telemetry:
    return Telemetry(tmp_path, spec, warnings.append)


def test_a_line_has_speed_and_ratio_to_the_peak(telemetry, spec, warnings, monkeypatch):
    telemetry._since, telemetry._flops_per_token, telemetry._peak = 0.0, 100.0, 1e6
    monkeypatch.setattr("training.telemetry.time.perf_counter", lambda: 2.0)
    telemetry._waited = 0.5
    for step in (1, 2, 3):
        telemetry.step(step, float(step), 1e-3)
    telemetry.write(3, learning_rate=1e-3, gradient_norm=0.5)
    telemetry.write(3, learning_rate=1e-3, gradient_norm=0.5)
    (line,) = map(json.loads, (telemetry.folder / "metrics.jsonl").read_text().splitlines())
    assert line["loss"] == 2.0
    assert line["tokens_per_second"] == round(3 * spec.tokens_per_step / 2)
    assert line["mfu"] == pytest.approx(line["tokens_per_second"] * 100.0 / 1e6, rel=1e-3)
    assert line["data_wait"] == 0.25
    assert line["memory"] > 1e7
    assert warnings == []


def test_a_pipe_in_place_of_its_file_is_not_waited_for(telemetry):
    os.mkfifo(telemetry.folder / "metrics.jsonl")
    telemetry.step(1, 1.0, 1e-3)
    with pytest.raises(FileError, match=r"metrics\.jsonl: a pipe or device, not a file"):
        telemetry.write(1, learning_rate=1e-3, gradient_norm=0.5)


def test_of_a_spike_it_warns_and_not_of_noise(telemetry, warnings):
    for step in range(200):
        telemetry.step(step, 3.0 + 0.05 * (step % 7), 1e-3)
    telemetry.step(200, 4.5, 1e-3)
    # It is read when the next step is there, or when it is asked for.
    assert warnings == []
    telemetry.read_losses()
    assert len(warnings) == 1
    assert "step 200: training loss spike: 4.500 after a median of 3.150" in warnings[0]


def test_a_loss_that_is_not_finite_ends_the_run_at_the_next_step(telemetry):
    telemetry.step(7, float("inf"), 1e-3)
    with pytest.raises(NonFiniteLossError, match=r"training loss is inf at step 7, learning rate 0\.001"):
        telemetry.step(8, 1.0, 1e-3)


def test_of_a_drop_of_the_speed_it_warns(telemetry, warnings, monkeypatch):
    clock = iter([1.0, 2.0, 3.0, 4.0, 7.0])
    telemetry._since = 0.0
    monkeypatch.setattr("training.telemetry.time.perf_counter", lambda: next(clock))
    for step in (1, 2, 3, 4):
        telemetry.step(step, 1.0, 1e-3)
        telemetry.write(step, 1e-3, 1.0)
    assert warnings == []
    telemetry.step(5, 1.0, 1e-3)
    telemetry.write(5, 1e-3, 1.0)
    assert len(warnings) == 1
    assert "slow" in warnings[0]


def test_an_unknown_device_has_no_ratio_to_a_peak(telemetry):
    telemetry._peak = None
    telemetry.step(1, 1.0, 1e-3)
    telemetry.write(1, 1e-3, 1.0)
    assert json.loads((telemetry.folder / "metrics.jsonl").read_text())["mfu"] is None
    assert peak_flops("NVIDIA H100 PCIe") == 756e12
    assert peak_flops("AMD EPYC") is None
    assert peak_memory() > 1e7
