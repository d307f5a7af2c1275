"""What differs between one device and many: a few functions that the loop calls, made for the kind that is asked."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from training.devices.group import Group, Parallel
from training.engine import Losses
from training.spec import RunSpec

Moments = dict[str, torch.Tensor]
"""AdamW's state of one parameter: step, exp_avg, exp_avg_sq."""


@dataclass(frozen=True)
class Devices:
    """A model on its devices. With several processes every function is called by all of them, in the same order."""

    parameters: dict[str, torch.nn.Parameter]
    """By name, as this process holds them: perhaps a part of each."""
    losses: Losses
    """Loss by sequence, for training."""
    evaluation: Losses
    """The same, for evaluation."""
    accumulate: Callable[[bool], AbstractContextManager[object]]
    """Entered around the forward and backward pass of a micro-batch; says whether it is the step's last."""
    backward: Callable[[torch.Tensor], None]
    """Gradient of this process' part of the step's loss; the parts of all processes add up."""
    update: Callable[[float], float]
    """Clip, take the optimizer's step at a learning rate, drop the gradient; returns the gradient's norm before."""
    weight: Callable[[torch.nn.Parameter], torch.Tensor]
    """The whole of a parameter."""
    moments: Callable[[torch.nn.Parameter], Moments]
    """The whole of its moments; empty before its first step."""
    set_moments: Callable[[torch.nn.Parameter, Moments], None]
    """Take over moments; the tensors given are whole."""
    whole: bool
    """Whether the model itself still holds all weights."""
    release: Callable[[], None]
    """Let the devices go; the model is of no use after it unless the kind is single."""


def prepare(network: PreTrainedModel, losses: Losses, spec: RunSpec, parallel: Parallel, group: Group) -> Devices:
    """Bring a model with its first weights onto the devices of a run.

    Args:
        network: all weights, the same in every process.
        losses: its loss by sequence.
        spec: for the optimizer.
        parallel: the kind.
        group: the processes.
    """
    network.to(group.device)  # pyright: ignore[reportArgumentType]
    _checkpoint_activations(network, parallel.activation_checkpointing)
    if group.device.type != "cpu":
        losses = _on_device(losses, group.device)
    if parallel.kind == "single":
        return one_device(network, losses, adamw(network, spec), spec.optimizer.clip)
    from training.devices.accelerated import ddp, fsdp2, zero

    kind = {"ddp": ddp, "fsdp2": fsdp2}.get(parallel.kind, zero)
    return kind(network, losses, spec, parallel, group)


def one_device(
    network: torch.nn.Module, losses: Losses, optimizer: torch.optim.Optimizer, largest_norm: float
) -> Devices:
    """A whole model on one device; gradients are scaled down to a norm of `largest_norm` (0: left alone)."""
    no_context = contextlib.nullcontext()
    # Looked for once, and not by a walk through all modules in each step.
    parameters = list(network.parameters())

    def update(rate: float) -> float:
        for group in optimizer.param_groups:
            group["lr"] = rate
        norm = torch.nn.utils.clip_grad_norm_(parameters, largest_norm or math.inf)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        # Last, since a GPU has to finish for it.
        return float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)  # pyright: ignore

    def set_moments(parameter: torch.nn.Parameter, moments: Moments) -> None:
        optimizer.state[parameter] = {key: value.to(parameter.device) for key, value in moments.items()}

    return Devices(
        parameters=dict(network.named_parameters()),
        losses=losses,
        evaluation=losses,
        accumulate=lambda last: no_context,
        backward=lambda loss: loss.backward(),
        update=update,
        weight=lambda parameter: parameter.detach(),
        moments=lambda parameter: dict(optimizer.state.get(parameter, {})),
        set_moments=set_moments,
        whole=True,
        release=lambda: None,
    )


def adamw(network: torch.nn.Module, spec: RunSpec) -> torch.optim.AdamW:
    """Fused AdamW; weight decay on matrices, none on norms and biases."""
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


def _checkpoint_activations(network: PreTrainedModel, wanted: bool) -> None:
    # A model that a run before used may have it on.
    if wanted == any(getattr(module, "gradient_checkpointing", False) for module in network.modules()):
        return
    # Older transformers know the name with "gradient" only, newer ones warn of it.
    name = "activation" if hasattr(network, "activation_checkpointing_enable") else "gradient"
    if wanted:
        getattr(network, f"{name}_checkpointing_enable")({"use_reentrant": False})
    else:
        getattr(network, f"{name}_checkpointing_disable")()


def _on_device(losses: Losses, device: torch.device) -> Losses:
    return lambda tokens: losses(tokens.to(device, non_blocking=True))
