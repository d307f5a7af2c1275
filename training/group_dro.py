"""Group DRO on excess loss: the reweighted training of DoReMi's proxy model.

The corpora of the mixture are the domains. The mixture decides how often each is read, the domain weights how much its
loss counts; `training.domain_weights` has their update.
"""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel

from training.checkpoints.weights import load_weights
from training.devices.group import Group
from training.domain_weights import PATH, DomainWeights, as_line, equal_weights, excess_losses, logged_steps, updated
from training.durable import append_flushed, cut_lines
from training.objectives import Losses
from training.spec import RunSpec, SpecError


def reference_losses(network: PreTrainedModel, losses: Losses, weights: Path, device: torch.device) -> Losses:
    """Loss function by token of the reference model, without gradient; every process holds the full model.

    Raises:
        SpecError: no complete checkpoint in `weights`, or one of another shape.
    """
    load_weights(weights, network)
    network.to(device)  # pyright: ignore[reportArgumentType]
    # In training mode, so that compiled code serves both models; `build_model` has disabled dropout.
    network.train()

    def of_reference(tokens: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return losses(tokens.to(device, non_blocking=True)).detach()

    return of_reference


class GroupDro:
    """The domain weights of a run: call `weighed` for each micro-batch of a step in order, then `step`.

    Args:
        spec, folder: of the run, with a reweighting; domain_weights.jsonl is written there.
        reference: loss function by token of the reference model.
        domains: from `training_corpora`, starting at the next step.
        group: the processes; each calls `step`, only the first writes.
        step: the last step that is done.
        saved: result of `tensors` after that step; empty at the start.

    Raises:
        SpecError: a domain has ratio 0 in the mixture, or the mixture changes.
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
        self._ratios = np.array([float(Fraction(spec.mixture[name])) for name in self._names])
        if unread := [name for name in self._names if not Fraction(spec.mixture[name])]:
            raise SpecError(f"mixture.{unread[0]}: 0 in a run with reweighting; allowed: above 0")
        if spec.phases:
            raise SpecError(f"phases: {len(spec.phases)} in a run with reweighting; allowed: one mixture")
        self._path, self._reference, self._domains, self._group = folder / PATH, reference, domains, group
        self._logged = logged_steps(spec.steps)
        self._excess: list[torch.Tensor] = []
        self._step_domains = np.empty(0, dtype=np.int16)
        self.weights = equal_weights(len(self._names))
        if saved:
            self.weights = DomainWeights(**{name: tensor.numpy() for name, tensor in saved.items()})
        # The line of a step is on disk before its state: lines up to the state are kept.
        group.broadcast(cut_lines, self._path, step + 1)

    def weighed(self, losses: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """Losses by token (n, T) of the next sequences, times their domain's weight over its ratio in the mixture.

        The weights are those of the previous step; the excess of this step changes the next one's.
        """
        if not self._excess:
            self._step_domains = next(self._domains)
        begin = len(self._step_domains) // self._group.count * self._group.rank + sum(map(len, self._excess))
        factors = (self.weights.now / self._ratios)[self._step_domains[begin : begin + len(losses)]]
        excess = (losses.detach() - self._reference(tokens)).clamp(min=0).sum(1, dtype=torch.float64)
        self._excess.append(excess / self._predictions)
        return losses * torch.as_tensor(factors, dtype=losses.dtype, device=losses.device)[:, None]

    def step(self, step: int) -> None:
        """Update the weights by the excess losses of the step's sequences, of all processes."""
        by_sequence = self._group.gather(torch.cat(self._excess).cpu().numpy())
        self._excess = []
        excess = excess_losses(by_sequence, self._step_domains, self.weights.excess)
        self.weights = updated(self.weights, excess, self._reweighting)
        if step in self._logged:
            self._group.broadcast(append_flushed, self._path, as_line(step, self._names, self.weights))

    def tensors(self) -> dict[str, torch.Tensor]:
        """The weights as tensors, for the resume state."""
        return {name: torch.from_numpy(values) for name, values in vars(self.weights).items()}
