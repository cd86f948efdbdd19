"""Options of the benchmarks."""

import difflib
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Literal

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from typing_extensions import override

from yamame.algorithms.amago.agent import AgentConfig
from yamame.algorithms.amago.config import AMAGOConfig
from yamame.data.batch import Batch, Window, pack
from yamame.data.sampler import ReplayConfig
from yamame.data.trajectory import Trajectory
from yamame.envs.config import EnvConfig
from yamame.envs.env_fn import EnvFnConfig
from yamame.errors import ConfigFieldError, UserError, check_range
from yamame.nets.compute import Compute, ComputeConfig
from yamame.nets.sequence.base import model_config
from yamame.nets.sequence.transformer import TransformerConfig
from yamame.recipes.settings.sizes import SIZES as NETWORKS
from yamame.recipes.settings.sizes import NetworkSize
from yamame.run_config import RunConfig
from yamame.tools.bench.measure import BenchResult, describe_machine

_COMPUTE_FLAG = re.compile(r"^--compute\.(device|dtype|compile)(?==|$)")
"""A recipe's flag for which the benchmarks have one of their own."""
_WITHOUT_EFFECT = {
    "--eval.": "the runs of this benchmark make no evaluations",
    "--num-learners": "the runs of this benchmark have one learner",
    "--offline.total-updates": "--env-steps is the length of the runs of this benchmark",
}
"""Start of a recipe's flag that `end-to-end` refuses -> why."""


@dataclass(frozen=True, kw_only=True)
class BenchNetwork(NetworkSize):
    """A network (paper, appendix, table 3) and its spaces. Always 4 critics and 18 gammas."""

    observation: int
    """Size of an observation."""
    actions: int
    """Number of discrete actions."""
    transformer: TransformerConfig | None = None
    """Transformer of sizes that `encoder_size` has no name for."""

    def agent(self, encoder: str) -> AgentConfig:
        """Return the agent with a trajectory encoder, as wide and as deep as the size's Transformer."""
        agent = self.apply_to(AgentConfig())
        sized = model_config(encoder, like=self.transformer or agent.trajectory_encoder)
        return replace(agent, trajectory_encoder=sized)

    def task(self, length: int) -> EnvFnConfig:
        """Return a task with these spaces and trials of `length` steps."""
        return EnvFnConfig(env_fn=lambda: _Noise(self.observation, self.actions), horizon=length)

    def random_trajectory(self, rng: np.random.Generator, length: int, horizon: int) -> Trajectory:
        """Return a trajectory of the task filled with noise."""
        last = np.arange(length) == length - 1
        return Trajectory(
            reward=rng.normal(size=length).astype(np.float32),
            action=rng.integers(self.actions, size=length),
            terminated=np.zeros(length, np.bool_),
            truncated=last,
            episode_start=np.arange(length + 1) == 0,
            observation={"observation": rng.normal(size=(length + 1, self.observation)).astype(np.float32)},
            horizon=horizon,
        )


SIZES: Mapping[str, BenchNetwork] = {
    **{name: BenchNetwork(observation=16, actions=8, **vars(network)) for name, network in NETWORKS.items()},
    "popgym": BenchNetwork(observation=16, actions=8, **vars(NETWORKS["base"])),
    "delivery": BenchNetwork(
        observation=35,  # 3 of the road, 32 of the embedded instruction
        actions=8,
        timestep_hidden=(128, 128),
        timestep_width=128,
        transformer=TransformerConfig(d_model=128, d_ff=512, num_layers=3, num_heads=8),
    ),
    "tmaze": BenchNetwork(
        observation=2,
        actions=4,
        timestep_hidden=(128, 128),
        timestep_width=128,
        transformer=TransformerConfig(d_model=128, d_ff=512, num_layers=2, num_heads=8),
    ),
    "crafter": BenchNetwork(
        observation=273,  # 7 x 9 embedded textures of 4 numbers, 21 of the inventory
        actions=17,
        **vars(NETWORKS["large"]),
    ),
}
"""The sizes of `yamame train`, and the networks of four experiments of the paper."""


