"""The operations of the training loop that depend on the devices, and their implementation for a single device."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from training.objectives import Losses
from training.spec import RunSpec

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


@dataclass(frozen=True)
class Devices:
    """A model on its devices. With several processes all of them call each function, in the same order."""

    parameters: dict[str, torch.nn.Parameter]
    """Parameters by name; this process may hold only a shard of each."""
    losses: Losses
    """Loss function for training."""
    evaluation: Losses
    """Loss function for evaluation."""
    accumulate: Callable[[bool], AbstractContextManager[object]]
    """Context of a micro-batch's forward and backward pass; the argument is True for the last one of a step."""
    backward: Callable[[torch.Tensor], None]
    """Compute the gradient of this process' part of the step's loss; the parts of all processes are summed."""
    update: Callable[[float], float]
    """Clip, step the optimizer at a learning rate and clear the gradient; returns the gradient norm before clipping."""
    weight: Callable[[torch.nn.Parameter], torch.Tensor]
    """The full tensor of a parameter."""
    piece: Callable[[torch.nn.Parameter], StatePiece]
    """What this process holds of a parameter; nothing is sent."""
    set_moments: Callable[[torch.nn.Parameter, Moments], None]
    """Set the moments of this process' piece of a parameter, each flat; nothing is sent."""
    whole: bool
    """Whether the model itself holds the full weights."""
    sharded: bool
    """Whether the processes hold different pieces; otherwise each holds all."""
    release: Callable[[], None]
    """Release the devices; afterwards the model can be used again only if the kind is single."""


def one_device(
    network: torch.nn.Module, losses: Losses, optimizer: torch.optim.Optimizer, largest_norm: float
) -> Devices:
    """A model on one device, whose gradient is clipped to a norm of `largest_norm` (0: no clipping)."""
    no_context = contextlib.nullcontext()
    # Listed once: walking through all modules in each step is slow.
    parameters = list(network.parameters())

    def update(rate: float) -> float:
        for group in optimizer.param_groups:
            group["lr"] = rate
        norm = torch.nn.utils.clip_grad_norm_(parameters, largest_norm or math.inf)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        # Last, because it waits for the GPU.
        return float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)  # pyright: ignore

    def piece(parameter: torch.nn.Parameter) -> StatePiece:
        return StatePiece(tuple(parameter.shape), 0, parameter.detach(), dict(optimizer.state.get(parameter, {})))

    def set_moments(parameter: torch.nn.Parameter, moments: Moments) -> None:
        shaped = {key: value.view(parameter.shape) if value.ndim else value for key, value in moments.items()}
        optimizer.state[parameter] = {key: value.to(parameter.device) for key, value in shaped.items()}

    return Devices(
        parameters=dict(network.named_parameters()),
        losses=losses,
        evaluation=losses,
        accumulate=lambda last: no_context,
        backward=lambda loss: loss.backward(),
        update=update,
        weight=lambda parameter: parameter.detach(),
        piece=piece,
        set_moments=set_moments,
        whole=True,
        sharded=False,
        release=lambda: None,
    )


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
