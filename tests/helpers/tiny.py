"""The tiny network of whole runs: as settings, as flags of the command line and in a config that trains in a second."""

from collections.abc import Mapping
from typing import Any

from yamame.recipes import config_from_overrides, load_recipe
from yamame.run_config import RunConfig

TINY_NETWORK: dict[str, Any] = {
    "agent.timestep_encoder": {"hidden_sizes": (8,), "output_size": 8},
    "agent.trajectory_encoder": {"d_model": 8, "num_layers": 1, "num_heads": 2, "d_ff": 16},
    "agent.actor.hidden_sizes": (8,),
    "agent.critic.hidden_sizes": (8,),
}

TINY_RUN: dict[str, Any] = {
    "num_envs": 4,
    "replay.batch_size": 2,
    **TINY_NETWORK,
    "eval": {"trials": 4, "final_trials": 4, "num_envs": 4, "interval_env_steps": 0},
}

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


def as_flags(settings: Mapping[str, Any], path: str = "--") -> list[str]:
    """The words of a command line that stand for settings."""
    words = []
    for name, value in settings.items():
        flag = path + name.replace("_", "-")
        if isinstance(value, Mapping):
            words += as_flags(value, f"{flag}.")
        else:
            words += [flag, *map(str, value if isinstance(value, tuple) else (value,))]
    return words