class _Noise(gymnasium.Env[np.ndarray, np.int64]):
    """Returns noise and zero rewards, never ends."""

    def __init__(self, observation: int, actions: int) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (observation,), np.float32)
        self.action_space = spaces.Discrete(actions)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        return self._observe(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        return self._observe(), 0.0, False, False, {}

    def _observe(self) -> np.ndarray:
        return self.np_random.standard_normal(self.observation_space.shape, np.float32)


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """Options of all benchmarks."""

    repeats: int = 7
    """Timed repeats; median, minimum and maximum are reported."""
    warmup: int = 5
    """Untimed calls before; compilers and CUDA graphs need 5."""
    threads: int = 0
    """PyTorch threads; 0: default."""
    device: str = "auto"
    """auto, cpu or cuda."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Type of matrix products; auto: that of a long run."""
    compile: Literal["auto", "on", "off"] = "auto"
    """Whether to compile the network; auto: as for a long run. `--compile` alone means on, `--no-compile` off."""

    def __post_init__(self) -> None:
        check_range(self, "repeats", "warmup", ge=1)
        check_range(self, "threads", ge=0)
        if self.device.startswith("cuda") and not torch.cuda.is_available():
            raise ConfigFieldError(
                self, "device", f"is {self.device}, but PyTorch finds no GPU: remove it, or give cpu"
            )
        try:
            _ = self.compute
        except ConfigFieldError as error:
            raise ConfigFieldError(self, error.field, error.problem) from error

    @property
    def compute(self) -> ComputeConfig:
        """The compute config of a run."""
        return ComputeConfig(device=self.device, dtype=self.dtype, compile=self.compile)

    def use_threads(self) -> None:
        """Set the number of PyTorch threads of this process."""
        if self.threads:
            torch.set_num_threads(self.threads)

    def print_warmup(self, compute: Compute, unit: str) -> None:
        """Print on stderr that the warm-up starts, and whether it compiles the network."""
        compiles = ", which compiles the network and can take minutes" if compute.compile else ""
        plural = "s" if self.warmup > 1 else ""
        print(f"{compute}: warming up with {self.warmup} {unit}{plural}{compiles}", file=sys.stderr, flush=True)

    def result(
        self, bench: str, compute: Compute, samples: Mapping[str, Sequence[float]], scalars: Mapping[str, float | int]
    ) -> BenchResult:
        """Return a result with every option, the resolved compute options and the machine."""
        resolved = {
            **asdict(compute),
            "device": str(compute.device),
            "dtype": str(compute.dtype).removeprefix("torch."),
        }
        return BenchResult(
            bench=bench,
            samples=samples,
            scalars=scalars,
            config={**asdict(self), "compute": resolved},
            machine=describe_machine(compute.device),
        )


@dataclass(frozen=True, kw_only=True)
class SizedOptions(BenchOptions):
    """Options of benchmarks of a network."""

    size: str = "popgym"
    """Network: tiny, small, base or large, as of `yamame train`, or that of an experiment of the paper: popgym,
    delivery, tmaze or crafter."""
    encoder: Literal["transformer", "gru"] = "transformer"
    """Trajectory encoder."""
    context: int = 128
    """Transitions per training window and in the policy memory."""
    seed: int = 0
    """Seed of weights and data."""
    cuda_graph: bool = True
    """On a GPU, capture updates and steps of the policy as CUDA graphs."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "context", ge=1)
        check_range(self, "seed", ge=0)
        if self.size not in SIZES:
            raise ConfigFieldError(self, "size", f"{self.size!r} is unknown: {suggest(self.size, list(SIZES))}")

    @property
    @override
    def compute(self) -> ComputeConfig:
        return replace(super().compute, cuda_graph=self.cuda_graph)

    @property
    def network(self) -> BenchNetwork:
        """The network of that size."""
        return SIZES[self.size]


@dataclass(frozen=True, kw_only=True)
class BatchOptions(SizedOptions):
    """Options of benchmarks of batches."""

    batch: int = 24
    """Windows per batch."""
    lengths: Literal["full", "uniform"] = "full"
    """Transitions per window: the context, or evenly spaced from 20 to it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "batch", ge=1)

    @property
    def window_lengths(self) -> list[int]:
        """Transitions of each window; `uniform` takes the quantiles of the distribution."""
        if self.lengths == "full":
            return [self.context] * self.batch
        shortest = min(20, self.context)
        return [round(shortest + (self.context - shortest) * (i + 0.5) / self.batch) for i in range(self.batch)]


def suggest(name: str, known: Sequence[str]) -> str:
    """Return a hint for an unknown name."""
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {nearest[0]!r}?" if nearest else f"give {', '.join(known[:-1])} or {known[-1]}"


def spell_out_switches(flags: Sequence[str]) -> list[str]:
    """Replace `--compile` without a value by `--compile on`, `--no-compile` by `--compile off`."""

    def expand(flag: str, after: str) -> tuple[str, ...]:
        if flag == "--no-compile":
            return "--compile", "off"
        return ("--compile", "on") if flag == "--compile" and after.startswith("-") else (flag,)

    return [part for flag, after in pairwise([*flags, "--"]) for part in expand(flag, after)]


def split_flags(flags: Sequence[str], known: Collection[str]) -> tuple[list[str], list[str]]:
    """Separate the known flags, those of `end-to-end`, from those of its recipe.

    Raises `UserError` for a flag of the recipe that has no effect there.
    """
    own: list[str] = []
    of_recipe: list[str] = []
    goes_to = own
    for flag in spell_out_switches([_COMPUTE_FLAG.sub(r"--\1", flag) for flag in flags]):
        if flag.startswith("--") or flag == "-h":
            name = flag.partition("=")[0].replace("_", "-")
            for start, reason in _WITHOUT_EFFECT.items():
                if name.startswith(start):
                    raise UserError(f"{name} has no effect: {reason}; remove it")
            goes_to = own if name in known else of_recipe
        goes_to.append(flag)
    return own, of_recipe


def run_config(options: SizedOptions, env: EnvConfig, *, num_envs: int = 1) -> RunConfig:
    """Return the config of a long run of this network on a task."""
    return RunConfig(
        env=env,
        num_envs=num_envs,
        context_length=options.context,
        seed=options.seed,
        algorithm=AMAGOConfig(agent=options.network.agent(options.encoder)),
        compute=options.compute,
    )


def pack_windows(options: BatchOptions, replay: ReplayConfig) -> Batch:
    """Return a packed batch of noise with windows of `options.window_lengths`."""
    rng = np.random.default_rng(options.seed)
    trials = [options.network.random_trajectory(rng, length, options.context) for length in options.window_lengths]
    windows = [Window(trajectory=trial, start=0, length=len(trial)) for trial in trials]
    padding = replay.resolve_padding(options.context, cuda_graphs=False)
    return pack(
        windows,
        pad_tokens_to_multiple_of=padding.pad_tokens_to_multiple_of,
        pad_seqlen_to_multiple_of=padding.pad_seqlen_to_multiple_of,
    )
