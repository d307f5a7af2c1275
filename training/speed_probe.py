"""Speed of a model's steps and forward passes, measured within a time limit whatever the model."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Mapping
from itertools import accumulate
from statistics import median
from typing import Any

import torch
from transformers import PreTrainedModel

from training.objectives import Losses
from training.parameters import model_size

LARGEST_UPDATE = 2**25
"""Parameters whose update is measured on a CPU; more of them take longer in proportion."""


class Stopwatch:
    """Times passes on this machine's device, and adds up their seconds."""

    def __init__(self) -> None:
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.total = 0.0
        """Seconds of all passes so far."""
        self.single_token = 0.0
        """Seconds of both passes of one token, of the slowest shape so far: the least that measuring a shape takes."""

    def time(self, work: Callable[..., None], *arguments: int) -> float:
        """Seconds of one call."""
        start = time.perf_counter()
        work(*arguments)
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        self.total += seconds
        return seconds

    def typical(self, calls: int, until: float, first: float, work: Callable[..., None], *arguments: int) -> float:
        """Median seconds of so many calls, of which the first took `first`; of those before `total` is `until`.

        Without the first one, if others can be had: it may have loaded kernels, or memory.
        """
        times = [first]
        while len(times) < calls and self.total + min(times) <= until:
            times.append(self.time(work, *arguments))
        return median(times[1:] or times)


Part = tuple[int, int]
"""Part of a batch: sequences, tokens of each."""
Work = Callable[[int, int], None]
"""Passes over a part of a batch."""


class Passes:
    """Passes of one kind over growing parts of a batch, and what they say of the whole batch."""

    def __init__(
        self, watch: Stopwatch, work: Work, flops: Callable[[int, int], float], whole: Part, first: Part
    ) -> None:
        """Time the first one; `flops`: training FLOPs of a part."""
        self.watch, self.work, self.flops, self.whole = watch, work, flops, whole
        self.times = {first: watch.time(work, *first)}

    def grow(self, seconds: float, until: float, per_flop: float | None = None) -> None:
        """Add larger parts, to passes of so many seconds, or the whole batch, or until the stopwatch's total.

        Of a large model the pass of one token takes long, as it reads all weights: it goes on to three times that.

        Args:
            seconds, until: of a pass; of all passes.
            per_flop: seconds that a FLOP more should take, where it is known.
        """
        # The first pass also loads kernels.
        self.repeat(until, calls=2)
        least = min(self.times.values())
        while (part := max(self.times)) != self.whole:
            allowed = min(max(seconds, 3 * least), until - self.watch.total)
            took, most = self.times[part], self.times[part] / self.flops(*part)
            slope = most if per_flop is None else min(per_flop, most)
            if len(self.times) > 1:
                # The line through two passes may fall by noise.
                slope = max(self._slope(*sorted(self.times)[-2:]), most / 8)
            larger = self._part_of(self.flops(*part) + (allowed - took) / slope)
            if larger != self.whole and self.flops(*larger) < 2 * self.flops(*part):
                return
            self.times[larger] = self.watch.time(self.work, *larger)

    def repeat(self, until: float, calls: int = 5) -> None:
        """Time the largest part again, and the smallest where it counts: `calls` times in all, if `until` allows."""
        large = max(self.times)
        for part in sorted({large} if large == self.whole else {min(self.times), large}):
            self.times[part] = self.watch.typical(calls, until, self.times[part], self.work, *part)

    def per_flop(self) -> float | None:
        """Seconds that a FLOP more takes, at most where noise hides it; None where one part alone was measured."""
        if len(self.times) == 1:
            return None
        small, large = min(self.times), max(self.times)
        hidden = 0.5 * self.times[small] / (self.flops(*large) - self.flops(*small))
        return max(self._slope(small, large), hidden)

    @property
    def clear(self) -> bool:
        """Whether the largest part took so much longer than the smallest that noise does not hide it."""
        return self.times[max(self.times)] > 1.5 * self.times[min(self.times)]

    def of_whole(self, per_flop: float | None) -> float:
        """Seconds of a pass over the whole batch; None: in proportion to its FLOPs, which is the most that they are."""
        part = max(self.times)
        took, flops = self.times[part], self.flops(*part)
        most = took / flops
        return took + (most if per_flop is None else min(per_flop, most)) * (self.flops(*self.whole) - flops)

    def _slope(self, small: Part, large: Part) -> float:
        return (self.times[large] - self.times[small]) / (self.flops(*large) - self.flops(*small))

    def _part_of(self, affordable: float) -> Part:
        """The largest part within so many FLOPs: whole sequences, or some tokens of one."""
        batch, length = self.whole
        if affordable >= self.flops(1, length):
            return min(batch, int(affordable / self.flops(1, length))), length
        return 1, max(1, bisect_right(range(1, length + 1), affordable, key=lambda tokens: self.flops(1, tokens)))


