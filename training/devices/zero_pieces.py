"""What a process holds of a parameter under DeepSpeed's ZeRO, whose optimizer sees flat tensors of many parameters."""

from __future__ import annotations

from typing import Any, cast

import torch

from training.devices.single import Moments, StatePiece

KEYS = ("exp_avg", "exp_avg_sq")


def partition(parameter: torch.nn.Parameter, rank: int, step: torch.Tensor) -> StatePiece:
    """Stage 3: the rank's of equal ranges of each parameter, of which the last may be cut or empty."""
    from deepspeed.utils import safe_get_local_fp32_param, safe_get_local_optimizer_state

    whole = cast(Any, parameter)
    weight = _required(safe_get_local_fp32_param(parameter))
    start = min(rank * weight.numel(), whole.ds_numel)
    # Padded at the end, so that all processes hold as much.
    length = min(weight.numel(), whole.ds_numel - start)
    moments = {key: _required(safe_get_local_optimizer_state(parameter, key))[:length] for key in KEYS}
    return StatePiece(tuple(whole.ds_shape), start, weight[:length], {"step": step, **moments})


def set_partition(parameter: torch.nn.Parameter, moments: Moments) -> None:
    """Set the moments of `partition`."""
    from deepspeed.utils import safe_set_local_optimizer_state

    for key in KEYS:
        padding = cast(Any, parameter).ds_tensor.numel() - moments[key].numel()
        safe_set_local_optimizer_state(parameter, torch.nn.functional.pad(moments[key], (0, padding)), key)


def fragment(parameter: torch.nn.Parameter, step: torch.Tensor) -> StatePiece:
    """Stages 1 and 2: what lies in this rank's range of all parameters in a row, often nothing or all."""
    held = cast(Any, parameter)._hp_mapping
    if held is None:
        return StatePiece(tuple(parameter.shape), 0, torch.empty(0), {})
    moments = {key: held.get_hp_fragment(key) for key in KEYS}
    start = held.lp_fragment_address.start
    return StatePiece(tuple(parameter.shape), start, held.get_hp_fragment(), {"step": step, **moments})


def set_fragment(parameter: torch.nn.Parameter, moments: Moments) -> None:
    """Set the moments of `fragment`."""
    held = cast(Any, parameter)._hp_mapping
    if held is not None:
        for key in KEYS:
            held.get_hp_fragment(key).copy_(moments[key])


def _required(tensor: torch.Tensor | None) -> torch.Tensor:
    assert tensor is not None
    return tensor
