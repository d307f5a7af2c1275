"""Telemetry of a run: metrics.jsonl, and warnings about loss spikes and slow steps."""

from __future__ import annotations

import json
import math
import resource
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from training.devices.group import ALONE, Group
from training.durable import regular
from training.parameters import model_size, peak_flops
from training.spec import RunSpec

LOG_SECONDS = 60.0
"""Between two lines of progress in the log of a run."""
_REMEMBERED = 64
_SPIKE = 6.0
"""Robust standard deviations above the median of the last losses; probability 10^-9 under a Gaussian."""
_SMALLEST_SPIKE = 0.2
_SLOW = 0.5


class NonFiniteLossError(RuntimeError):
    """The training loss became infinite or not a number; the message names the step."""


@dataclass
class Telemetry:
    """Collects the measurements of each step of a run and writes lines of metrics.jsonl."""

    folder: Path
    """The run's folder."""
    spec: RunSpec
    """The run."""
    log: Callable[[str], object]
    """Called with warnings and progress."""
    group: Group = ALONE
    """The run's processes, of which the first writes and warns."""
    validation: dict[str, float] = field(default_factory=dict)
    """Corpus -> its last validation loss, nats per token."""
    _unread: list[tuple[int, torch.Tensor | float, float]] = field(default_factory=list)
    _losses: list[float] = field(default_factory=list)
    _recent: deque[float] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    _speeds: deque[float] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    _waited: float = 0.0
    _since: float = field(default_factory=time.perf_counter)
    _logged: float = field(default_factory=time.perf_counter)
    _peak: float | None = None

    def __post_init__(self) -> None:
        self._flops_per_token = model_size(self.spec.model, self.spec.sequence_length).flops_per_token
        device = self.group.device
        if device.type == "cuda":
            peak = peak_flops(torch.cuda.get_device_name(device))
            self._peak = peak * self.group.count if peak else None
            # This process may have trained a larger model before.
            torch.cuda.reset_peak_memory_stats(device)

    @property
    def minutes(self) -> float:
        """Minutes since the last line."""
        return (time.perf_counter() - self._since) / 60

    def timed(self, batches: Iterable[torch.Tensor]) -> Iterator[torch.Tensor]:
        """The batches; adds up how long the devices waited for each."""
        since = time.perf_counter()
        for batch in batches:
            self._waited += time.perf_counter() - since
            yield batch
            since = time.perf_counter()

    def step(self, step: int, local_loss: torch.Tensor | float, rate: float) -> None:
        """Keep this process' part of a step's training loss; that of the step before is read, where it is alone.

        Several processes read theirs together (`read_losses`), before anything is written.
        """
        if self.group.count == 1:
            self.read_losses()
        self._unread.append((step, local_loss, rate))

    def read_losses(self) -> None:
        """Record the training losses of the last steps, nats a predicted token, which waits for a GPU; warn of spikes.

        Raises:
            NonFiniteLossError: in all processes.
        """
        if not self._unread:
            return
        unread, self._unread = self._unread, []
        losses = self.group.gather(np.array([[float(local) for _, local, _ in unread]])).sum(axis=0).tolist()
        for (step, _, rate), loss in zip(unread, losses):
            self._record(step, loss, rate)

    def _record(self, step: int, loss: float, rate: float) -> None:
        if not math.isfinite(loss):
            raise NonFiniteLossError(f"training loss is {loss} at step {step}, learning rate {rate:g}")
        self._losses.append(loss)
        # The second condition is implied by the inner one and saves computing the medians.
        if self.group.first and len(self._recent) == _REMEMBERED and loss > min(self._recent) + _SMALLEST_SPIKE:
            median = statistics.median(self._recent)
            deviation = 1.4826 * statistics.median(abs(value - median) for value in self._recent)
            if loss > median + max(_SPIKE * deviation, _SMALLEST_SPIKE):
                name = f"{self.folder.name}: step {step}"
                self.log(f"{name}: training loss spike: {loss:.3f} after a median of {median:.3f}")
        self._recent.append(loss)

    def write(self, step: int, learning_rate: float, gradient_norm: float) -> None:
        """Append a line about the steps since the last line; warn of low speed.

        Raises:
            FileError: a pipe or a device in place of the file, which would be waited for.
        """
        self.read_losses()
        now = time.perf_counter()
        seconds, steps = now - self._since, len(self._losses)
        if not steps or not self.group.first:
            return
        speed = steps * self.spec.tokens_per_step / seconds
        if len(self._speeds) >= 3 and speed < _SLOW * (usual := statistics.median(self._speeds)):
            self.log(f"{self.folder.name}: step {step}: slow: {speed:,.0f} tokens/s after a median of {usual:,.0f}")
        self._speeds.append(speed)
        line = {
            "step": step,
            "loss": math.fsum(self._losses) / steps,
            "gradient_norm": gradient_norm,
            "learning_rate": float(learning_rate),
            # Includes evaluations and saving: the speed for planning.
            "tokens_per_second": round(speed),
            "mfu": round(speed * self._flops_per_token / self._peak, 4) if self._peak else None,
            "data_wait": round(self._waited / seconds, 5),
            "memory": peak_memory(),
            "seconds": round(seconds, 3),
        }
        with regular(self.folder / "metrics.jsonl").open("a") as stream:
            stream.write(json.dumps(line) + "\n")
        self._losses, self._waited, self._since = [], 0.0, now
        if now - self._logged > LOG_SECONDS:
            self._logged = now
            left = (self.spec.steps - step) * seconds / steps
            losses = "".join(f", {corpus} {loss:.4f}" for corpus, loss in self.validation.items())
            progress = f"step {step}/{self.spec.steps}, {left / 60:,.0f} min left, {speed:,.0f} tokens/s"
            self.log(f"{self.folder.name}: {progress}, training loss {line['loss']:.4f}{losses}")


def peak_memory() -> int:
    """Peak memory of this process in bytes: on its GPU if it uses one, else in main memory."""
    if torch.cuda.is_initialized():
        return torch.cuda.max_memory_allocated()
    # Linux counts in KiB, macOS in bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