def measure_speed(
    network: PreTrainedModel,
    losses: Losses,
    model: Mapping[str, Any],
    whole: Part,
    objective: str,
    watch: Stopwatch,
    seconds: float,
    *,
    compiled: bool,
) -> dict[str, float]:
    """Tokens a second of a model: `training`, a step with its update, and `evaluation`, a forward pass.

    Each is the median of five passes over the batch. Of a slow model it is that of those that `seconds` leave time
    for, of as many sequences as that allows, or of a part of one; what the rest would take follows from its FLOPs. The
    least that is measured is one pass of a single token, forward and backward, and one forward.

    Args:
        network, losses, model: the model, its loss function and its architecture.
        whole: sequences of a batch, tokens of each.
        objective: causal or masked.
        watch, seconds: times the passes; how long those of this call take, about.
        compiled: always measure the whole batch, after a pass of each kind that is not timed.
    """
    network.to(watch.device)  # pyright: ignore[reportArgumentType]
    batch, sequence_length = whole
    size = (batch, sequence_length + 1) if objective == "causal" else (batch, 2, sequence_length)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, network.config.vocab_size, size, generator=generator).to(watch.device)
    updated = _updated_parameters(network, watch.device)
    optimizer = torch.optim.AdamW(updated, lr=0.0, weight_decay=0.0, fused=True)

    def losses_of(sequences: int, length: int) -> torch.Tensor:
        return losses(tokens[:sequences, ..., : length + (objective == "causal")])

    def learn(sequences: int, length: int) -> None:
        network.zero_grad(set_to_none=True)
        (losses_of(sequences, length).sum() / tokens.numel()).backward()

    def update() -> None:
        torch.nn.utils.clip_grad_norm_(updated, 1.0)
        optimizer.step()

    def look(sequences: int, length: int) -> None:
        with torch.no_grad():
            losses_of(sequences, length)

    flops, begin = _flops_of(model, sequence_length), watch.total
    if compiled or watch.device.type == "cuda":
        # Compiled code is made for one shape, at its first call; a GPU loads kernels for seconds.
        learn(*(whole if compiled else (1, 1)))
        look(*(whole if compiled else (1, 1)))
    first = whole if compiled else (1, 1)
    # Before the first backward pass, as it loads most of the kernels.
    looks = Passes(watch, look, flops, whole, first)
    steps = Passes(watch, learn, flops, whole, first)
    watch.single_token = max(watch.single_token, watch.total - begin)
    looks.grow(0.4 * seconds, until=min(watch.total + 0.4 * seconds, begin + 0.9 * seconds))
    # A backward pass has twice the FLOPs of a forward pass.
    forward = looks.per_flop()
    step = None if forward is None else 3 * forward
    steps.grow(seconds / 10, until=begin + 0.8 * seconds, per_flop=step)
    steps.repeat(until=begin + 0.8 * seconds)
    # The first update allocates the moments.
    watch.time(update)
    updating = watch.typical(5, begin + 0.85 * seconds, watch.time(update), update)
    looks.repeat(until=begin + 0.95 * seconds)
    network.zero_grad(set_to_none=True)
    # Of a step, however many sequences it has.
    updating *= sum(each.numel() for each in network.parameters()) / sum(each.numel() for each in updated)
    looking = looks.of_whole(looks.per_flop())
    learning = steps.of_whole(steps.per_flop() if steps.clear else step)
    count = batch * sequence_length
    return {"training": count / (learning + updating), "evaluation": count / looking}


def _flops_of(model: Mapping[str, Any], sequence_length: int) -> Callable[[int, int], float]:
    """Training FLOPs as a function of (sequences, tokens of each), up to a sequence length."""
    alone, whole = (model_size(model, length).flops_per_token for length in (0, sequence_length))
    return lambda sequences, length: sequences * length * (alone + (whole - alone) * length / sequence_length)


def _updated_parameters(network: torch.nn.Module, device: torch.device) -> list[torch.nn.Parameter]:
    """The parameters whose update is measured: all, or on a CPU the smallest ones up to LARGEST_UPDATE."""
    ordered = sorted(network.parameters(), key=torch.Tensor.numel)
    if device.type == "cuda":
        return ordered
    total = accumulate(each.numel() for each in ordered)
    return [each for each, so_far in zip(ordered, total) if so_far <= LARGEST_UPDATE] or ordered[:1]
