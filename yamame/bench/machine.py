"""The machine that figures belong to."""

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from yamame.environments.adapters.placement import available_cores

_ISA = ("avx2", "avx512_f", "avx512_bf16", "amx_tile", "amx_bf16", "amx_fp16", "neon", "sve", "bf16")
"""The capabilities of a CPU that decide how fast products are."""


def describe_machine(device: torch.device) -> dict[str, Any]:
    """CPU, cores, instruction sets, memory, versions, threads of PyTorch, and the GPU if that is what computes."""
    capabilities = torch.cpu.get_capabilities()
    return {
        "cpu": _cpu_model(),
        "cores": available_cores(),
        "isa": [name for name in _ISA if capabilities.get(name)],
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def format_machine(machine: Mapping[str, Any]) -> str:
    """One line of it."""
    isa, gpu = " ".join(machine["isa"]) or "no vector units known", f"{machine['gpu']}, " if machine["gpu"] else ""
    return (
        f"{gpu}{machine['cpu']}, {machine['cores']} cores ({isa}), {machine['memory_gib']} GiB, "
        f"{machine['threads']} threads, PyTorch {machine['torch']}, Python {machine['python']}, {machine['system']}"
    )


def _cpu_model() -> str:
    try:
        about = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    models = [line.partition(":")[2].strip() for line in about.splitlines() if line.startswith("model name")]
    return models[0] if models else platform.processor()
