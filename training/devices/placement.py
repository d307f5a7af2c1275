"""Place a model on the devices of a run."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from training.devices.group import Group, Parallel
from training.devices.single import Devices, adamw, one_device
from training.objectives import Losses
from training.spec import RunSpec


def place_model(network: PreTrainedModel, losses: Losses, spec: RunSpec, parallel: Parallel, group: Group) -> Devices:
    """Place a model with its full first weights, the same in every process, on the devices of a run."""
    network.to(group.device)  # pyright: ignore[reportArgumentType]
    _set_activation_checkpointing(network, parallel.activation_checkpointing)
    if group.device.type != "cpu":
        losses = _on_device(losses, group.device)
    if parallel.kind == "single":
        return one_device(network, losses, adamw(network, spec), spec.optimizer.clip)
    # Imported late: accelerate takes seconds, which a run on one device need not spend.
    from training.devices.accelerated import ddp, fsdp2, zero

    kind = {"ddp": ddp, "fsdp2": fsdp2}.get(parallel.kind, zero)
    return kind(network, losses, spec, parallel, group)


def _set_activation_checkpointing(network: PreTrainedModel, enabled: bool) -> None:
    # The model may have served an earlier run that enabled it.
    if enabled == any(getattr(module, "gradient_checkpointing", False) for module in network.modules()):
        return
    # Older transformers know the name with "gradient" only, newer ones warn of it.
    name = "activation" if hasattr(network, "activation_checkpointing_enable") else "gradient"
    if enabled:
        getattr(network, f"{name}_checkpointing_enable")({"use_reentrant": False})
    else:
        getattr(network, f"{name}_checkpointing_disable")()


def _on_device(losses: Losses, device: torch.device) -> Losses:
    return lambda tokens: losses(tokens.to(device, non_blocking=True))
