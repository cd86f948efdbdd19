"""From the options of a bench to the config of a run, and to what is said of it."""

from dataclasses import asdict
from typing import Any

from yamame.bench.options import BenchOptions, SizedOptions
from yamame.environments.config import EnvConfig
from yamame.learning.compute import Compute
from yamame.run.config import RunConfig


def run_config(options: SizedOptions, env: EnvConfig, *, num_envs: int = 1) -> RunConfig:
    """A long run of a named size on some task."""
    return RunConfig(
        env=env,
        num_envs=num_envs,
        context_length=options.context,
        seed=options.seed,
        agent=options.network.agent(options.encoder),
        compute=options.compute,
    )


def describe_config(options: BenchOptions, compute: Compute) -> dict[str, Any]:
    """Every option, and under `compute` what `auto` came to."""
    resolved = {**asdict(compute), "device": str(compute.device), "dtype": str(compute.dtype).removeprefix("torch.")}
    return {**asdict(options), "compute": resolved}
