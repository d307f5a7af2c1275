"""The operations of the training loop that depend on the devices, and their implementation for a single device."""

import contextlib
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from training.model import kept_buffers
from training.objectives import Losses
from training.spec import RunSpec

Weigh = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Losses and tokens -> the losses, weighed."""
Moments = dict[str, torch.Tensor]
"""AdamW's state of one parameter: step, exp_avg, exp_avg_sq."""


@dataclass(frozen=True)
class StatePiece:
    """What a process holds of a parameter: a range of the flattened tensor, perhaps empty or all of it."""

    shape: tuple[int, ...]
    """Shape of the full parameter."""
    start: int
    """Where the range starts."""
    weight: torch.Tensor
    """Its values, fp32, in any shape; not a copy."""
    moments: Moments
    """Their moments, not copies; empty before the first step."""


class Devices:
    """A model on one device. Kinds of several processes are subclasses, of which all processes call each method, in the
    same order.

    Args:
        network, losses: the model on its device, and its loss function.
        spec: the run, whose gradient is clipped.
        optimizer: over the model's parameters; None: `adamw`.
    """

    whole = True
    """Whether the model itself holds the full weights."""
    sharded = False
    """Whether the processes hold different pieces; otherwise each holds all."""
    is_copy = False
    """Whether an earlier process holds the same pieces."""

    def __init__(
        self, network: PreTrainedModel, losses: Losses, spec: RunSpec, optimizer: torch.optim.Optimizer | None = None
    ) -> None:
        self.losses = self.evaluation = losses
        self.parameters, self.buffers = dict(network.named_parameters()), kept_buffers(network)
        self._optimizer = optimizer or adamw(network, spec)
        self._largest_norm = spec.optimizer.clip or math.inf

    def accumulate(self, last: bool) -> AbstractContextManager[object]:
        """Context of a micro-batch's forward and backward pass; `last`: of a step."""
        return contextlib.nullcontext()

    def gradient(self, tokens: torch.Tensor, predictions: int, weigh: Weigh | None = None) -> torch.Tensor:
        """Add the gradient of a micro-batch; returns its part of the step's loss, on the device.

        Args:
            tokens: as the loss function takes them.
            predictions: of the step, by all processes: the loss does not depend on micro-batches.
            weigh: changes the losses by token, given the tokens.
        """
        losses = self.losses(tokens)
        if weigh is not None:
            losses = weigh(losses, tokens)
        loss = losses.sum() / predictions
        self.backward(loss)
        return loss.detach()

    def backward(self, loss: torch.Tensor) -> None:
        """Compute the gradient of this process' part of the step's loss; the parts of all processes are summed."""
        loss.backward()

    def update(self, rate: float) -> torch.Tensor | float:
        """Clip, step the optimizer at a rate and clear the gradient; returns the gradient norm before clipping.

        The norm is on the device: reading it waits for a GPU.
        """
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        norm = self._step(keep_gradient=False)
        return norm.full_tensor() if hasattr(norm, "full_tensor") else norm  # pyright: ignore

    def _step(self, keep_gradient: bool) -> torch.Tensor:
        # Listed once: walking through all modules in each step is slow.
        norm = torch.nn.utils.clip_grad_norm_(self.parameters.values(), self._largest_norm)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=not keep_gradient)
        return norm

    def weight(self, parameter: torch.nn.Parameter) -> torch.Tensor:
        """The full tensor of a parameter."""
        return parameter.detach()

    def piece(self, parameter: torch.nn.Parameter) -> StatePiece:
        """What this process holds of a parameter; nothing is sent."""
        moments = dict(self._optimizer.state.get(parameter, {}))
        return StatePiece(tuple(parameter.shape), 0, parameter.detach(), moments)

    def set_moments(self, parameter: torch.nn.Parameter, moments: Moments) -> None:
        """Set the moments of this process' piece of a parameter, each flat; nothing is sent."""
        shaped = {key: value.view(parameter.shape) if value.ndim else value for key, value in moments.items()}
        self._optimizer.state[parameter] = {key: value.to(parameter.device) for key, value in shaped.items()}

    def release(self) -> None:
        """Release the devices; afterwards the model can be used again only if the kind is single."""


def adamw(network: torch.nn.Module, spec: RunSpec) -> torch.optim.AdamW:
    """Fused AdamW with weight decay on matrices, and none on norms and biases."""
    settings = spec.optimizer
    parameters = list(network.parameters())
    return torch.optim.AdamW(
        [
            {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": settings.weight_decay},
            {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
        ],
        lr=0.0,
        betas=(settings.beta1, settings.beta2),
        eps=settings.epsilon,
        fused=True,
    )
