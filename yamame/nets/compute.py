"""What the learner computes with: device, precision, compiler. Settings, and what they mean on this machine."""

import sys
import warnings
from dataclasses import dataclass, field
from typing import Literal

import torch

from yamame.errors import ConfigFieldError, check_range

MIN_COMPILED_UPDATES = 3000
"""Compiling costs 20-60 s and wins at most a third of an update: shorter runs do without (measured at popgym size)."""
MIN_BFLOAT16 = 128
"""On a CPU narrower layers lose more by casting than bfloat16 products win."""


@dataclass(frozen=True, kw_only=True)
class ComputeConfig:
    """How the learner computes. `auto` depends on the machine and on the config alone, never on a timing."""

    device: str = "auto"
    """Where to learn: cpu, cuda, cuda:1, … or auto (cuda where there is one)."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Type of matrix products and activations; weights, norms, values, losses and statistics are float32 in any case.
    auto: bfloat16 where the machine has units for it (GPU, AMX, AVX512-BF16)."""
    compile: Literal["auto", "on", "off"] = "auto"
    """Compile the network. auto: where it is known to pay (GPU, bfloat16) and the run is long enough."""
    cuda_graph: bool = True
    """On a GPU, record the update once for every shape of batch and replay it."""
    chunk_tokens: int = 0
    """Tokens that heads and losses take at once, which bounds their memory; 0: 8192."""

    def __post_init__(self) -> None:
        check_range(self, "chunk_tokens", ge=0)
        try:
            kind = "auto" if self.device == "auto" else torch.device(self.device).type
        except RuntimeError:
            kind = ""
        if kind not in ("auto", "cpu", "cuda"):
            raise ConfigFieldError(self, "device", f"must be auto, cpu, cuda or cuda:N, not {self.device!r}")


@dataclass(frozen=True, kw_only=True)
class Compute:
    """A `ComputeConfig` on a given machine. The default is the plainest: what every other choice is compared with."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    dtype: torch.dtype = torch.float32
    compile: bool = False
    cuda_graph: bool = False
    chunk_tokens: int = 8192

    def autocast(self) -> torch.autocast:
        """Products in `dtype`. Casts are not cached: within an update no weight is used twice."""
        enabled = self.dtype is not torch.float32
        return torch.autocast(self.device.type, self.dtype if enabled else None, enabled=enabled, cache_enabled=False)


CPU_FLOAT32 = Compute()
"""float32 on the CPU, not compiled."""


def resolve_compute(config: ComputeConfig, *, width: int, updates: int) -> Compute:
    """What to compute with here, for states of `width` and a run of so many updates.

    Raises `ConfigFieldError` for a device that is not there. A compiler that does not work costs one line on stderr.
    """
    device = _device(config)
    narrow = device.type == "cpu" and width < MIN_BFLOAT16
    wants_bfloat16 = config.dtype == "bfloat16" or (
        config.dtype == "auto" and supports_fast_bfloat16(device) and not narrow
    )
    pays = updates >= MIN_COMPILED_UPDATES and (device.type == "cuda" or wants_bfloat16)
    return Compute(
        device=device,
        dtype=torch.bfloat16 if wants_bfloat16 else torch.float32,
        compile=(config.compile == "on" or (config.compile == "auto" and pays)) and compiler_works(device),
        cuda_graph=config.cuda_graph and device.type == "cuda",
        chunk_tokens=config.chunk_tokens or Compute.chunk_tokens,
    )


def supports_fast_bfloat16(device: torch.device) -> bool:
    """Whether bfloat16 products are faster than float32 ones there."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    here = torch.cpu.get_capabilities()
    return any(here.get(units, False) for units in ("amx_bf16", "avx512_bf16"))


def compiler_works(device: torch.device) -> bool:
    """Whether `torch.compile` works: it does so for one tiny function. If not, says so in one line on stderr."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those of the compiler's own parts
            torch.compile(torch.neg)(torch.zeros(2, device=device))
    except Exception as error:  # whatever a missing or broken compiler may raise
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        print(f"not compiling: no working compiler ({reason}); going on without", file=sys.stderr)
        return False
    return True


def _device(config: ComputeConfig) -> torch.device:
    if config.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(config.device)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigFieldError(
            config, "device", f"is {config.device}, but PyTorch sees {torch.cuda.device_count()} GPUs"
        )
    return device
