"""The steps of a small model on one GPU as CUDA graphs: one launch in place of thousands, for which the GPU waits."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator

import torch
from transformers import PreTrainedModel

from training.devices.memory import most_graphed
from training.devices.out_of_memory import is_out_of_memory
from training.devices.single import Devices, Weigh
from training.objectives import Losses
from training.spec import Parallel, RunSpec

_PLAIN_STEPS = 2
"""Steps before the first graph: they compile, load kernels, and make the gradient and the moments."""


class Graphed(Devices):
    """One GPU, whose steps are recorded once and then replayed where they are small, of micro-batches of one shape."""

    def __init__(self, network: PreTrainedModel, losses: Losses, spec: RunSpec) -> None:
        super().__init__(network, losses, spec)
        device = next(iter(self.parameters.values())).device
        self._rate = torch.zeros((), device=device)
        for group in self._optimizer.param_groups:
            # A graph reads the rate from where it was; plain steps do too, for the same digits.
            group.update(lr=self._rate, capturable=True)
        self._most = most_graphed(spec, Parallel())
        self._aside, self._steps = torch.cuda.Stream(device), 0
        self._tokens = torch.empty(0, dtype=torch.int64)
        self._replay_gradient: Callable[[], torch.Tensor] | None = None
        self._replay_update: Callable[[], torch.Tensor] | None = None

    def gradient(self, tokens: torch.Tensor, predictions: int, weigh: Weigh | None = None) -> torch.Tensor:
        plain = super().gradient
        if weigh is not None or len(tokens) > self._most:
            return plain(tokens, predictions, weigh)
        if not self._tokens.numel():
            self._tokens = tokens.to(self._rate.device)
        if tokens.shape != self._tokens.shape:
            return plain(tokens, predictions)
        self._tokens.copy_(tokens, non_blocking=True)
        if self._steps < _PLAIN_STEPS:
            with self._on_its_stream():
                return plain(self._tokens, predictions)
        if self._replay_gradient is None:
            try:
                self._replay_gradient = self._recorded(lambda: plain(self._tokens, predictions))
            except RuntimeError as error:
                # A model may read the device while it computes.
                if is_out_of_memory(error):
                    raise
                why = (str(error).splitlines() or [""])[0]
                warnings.warn(
                    f"steps are launched one by one, as no CUDA graph of them can be made: {why}", stacklevel=2
                )
                self._most, self._tokens = 0.0, self._tokens[:0]
                return plain(tokens, predictions)
        return self._replay_gradient()

    def update(self, rate: float) -> torch.Tensor | float:
        self._rate.fill_(rate)
        self._steps += 1
        if not self._tokens.numel():
            return self._step(keep_gradient=False)
        if self._steps <= _PLAIN_STEPS:
            with self._on_its_stream():
                return self._step(keep_gradient=True)
        if self._replay_update is None:
            self._replay_update = self._recorded(lambda: self._step(keep_gradient=True))
        return self._replay_update()

    def release(self) -> None:
        self._replay_gradient = self._replay_update = None

    @contextlib.contextmanager
    def _on_its_stream(self) -> Iterator[None]:
        # What autograd remembers of a stream must be that of the recording.
        self._aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._aside):
            yield
        torch.cuda.current_stream().wait_stream(self._aside)

    def _recorded(self, work: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
        """Record operations without running them; returns what runs them, with the same result tensor each time."""
        graph = torch.cuda.CUDAGraph()
        # Other threads, which write states, may copy meanwhile.
        with torch.cuda.graph(graph, stream=self._aside, capture_error_mode="thread_local"):
            result = work()

        def replay() -> torch.Tensor:
            graph.replay()
            return result

        return replay
