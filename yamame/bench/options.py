"""What all benches, or several of them, can be told."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch

from yamame.bench.sizes import SIZES, BenchNetwork
from yamame.learning.compute import ComputeConfig
from yamame.records.errors import ConfigFieldError
from yamame.records.limits import check_range


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """How to measure, and what to compute with."""

    repeats: int = 7
    """Measurements, of which the median is given, with the least and the greatest."""
    warmup: int = 5
    """Times that the work is done before it is measured; compilers and CUDA graphs need 5."""
    threads: int = 0
    """Threads of PyTorch; 0: as it chooses."""
    device: str = "auto"
    """auto, cpu or cuda."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Type of matrix products; auto: what a long run would use here."""
    compile: Literal["auto", "on", "off"] = "auto"
    """Compile the network; auto: as a long run would. `--compile` alone means on, `--no-compile` off."""

    def __post_init__(self) -> None:
        check_range(self, "repeats", "warmup", ge=1)
        check_range(self, "threads", ge=0)
        if self.device.startswith("cuda") and not torch.cuda.is_available():
            raise ConfigFieldError(self, "device", f"is {self.device}, but PyTorch sees no GPU: leave it out, or give cpu")
        try:
            _ = self.compute
        except ConfigFieldError as error:
            raise ConfigFieldError(self, error.field, error.problem) from error

    @property
    def compute(self) -> ComputeConfig:
        """The same as a run has it."""
        return ComputeConfig(device=self.device, dtype=self.dtype, compile=self.compile)

    def use_threads(self) -> None:
        """Tell PyTorch how many threads to use from now on in this process."""
        if self.threads:
            torch.set_num_threads(self.threads)


@dataclass(frozen=True, kw_only=True)
class SizedOptions(BenchOptions):
    """For benches of a network of a named size."""

    size: str = "popgym"
    """popgym, delivery, tmaze or crafter: the paper's network for it."""
    encoder: Literal["transformer", "gru"] = "transformer"
    """Trajectory encoder."""
    context: int = 128
    """Transitions in a training window and in the memory of the policy."""
    seed: int = 0
    """Seed of weights and data."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "context", ge=1)
        check_range(self, "seed", ge=0)
        if self.size not in SIZES:
            raise ConfigFieldError(self, "size", f"{self.size!r} is unknown: {suggest(self.size, list(SIZES))}")

    @property
    def network(self) -> BenchNetwork:
        """The size of that name."""
        return SIZES[self.size]


@dataclass(frozen=True, kw_only=True)
class BatchOptions(SizedOptions):
    """For benches of what batches are made of."""

    batch: int = 24
    """Windows in a batch."""
    lengths: Literal["full", "uniform"] = "full"
    """Transitions of a window: the whole context, or from 20 to it, evenly spread."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "batch", ge=1)

    @property
    def window_lengths(self) -> list[int]:
        """Transitions of each window; `uniform` takes quantiles of that distribution, so that any batch is typical."""
        if self.lengths == "full":
            return [self.context] * self.batch
        shortest = min(20, self.context)
        return [round(shortest + (self.context - shortest) * (i + 0.5) / self.batch) for i in range(self.batch)]


def suggest(name: str, known: Sequence[str]) -> str:
    """What to say to a name that is not known."""
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {nearest[0]!r}?" if nearest else f"give {', '.join(known[:-1])} or {known[-1]}"


def spell_out_switches(flags: Sequence[str]) -> list[str]:
    """`--compile` without a value becomes `--compile on`, `--no-compile` becomes `--compile off`."""

    def spelt(flag: str, after: str) -> tuple[str, ...]:
        if flag == "--no-compile":
            return "--compile", "off"
        return ("--compile", "on") if flag == "--compile" and after.startswith("-") else (flag,)

    return [part for flag, after in pairwise([*flags, "--"]) for part in spelt(flag, after)]
