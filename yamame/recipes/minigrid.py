"""MiniGrid and BabyAI: remember an object of the first room, or follow a mission.

Command: yamame train minigrid --env.name MiniGrid-MemoryS7-v0 --env.horizon 245 --env-steps 150000
Minutes: 9
Score: not measured
Cost: 300,000 environment steps, which take 0.1 ms each on one core
Expected: not known yet; random actions earn 0.21, the shortest way to the right object 0.94

For another id, set --env.horizon to its step limit, and --env.mission-words if missions are long.
"""

from yamame.config import RunConfig
from yamame.envs.minigrid import MinigridConfig
from yamame.paper import paper_config
from yamame.presets import default_config


def config(env: MinigridConfig = MinigridConfig(), *, env_steps: int = 300_000) -> RunConfig:
    """The run for an environment."""
    return default_config(env, env_steps=env_steps)


def paper(env: MinigridConfig = MinigridConfig()) -> RunConfig:
    """The paper's settings for other domains, since it has no experiment with these."""
    return paper_config(env)
