"""The devices of several processes: torch's FSDP2, and through accelerate DDP and DeepSpeed's ZeRO.

The loop sets the learning rate: accelerate gets no scheduler. Each kind averages gradients over the processes, hence
the factor before every backward pass. The loss function does its own autocast over fp32 weights; gradients are fp32.
"""

import contextlib
import math
import os
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager
from copy import deepcopy
from typing import Any, cast

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import DeepSpeedPlugin, DistributedDataParallelKwargs
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from transformers import PreTrainedModel
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

from training.devices.group import Group, Parallel
from training.devices.single import Devices, Moments, StatePiece, adamw
from training.objectives import Losses
from training.spec import RunSpec

_KEYS = ("exp_avg", "exp_avg_sq")


class _WithLoss(torch.nn.Module):
    """A model whose output is its loss, so that wrappers see complete forward passes."""

    def __init__(self, network: PreTrainedModel, losses: Losses) -> None:
        super().__init__()
        self.network = network
        self.config = network.config
        self._losses = losses

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self._losses(tokens)


class Ddp(Devices):
    """Full model in every process; gradients are averaged after the last micro-batch of a step."""

    def __init__(self, network: PreTrainedModel, losses: Losses, spec: RunSpec, group: Group) -> None:
        options = DistributedDataParallelKwargs(gradient_as_bucket_view=True)
        self._accelerator = Accelerator(cpu=group.device.type == "cpu", kwargs_handlers=[options])
        self._model, self._group = self._accelerator.prepare(_WithLoss(network, losses)), group
        super().__init__(network, losses, spec)
        self.losses = self._model

    def accumulate(self, last: bool) -> AbstractContextManager[object]:
        return contextlib.nullcontext() if last else self._accelerator.no_sync(self._model)

    def backward(self, loss: torch.Tensor) -> None:
        (loss * self._group.count).backward()

    def release(self) -> None:
        _release(self._accelerator)


