"""The speeds that prepare measures: within their time limit whatever the model, and what they come to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.conftest import SHAPE
from training import engine, speed_probe
from training.parameters import model_size

LENGTH, BATCH, WARM_UP = 128, 20, 0.3


class _Machine:
    """A clock that passes of models move, by their FLOPs, in place of a processor."""

    def __init__(self, sequence_seconds: float, forward: float, bf16: float = 1.0, fixed: float = 0.0) -> None:
        self.sequence_seconds, self.forward, self.fixed = sequence_seconds, forward, fixed
        self.of_precision = {"fp32": 1.0, "bf16": bf16}
        self.now, self.cold = 0.0, {"fp32", "bf16"}

    def perf_counter(self) -> float:
        self.now += 1e-4
        return self.now

    def ready(self, model: dict[str, Any], engine: str, precision: str, *_: Any, **__: Any) -> tuple[Any, Any]:
        network: Any = torch.nn.Linear(1, 1)
        network.config = SimpleNamespace(vocab_size=9)

        def losses(tokens: torch.Tensor) -> torch.Tensor:
            self.now += self.seconds(model, precision, len(tokens), tokens.shape[1] - 1)
            self.now += WARM_UP if precision in self.cold else 0.0
            self.cold.discard(precision)
            return network(tokens[:, :1].float()).sum(1)

        return network, losses

    def seconds(self, model: dict[str, Any], precision: str, sequences: int, length: int) -> float:
        whole = LENGTH * model_size(SHAPE | {"vocab_size": 300}, LENGTH).flops_per_token / self.sequence_seconds
        flops = sequences * length * model_size(model, length).flops_per_token
        part = 1.0 if torch.is_grad_enabled() else self.forward
        return part * (self.fixed + flops / whole) / self.of_precision[precision]


def _shapes(count: int) -> dict[str, dict[str, Any]]:
    """So many shapes, the last one the largest."""
    return {f"m{layers}": SHAPE | {"vocab_size": 300, "num_hidden_layers": layers} for layers in range(1, count + 1)}


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch) -> Any:
    def measure(machine: _Machine, shapes: dict[str, dict[str, Any]], *precisions: str) -> engine.Speeds:
        monkeypatch.setattr(speed_probe, "time", machine)
        monkeypatch.setattr(engine, "ready", machine.ready)
        return engine.plain_speeds(shapes, [*shapes][-1], precisions or engine.PRECISIONS, 1, BATCH, LENGTH)

    return measure


def _known(machine: _Machine, shape: dict[str, Any], precision: str) -> dict[str, float]:
    """Tokens a second of that clock."""
    step, count = machine.seconds(shape, precision, BATCH, LENGTH), BATCH * LENGTH
    return {"training": count / step, "evaluation": count / (step * machine.forward)}


@pytest.mark.parametrize("count", [1, 2, 4, 12])
@pytest.mark.parametrize("forward", [1.0, 1 / 3])
@pytest.mark.parametrize("seconds", [0.0005, 0.02, 0.5, 2, 4, 10, 60])
def test_all_passes_together_take_at_most_twenty_seconds(measure, seconds, forward, count) -> None:
    """Of the smallest shape a sequence takes `seconds`, of the twelfth one twelve times that."""
    machine, shapes = _Machine(seconds, forward, bf16=1.25), _shapes(count)
    speeds = measure(machine, shapes)
    assert machine.now <= engine.PROBE_LIMIT == 20.0
    # The largest decides, in both precisions; of the others one speed is enough.
    target = [*shapes][-1]
    assert {precision: {*of_shape} for precision, of_shape in speeds.items()} == {"fp32": {target}, "bf16": {*shapes}}
    for precision, of_shape in speeds.items():
        for name, speed in of_shape.items():
            assert speed == pytest.approx(_known(machine, shapes[name], precision), rel=0.2), (name, precision)


@pytest.mark.parametrize(("seconds", "chosen"), [(480, "bf16"), (1000, "fp32")])
def test_what_there_is_no_time_to_measure_follows_from_flops(measure, seconds: float, chosen: str) -> None:
    """One token of the target takes 6 or 13 s, so that there is time for one precision or two."""
    machine, shapes = _Machine(seconds, forward=1 / 3, bf16=1.25), _shapes(4)
    speeds = measure(machine, shapes)
    assert machine.now <= engine.PROBE_LIMIT
    assert {*speeds[chosen]} == {*shapes}
    for name, speed in speeds[chosen].items():
        assert speed == pytest.approx(_known(machine, shapes[name], chosen), rel=0.2), name


@pytest.mark.parametrize("fixed", [0.1, 0.4, 0.9])
def test_reading_the_weights_of_a_large_model_is_not_counted_for_each_token(measure, fixed) -> None:
    machine, shapes = _Machine(2.4, forward=1 / 3, bf16=0.7, fixed=fixed), _shapes(1)
    speeds = measure(machine, shapes)
    assert machine.now <= engine.PROBE_LIMIT
    for precision in engine.PRECISIONS:
        assert speeds[precision]["m1"] == pytest.approx(_known(machine, shapes["m1"], precision), rel=0.2), precision


def test_a_configured_precision_alone_is_measured(measure) -> None:
    machine, shapes = _Machine(0.02, forward=1 / 3, bf16=0.5), _shapes(3)
    speeds = measure(machine, shapes, "bf16")
    assert {precision: {*of_shape} for precision, of_shape in speeds.items()} == {"bf16": {*shapes}}


def test_the_update_of_a_large_model_is_measured_on_a_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    network = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(2, 2), torch.nn.Linear(3, 3))
    monkeypatch.setattr(speed_probe, "LARGEST_UPDATE", 18)
    assert [each.numel() for each in speed_probe._updated_parameters(network, torch.device("cpu"))] == [2, 3, 4, 9]
    monkeypatch.setattr(speed_probe, "LARGEST_UPDATE", 1)
    assert [each.numel() for each in speed_probe._updated_parameters(network, torch.device("cpu"))] == [2]
