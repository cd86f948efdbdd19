"""A config that trains in a second."""

from typing import Any

from tiny_network import TINY_NETWORK

from yamame.recipes import config_from_overrides, load_recipe
from yamame.run_config import RunConfig

TINY: dict[str, Any] = {
    "env.horizon": 3,
    "env_steps": 400,
    "num_envs": 8,
    "updates_per_env_step": 0.1,
    "replay.batch_size": 4,
    **TINY_NETWORK,
    "eval": {"trials": 8, "final_trials": 16, "num_envs": 8, "interval_env_steps": 100, "stop_return": None},
}


def tiny_config(**changes: Any) -> RunConfig:
    return config_from_overrides(load_recipe("passive-tmaze"), [], {**TINY, **changes})
