"""MiniGrid and BabyAI: remember what lay in the first room, or do what a mission says.

Command: yamame train minigrid --env.name MiniGrid-MemoryS7-v0 --env.horizon 245
Cost: an environment step takes 0.1 ms of one core, 300,000 of them
Expected: not known yet; random actions earn 0.21, going straight to the right object 0.94

Any other id works too: give its own step limit as --env.horizon, and --env.mission-words where missions are long.
"""

from yamame.config import RunConfig
from yamame.envs.minigrid import MinigridConfig
from yamame.presets import default_config


def config(env: MinigridConfig = MinigridConfig()) -> RunConfig:  # noqa: B008
    """The run for an environment."""
    return default_config(env)
