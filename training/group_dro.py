"""A run whose domain weights move by group DRO on excess loss, as `training.domain_weights` says: DoReMi's proxy.

The corpora of the mixture are the domains: the mixture says how often each is read, the weights how much it counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel

from training.checkpoint import load_weights
from training.devices.group import Group
from training.domain_weights import PATH, DomainWeights, as_line, equal_weights, excess_losses, moved, noted_steps
from training.durable import append_flushed, cut_lines
from training.objectives import Losses
from training.spec import RunSpec, SpecError


def frozen(network: PreTrainedModel, losses: Losses, weights: Path, device: torch.device) -> Losses:
    """The losses by token of the reference, a whole model in every process, without gradient.

    Raises:
        SpecError: no complete checkpoint there, or one of another shape.
    """
    load_weights(weights, network)
    network.to(device)  # pyright: ignore[reportArgumentType]
    # As the model that trains, whose compiled code then serves both: `build_model` has put every dropout off.
    network.train()

    def of_reference(tokens: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return losses(tokens.to(device, non_blocking=True)).detach()

    return of_reference


class GroupDro:
    """A run's domain weights between its steps: `weighed` for each micro-batch in order, then `step`.

    Args:
        spec: with a reweighting.
        folder: the run's; domain_weights.jsonl is written there.
        reference: losses by token of the reference.
        domains: of each step from the next on, (global_batch,) places in the sorted mixture; `training_corpora`.
        group: the processes; each calls `step`, the first alone writes.
        step: the last step that is done.
        saved: what `tensors` gave after it; empty at the start.

    Raises:
        SpecError: a domain that is not read has no loss to weigh.
    """

    def __init__(
        self,
        spec: RunSpec,
        folder: Path,
        reference: Losses,
        domains: Iterator[np.ndarray],
        group: Group,
        step: int,
        saved: dict[str, torch.Tensor],
    ) -> None:
        assert spec.reweighting is not None
        self._reweighting, self._names = spec.reweighting, sorted(spec.mixture)
        self._predictions = spec.objective.predictions(spec.sequence_length)
        self._shares = np.array([float(Fraction(spec.mixture[name])) for name in self._names])
        if unread := [name for name in self._names if not Fraction(spec.mixture[name])]:
            raise SpecError(f"mixture.{unread[0]}: 0 in a run whose weights move; allowed: above 0")
        self._path, self._reference, self._domains, self._group = folder / PATH, reference, domains, group
        self._noted = noted_steps(spec.steps)
        self._behind: list[torch.Tensor] = []
        self._of_step = np.empty(0, dtype=np.int16)
        self.weights = equal_weights(len(self._names))
        if saved:
            self.weights = DomainWeights(**{name: tensor.numpy() for name, tensor in saved.items()})
        # A line is on the disk before the state of its step is: those up to the state stay.
        group.share(partial(cut_lines, self._path, step + 1))

    def weighed(self, losses: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """The next sequences' losses by token (n, T), each times its domain's weight over its share of what is read.

        The weights are those after the step before; what this step has in excess moves them for the next one.
        """
        if not self._behind:
            self._of_step = next(self._domains)
        begin = len(self._of_step) // self._group.count * self._group.rank + sum(map(len, self._behind))
        factors = (self.weights.now / self._shares)[self._of_step[begin : begin + len(losses)]]
        behind = (losses.detach() - self._reference(tokens)).clamp(min=0).sum(1, dtype=torch.float64)
        self._behind.append(behind / self._predictions)
        return losses * torch.as_tensor(factors, dtype=losses.dtype, device=losses.device)[:, None]

    def step(self, step: int) -> None:
        """Move the weights by the excess of the sequences since the last step, of all processes."""
        behind = self._group.in_order(torch.cat(self._behind).cpu().numpy())
        self._behind = []
        excess = excess_losses(behind, self._of_step, self.weights.excess)
        self.weights = moved(self.weights, excess, self._reweighting)
        if step in self._noted:
            self._group.share(partial(append_flushed, self._path, as_line(step, self._names, self.weights)))

    def tensors(self) -> dict[str, torch.Tensor]:
        """The weights, for a state to go on from."""
        return {name: torch.from_numpy(values) for name, values in vars(self.weights).items()}
