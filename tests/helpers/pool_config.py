"""A run with collectors, of which each part takes a moment."""

from dataclasses import replace
from typing import Any

from tiny import TINY_NETWORK

from yamame.recipes import config_from_overrides, load_recipe
from yamame.run_config import RunConfig

TINY: dict[str, Any] = {
    "env.horizon": 3,
    "env_steps": 400,
    "num_envs": 8,
    "replay.batch_size": 4,
    **TINY_NETWORK,
    "eval": {"trials": 8, "final_trials": 8, "num_envs": 8, "interval_env_steps": 0, "stop_return": None},
}


def pool_config(collectors: int = 2, **changes: Any) -> RunConfig:
    """T-mazes of 4 steps, in iterations of 32."""
    config = config_from_overrides(load_recipe("passive-tmaze"), [], {**TINY, **changes})
    return replace(config, ray=replace(config.ray, address="local", num_collectors=collectors))
