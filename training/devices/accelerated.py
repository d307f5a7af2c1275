"""The devices of several processes through accelerate: DDP, FSDP2 and DeepSpeed's ZeRO.

The loop sets the learning rate: accelerate gets no scheduler. Each kind averages gradients over the processes, hence
the factor before every backward pass. The loss function does its own autocast over fp32 weights; gradients are fp32.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import warnings
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.utils import (
    DeepSpeedPlugin,
    DistributedDataParallelKwargs,
    DistributedType,
    FullyShardedDataParallelPlugin,
)
from torch.distributed.tensor import DTensor, Shard
from transformers import PreTrainedModel
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

from training.devices.group import Group, Parallel
from training.devices.single import Devices, Moments, StatePiece, adamw, one_device
from training.devices.zero_pieces import KEYS, fragment, partition, set_fragment, set_partition
from training.objectives import Losses
from training.spec import RunSpec


class _WithLoss(torch.nn.Module):
    """A model whose output is its loss, so that wrappers see complete forward passes."""

    def __init__(self, network: PreTrainedModel, losses: Losses) -> None:
        super().__init__()
        self.network = network
        self.config = network.config
        self._no_split_modules = network._no_split_modules
        self._losses = losses

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self._losses(tokens)


def ddp(network: PreTrainedModel, losses: Losses, spec: RunSpec, parallel: Parallel, group: Group) -> Devices:
    """Full model in every process; gradients are averaged after the last micro-batch."""
    options = DistributedDataParallelKwargs(gradient_as_bucket_view=True)
    accelerator = Accelerator(cpu=group.device.type == "cpu", kwargs_handlers=[options])
    model = accelerator.prepare(_WithLoss(network, losses))
    return dataclasses.replace(
        one_device(network, losses, adamw(network, spec), spec.optimizer.clip),
        losses=model,
        accumulate=_synchronising(accelerator, model),
        backward=lambda loss: (loss * group.count).backward(),
        release=lambda: _release(accelerator),
    )


def fsdp2(network: PreTrainedModel, losses: Losses, spec: RunSpec, parallel: Parallel, group: Group) -> Devices:
    """Weights, gradients and moments sharded by layer; the weights of a layer are gathered for each of its passes."""
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        reshard_after_forward=True,
        auto_wrap_policy="transformer_based_wrap",
        cpu_ram_efficient_loading=False,
    )
    if group.device.type == "cpu":
        PartialState(cpu=True)
        # accelerate does not shard on a CPU, though torch can.
        PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    accelerator = Accelerator(fsdp_plugin=plugin)
    optimizer = adamw(network, spec)
    model, _ = accelerator.prepare(_WithLoss(network, losses), optimizer)

    def piece(parameter: torch.nn.Parameter) -> StatePiece:
        assert isinstance(parameter, DTensor)
        assert parameter.placements == (Shard(0),)
        shape, mesh = tuple(parameter.shape), parameter.device_mesh
        # As torch.chunk splits rows: the last processes may have fewer, or none.
        row = min(mesh.get_local_rank() * -(-shape[0] // mesh.size()), shape[0])
        moments = {key: _local(value) for key, value in optimizer.state.get(parameter, {}).items()}
        return StatePiece(shape, row * math.prod(shape[1:]), _local(parameter.detach()), moments)

    def set_moments(parameter: torch.nn.Parameter, moments: Moments) -> None:
        assert isinstance(parameter, DTensor)
        local = parameter.to_local().shape
        whole = {"shape": parameter.shape, "stride": parameter.stride()}
        optimizer.state[parameter] = {
            key: value.to(group.device)
            if value.ndim == 0
            else DTensor.from_local(
                value.to(group.device).view(local), parameter.device_mesh, parameter.placements, **whole
            )
            for key, value in moments.items()
        }

    return dataclasses.replace(
        one_device(network, losses, optimizer, spec.optimizer.clip),
        losses=model,
        evaluation=model,
        accumulate=_synchronising(accelerator, model),
        backward=lambda loss: (loss * group.count).backward(),
        weight=lambda parameter: parameter.detach().full_tensor(),  # pyright: ignore[reportCallIssue]
        piece=piece,
        set_moments=set_moments,
        whole=False,
        sharded=True,
        release=lambda: _release(accelerator),
    )


def zero(network: PreTrainedModel, losses: Losses, spec: RunSpec, parallel: Parallel, group: Group) -> Devices:
    """DeepSpeed with sharded moments (stage 1), gradients (2) and weights (3)."""
    import deepspeed
    from deepspeed.utils import safe_get_full_fp32_param

    # DeepSpeed's calls raise one each time.
    warnings.filterwarnings("ignore", "`torch.distributed.* is deprecated", FutureWarning)
    # Its reduction through shared memory compiles for two minutes, and hangs when a process dies.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    stage = int(parallel.kind[-1])
    os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
    plugin = DeepSpeedPlugin(hf_ds_config=_configuration(parallel, stage))
    # Otherwise transformers builds every later model in shards, also those that first weights are copied from.
    unset_hf_deepspeed_config()
    batch, clip = spec.global_batch // group.count, spec.optimizer.clip
    run_settings = {"train_micro_batch_size_per_gpu": batch, "gradient_clipping": clip}
    for key in run_settings:
        plugin.fill_match(key, must_match=False, **run_settings)
    accelerator = Accelerator(deepspeed_plugin=plugin)
    engine, _ = accelerator.prepare(_WithLoss(network, losses), adamw(network, spec))
    outer, inner = engine.optimizer, engine.optimizer.optimizer
    parts = outer.fp32_partitioned_groups_flat if stage == 3 else outer.single_partition_of_fp32_groups
    for part in parts:
        # The initial state of AdamW. DeepSpeed links the moments of all parts after the first part's first step, when
        # those of the other parts would not exist yet.
        zeros = {key: torch.zeros_like(part) for key in KEYS}
        inner.state[part] = {"step": torch.zeros((), device=part.device), **zeros}
    if stage < 3:
        outer._lazy_init_hp_params_optimizer_state()

    @contextlib.contextmanager
    def accumulate(last: bool) -> Iterator[None]:
        engine.set_gradient_accumulation_boundary(last)
        yield

    def update(rate: float) -> float:
        for settings in outer.param_groups:
            settings["lr"] = rate
        engine.step()
        return float(engine.get_global_grad_norm())

    def piece(parameter: torch.nn.Parameter) -> StatePiece:
        step = inner.state[parts[0]]["step"]
        return partition(parameter, group.rank, step) if stage == 3 else fragment(parameter, step)

    def set_moments(parameter: torch.nn.Parameter, moments: Moments) -> None:
        for part in parts:
            inner.state[part]["step"].copy_(moments["step"])
        set_pieces = set_partition if stage == 3 else set_fragment
        set_pieces(parameter, {key: value.to(group.device) for key, value in moments.items()})

    return Devices(
        parameters=dict(network.named_parameters()),
        losses=engine,
        evaluation=engine.module,
        accumulate=accumulate,
        backward=lambda loss: engine.backward(loss * group.count),
        update=update,
        weight=lambda parameter: _required(safe_get_full_fp32_param(parameter)),
        piece=piece,
        set_moments=set_moments,
        whole=stage < 3,
        sharded=True,
        release=lambda: _release(accelerator, engine),
    )


def _configuration(parallel: Parallel, stage: int) -> dict[str, Any]:
    configuration = deepcopy(parallel.deepspeed)
    configuration.setdefault("train_micro_batch_size_per_gpu", "auto")
    configuration.setdefault("gradient_clipping", "auto")
    configuration.setdefault("zero_optimization", {})["stage"] = stage
    # The loop marks the last micro-batch and divides by the tokens of the step.
    return {**configuration, "gradient_accumulation_steps": 1, "zero_force_ds_cpu_optimizer": False}


def _synchronising(accelerator: Accelerator, model: torch.nn.Module) -> Any:
    return lambda last: contextlib.nullcontext() if last else accelerator.no_sync(model)


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _required(tensor: torch.Tensor | None) -> torch.Tensor:
    assert tensor is not None
    return tensor


def _release(accelerator: Accelerator, engine: Any = None) -> None:
    if engine is not None:
        engine.destroy()
    accelerator.free_memory()
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    os.environ.pop("ACCELERATE_USE_DEEPSPEED", None)
