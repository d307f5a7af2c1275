"""What this process computes on: its name, and the precisions whose products it has instructions for."""

import platform
from pathlib import Path

import torch


def device_name() -> str:
    """Name of the GPU, or of the CPU where there is none."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), platform.processor() or platform.machine())


def fast_precisions() -> list[str]:
    """fp32, and bf16 where this machine has instructions for its products; else they are emulated, more slowly."""
    if torch.cuda.is_available():
        has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        has_bf16 = any(torch.cpu.get_capabilities().get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))
    return ["fp32", "bf16"] if has_bf16 else ["fp32"]
