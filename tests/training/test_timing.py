"""The speed of training: measured in seconds whatever the model, or not known."""

import dataclasses
from collections.abc import Callable
from functools import partial
from timeit import Timer

import pytest
import torch

from training import timing
from training.devices import processor
from training.spec import RunSpec

LENGTH, BATCH = 128, 20


class _Clock:
    """A clock that gradients and updates move, in place of a processor: by a time each, and some for each token."""

    def __init__(self, fixed: float, a_token: float, update: float = 0.1, warm_up: float = 0.3) -> None:
        self.fixed, self.a_token, self.of_update, self.warm_up, self.now = fixed, a_token, update, warm_up, 0.0
        self.parts: list[tuple[int, int]] = []

    def perf_counter(self) -> float:
        return self.now

    def gradient(self, part: torch.Tensor, tokens: int) -> None:
        self.now += self.fixed + self.a_token * tokens + (0.0 if self.parts else self.warm_up)
        self.parts.append((len(part), part.shape[1] - 1))
        assert len(part) * (part.shape[1] - 1) == tokens

    def update(self, rate: float) -> None:
        self.now += self.of_update


@pytest.fixture
def speed(spec: RunSpec, monkeypatch: pytest.MonkeyPatch) -> Callable[[_Clock], float]:
    def speed(clock: _Clock) -> float:
        monkeypatch.setattr(timing, "Timer", partial(Timer, timer=clock.perf_counter))
        monkeypatch.setattr(timing, "place_model", lambda *_: clock)
        long = dataclasses.replace(spec, sequence_length=LENGTH)
        return timing.measured_speed(long, "eager", BATCH, threads=torch.get_num_threads(), limit=6.0)

    return speed


@pytest.mark.parametrize("update", [1e-3, 0.3])
@pytest.mark.parametrize("fixed", [1e-3, 0.01])
@pytest.mark.parametrize("a_token", [1e-6, 1e-4, 1e-3, 1e-2, 0.05])
def test_a_speed_is_measured_in_some_seconds_whatever_the_model(speed, a_token, fixed, update) -> None:
    clock = _Clock(fixed, a_token, update)
    # What a gradient takes beside its tokens counts for each part of a batch that takes too long as a whole.
    seconds = a_token * BATCH * LENGTH + update
    assert (
        BATCH * LENGTH / 1.05 / (seconds + fixed * BATCH) < speed(clock) <= BATCH * LENGTH / (seconds + fixed) * 1.001
    )
    assert clock.now < 12
    assert all(length in (16, LENGTH) or sequences == 1 for sequences, length in clock.parts)


@pytest.mark.parametrize(("fixed", "a_token"), [(0.1, 0.5), (3.1, 1e-4)])
def test_a_speed_that_cannot_be_known_is_zero(speed, fixed: float, a_token: float) -> None:
    """A few tokens take longer than half of the time that there is."""
    assert speed(_Clock(fixed, a_token)) == 0.0


@pytest.mark.parametrize(
    ("capabilities", "has_bf16"),
    [({"avx2": True, "amx_bf16": False}, False), ({"amx_bf16": True}, True), ({"bf16": True}, True)],
)
def test_bf16_needs_a_processor_with_its_products(monkeypatch, capabilities, has_bf16) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert processor.fast_precisions() == ["fp32", *(["bf16"] if has_bf16 else [])]
