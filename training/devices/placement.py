"""Place a model on the devices of a run."""

from transformers import PreTrainedModel

from training.devices.graphed import Graphed
from training.devices.group import Group
from training.devices.single import Devices
from training.objectives import Losses
from training.spec import Parallel, RunSpec


def place_model(network: PreTrainedModel, losses: Losses, spec: RunSpec, parallel: Parallel, group: Group) -> Devices:
    """Place a model on the devices of a run: with its full first weights, the same in every process. Under zero3 the
    first process needs them alone; under fsdp2 they may also be set afterwards.
    """
    if parallel.kind not in ("fsdp2", "zero3"):  # They move a layer or a tensor at a time, and keep a part of it.
        network.to(group.device)  # pyright: ignore[reportArgumentType]
    _set_activation_checkpointing(network, bool(parallel.activation_checkpointing))
    if group.device.type != "cpu":
        on_device = losses
        losses = lambda tokens: on_device(tokens.to(group.device, non_blocking=True))  # noqa: E731
    if parallel.kind == "single":
        return (Graphed if group.device.type == "cuda" else Devices)(network, losses, spec)
    # Imported late: accelerate takes seconds, which a run on one device need not spend.
    from training.devices.accelerated import Ddp, Fsdp2, Zero

    if parallel.kind == "ddp":
        return Ddp(network, losses, spec, group)
    return (Fsdp2 if parallel.kind == "fsdp2" else Zero)(network, losses, spec, group, parallel)


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