class Fsdp2(Devices):
    """Weights, gradients and moments sharded by layer; the weights of a layer are gathered for each of its passes.

    Under bf16 they are gathered in bf16, while gradients are summed over processes and micro-batches in fp32. The ranks
    of a replica are neighbours; gradients are then summed over the replicas.
    """

    whole = False
    sharded = True

    def __init__(
        self, network: PreTrainedModel, losses: Losses, spec: RunSpec, group: Group, parallel: Parallel
    ) -> None:
        self._group, model = group, _WithLoss(network, losses)
        self.is_copy = group.rank >= parallel.shards
        if parallel.replicas == 1:
            mesh = init_device_mesh(group.device.type, (group.count,))
        else:
            sizes = (parallel.replicas, parallel.shards)
            mesh = init_device_mesh(group.device.type, sizes, mesh_dim_names=("replicas", "shards"))
        names, embedding = network._no_split_modules or (), network.get_input_embeddings()
        half = torch.bfloat16 if spec.precision == "bf16" else None
        policy = MixedPrecisionPolicy(half, torch.float32, cast_forward_inputs=False)
        # As under autocast on one device norms are fp32, and so is what they get; one group gathers all of them once.
        if norms := [module for module in network.modules() if _is_norm(module)]:
            fully_shard(norms, mesh=mesh, reshard_after_forward=False)
        for layer in [module for module in network.modules() if type(module).__name__ in names]:
            # BERT's embeddings are such a module too, but share their weight with the head.
            if embedding not in layer.modules():
                fully_shard(layer, mesh=mesh, mp_policy=policy)
        # Embedding and head, gathered once a micro-batch, are fp32 too; if tied, their gradients' sum is.
        fully_shard(model, mesh=mesh)
        super().__init__(network, model, spec)

    def backward(self, loss: torch.Tensor) -> None:
        # Each micro-batch's gradients are sharded: summed whole they would take as much memory as the whole weights.
        (loss * self._group.count).backward()

    def weight(self, parameter: torch.nn.Parameter) -> torch.Tensor:
        return parameter.detach().full_tensor()  # pyright: ignore[reportAttributeAccessIssue]

    def piece(self, parameter: torch.nn.Parameter) -> StatePiece:
        assert isinstance(parameter, DTensor)
        assert parameter.placements in ((Shard(0),), (Replicate(), Shard(0)))
        shape, mesh = tuple(parameter.shape), parameter.device_mesh
        of_shards = mesh.ndim - 1
        # As torch.chunk splits rows: the last processes may have fewer, or none.
        row = min(mesh.get_local_rank(of_shards) * -(-shape[0] // mesh.size(of_shards)), shape[0])
        moments = {key: _local(value) for key, value in self._optimizer.state.get(parameter, {}).items()}
        return StatePiece(shape, row * math.prod(shape[1:]), _local(parameter.detach()), moments)

    def set_moments(self, parameter: torch.nn.Parameter, moments: Moments) -> None:
        assert isinstance(parameter, DTensor)
        local, mesh = parameter.to_local().shape, parameter.device_mesh
        whole = {"shape": parameter.shape, "stride": parameter.stride()}
        on_device = {key: value.to(self._group.device) for key, value in moments.items()}
        self._optimizer.state[parameter] = {
            key: DTensor.from_local(value.view(local), mesh, parameter.placements, **whole) if value.ndim else value
            for key, value in on_device.items()
        }


class Zero(Devices):
    """DeepSpeed with sharded moments (stage 1), gradients (2) and weights (3)."""

    sharded = True

    def __init__(
        self, network: PreTrainedModel, losses: Losses, spec: RunSpec, group: Group, parallel: Parallel
    ) -> None:
        import deepspeed

        # DeepSpeed's calls raise one each time.
        warnings.filterwarnings("ignore", "`torch.distributed.* is deprecated", FutureWarning)
        # Its reduction through shared memory compiles for two minutes, and hangs when a process dies.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        self._group, self._stage = group, int(parallel.kind[-1])
        os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
        plugin = DeepSpeedPlugin(hf_ds_config=_configuration(parallel, self._stage))
        batch, clip = spec.global_batch // group.count, spec.optimizer.clip
        run_settings = {"train_micro_batch_size_per_gpu": batch, "gradient_clipping": clip}
        for key in run_settings:
            plugin.fill_match(key, must_match=False, **run_settings)
        # The optimizer first: in parts a matrix looks like a vector.
        self._accelerator, optimizer = Accelerator(deepspeed_plugin=plugin), adamw(network, spec)
        if self._stage == 3:
            # A tensor at a time goes to the device, which keeps its part; later the whole model would.
            sharding = {**run_settings, "zero_optimization": plugin.deepspeed_config["zero_optimization"]}
            deepspeed.zero.Init(network, config_dict_or_path=sharding)
            for buffer in network.buffers():
                buffer.data = buffer.to(group.device)
        self._engine, _ = self._accelerator.prepare(_WithLoss(network, losses), optimizer)
        # Otherwise transformers builds every later model in shards, also those that are built to be counted.
        unset_hf_deepspeed_config()
        super().__init__(network, self._engine, spec, self._engine.optimizer.optimizer)
        self.evaluation, self.whole, outer = self._engine.module, self._stage < 3, self._engine.optimizer
        self._parts = outer.fp32_partitioned_groups_flat if self._stage == 3 else outer.single_partition_of_fp32_groups
        for part in self._parts:
            # The initial state of AdamW. DeepSpeed links the moments of all parts after the first part's first step,
            # when those of the other parts would not exist yet.
            zeros = {key: torch.zeros_like(part) for key in _KEYS}
            self._optimizer.state[part] = {"step": torch.zeros((), device=part.device), **zeros}
        if self._stage < 3:
            outer._lazy_init_hp_params_optimizer_state()

    @contextlib.contextmanager
    def accumulate(self, last: bool) -> Iterator[None]:
        self._engine.set_gradient_accumulation_boundary(last)
        yield

    def backward(self, loss: torch.Tensor) -> None:
        self._engine.backward(loss * self._group.count)

    def update(self, rate: float) -> float:
        for settings in self._engine.optimizer.param_groups:
            settings["lr"] = rate
        self._engine.step()
        return float(self._engine.get_global_grad_norm())

    def weight(self, parameter: torch.nn.Parameter) -> torch.Tensor:
        from deepspeed.utils import safe_get_full_fp32_param

        return _required(safe_get_full_fp32_param(parameter))

    def piece(self, parameter: torch.nn.Parameter) -> StatePiece:
        from deepspeed.utils import safe_get_local_fp32_param, safe_get_local_optimizer_state

        step, whole = {"step": self._optimizer.state[self._parts[0]]["step"]}, cast(Any, parameter)
        if self._stage < 3:
            # What lies in this rank's range of all parameters in a row, often nothing or all.
            if (held := whole._hp_mapping) is None:
                return StatePiece(tuple(parameter.shape), 0, torch.empty(0), {})
            moments = {key: held.get_hp_fragment(key) for key in _KEYS}
            start = held.lp_fragment_address.start
            return StatePiece(tuple(parameter.shape), start, held.get_hp_fragment(), step | moments)
        # The rank's of equal ranges of each parameter, of which the last may be cut or empty; padded at the end.
        weight = _required(safe_get_local_fp32_param(parameter))
        start = min(self._group.rank * weight.numel(), whole.ds_numel)
        length = min(weight.numel(), whole.ds_numel - start)
        moments = {key: _required(safe_get_local_optimizer_state(parameter, key))[:length] for key in _KEYS}
        return StatePiece(tuple(whole.ds_shape), start, weight[:length], step | moments)

    def set_moments(self, parameter: torch.nn.Parameter, moments: Moments) -> None:
        from deepspeed.utils import safe_set_local_optimizer_state

        for part in self._parts:
            self._optimizer.state[part]["step"].copy_(moments["step"])
        whole = cast(Any, parameter)
        for key in _KEYS:
            values = moments[key].to(self._group.device)
            if self._stage == 3:
                padding = whole.ds_tensor.numel() - values.numel()
                safe_set_local_optimizer_state(parameter, torch.nn.functional.pad(values, (0, padding)), key)
            elif whole._hp_mapping is not None:
                whole._hp_mapping.get_hp_fragment(key).copy_(values)

    def release(self) -> None:
        self._engine.destroy()
        _release(self._accelerator)


def _is_norm(module: torch.nn.Module) -> bool:
    own = list(module.parameters(recurse=False))
    return bool(own) and all(parameter.ndim < 2 for parameter in own) and not list(module.children())


def _configuration(parallel: Parallel, stage: int) -> dict[str, Any]:
    configuration = deepcopy(parallel.deepspeed)
    configuration.setdefault("train_micro_batch_size_per_gpu", "auto")
    configuration.setdefault("gradient_clipping", "auto")
    configuration.setdefault("zero_optimization", {})["stage"] = stage
    # The loop marks the last micro-batch and divides by the tokens of the step.
    return {**configuration, "gradient_accumulation_steps": 1, "zero_force_ds_cpu_optimizer": False}


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _required(tensor: torch.Tensor | None) -> torch.Tensor:
    assert tensor is not None
    return tensor


def _release(accelerator: Accelerator) -> None:
    accelerator.free_memory()
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    os.environ.pop("ACCELERATE_USE_DEEPSPEED", None)
