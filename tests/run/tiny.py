"""A config that trains in a second."""

from typing import Any

from yamame.run.config import RunConfig
from yamame.settings.catalogue import load_recipe
from yamame.settings.resolve import settings_from_overrides

TINY: dict[str, Any] = {
    "env.horizon": 3,
    "env_steps": 400,
    "num_envs": 8,
    "replay.batch_size": 4,
    "agent.timestep_encoder": {"hidden": (8,), "width": 8},
    "agent.trajectory_encoder": {"width": 8, "layers": 1, "heads": 2, "feedforward": 16},
    "agent.actor.hidden": (8,),
    "agent.critic.hidden": (8,),
    "evaluation": {"trials": 8, "final_trials": 16, "num_envs": 8, "every_env_steps": 100, "solved_return": None},
}


def tiny_config(**changes: Any) -> RunConfig:
    return settings_from_overrides(load_recipe("passive-tmaze"), [], {**TINY, **changes})
