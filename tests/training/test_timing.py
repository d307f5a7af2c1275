"""The time of a step: measured in seconds whatever the model, or not known."""

from collections.abc import Callable

import pytest
import torch

from training import engines, timing

LENGTH, BATCH = 128, 20


class _Clock:
    """A clock that steps move, by `fixed` seconds and some for each token, in place of a processor."""

    def __init__(self, fixed: float, a_token: float, warm_up: float = 0.3) -> None:
        self.fixed, self.a_token, self.warm_up, self.now = fixed, a_token, warm_up, 0.0
        self.parts: list[tuple[int, int]] = []

    def perf_counter(self) -> float:
        return self.now

    def step(self, sequences: int, length: int) -> None:
        self.now += self.fixed + self.a_token * sequences * length + (0.0 if self.parts else self.warm_up)
        self.parts.append((sequences, length))


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> Callable[..., float | None]:
    def seconds(clock: _Clock, **options: bool) -> float | None:
        monkeypatch.setattr(timing, "time", clock)
        return timing.step_seconds(clock.step, BATCH, LENGTH, limit=6.0, **options)

    return seconds


@pytest.mark.parametrize("fixed", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("a_token", [1e-6, 1e-4, 1e-3, 1e-2, 0.05])
def test_a_step_is_measured_in_some_seconds_whatever_the_model(seconds, a_token: float, fixed: float) -> None:
    clock = _Clock(fixed, a_token)
    assert seconds(clock) == pytest.approx(fixed + a_token * BATCH * LENGTH)
    assert clock.now < 12
    assert all(length in (16, LENGTH) or sequences == 1 for sequences, length in clock.parts)


@pytest.mark.parametrize(("fixed", "a_token"), [(0.1, 0.5), (2.0, 1e-4)])
def test_a_time_that_cannot_be_known_is_none(seconds, fixed: float, a_token: float) -> None:
    """A few tokens take longer than the limit allows; or more of them take no longer, as far as one sees."""
    assert seconds(_Clock(fixed, a_token)) is None


def test_compiled_code_is_measured_on_whole_batches_after_it_was_compiled(seconds) -> None:
    clock = _Clock(0.0, 1e-4, warm_up=40.0)
    assert seconds(clock, whole=True) == pytest.approx(0.256)
    assert {*clock.parts} == {(BATCH, LENGTH)}


@pytest.mark.parametrize(
    ("capabilities", "has_bf16"),
    [({"avx2": True, "amx_bf16": False}, False), ({"amx_bf16": True}, True), ({"bf16": True}, True)],
)
def test_bf16_needs_a_processor_with_its_products(monkeypatch, capabilities, has_bf16) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert engines.fast_precisions() == ["fp32", *(["bf16"] if has_bf16 else [])]


def test_a_model_that_memory_does_not_hold_is_not_measured(spec, monkeypatch) -> None:
    monkeypatch.setattr(engines, "BYTES_A_PARAMETER", 10**12)
    assert engines.measured_speed(spec, "eager", 4, threads=1) is None
