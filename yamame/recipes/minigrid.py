"""For another id, set --env.horizon to its step limit, and --env.mission-words if missions are long."""

from yamame.envs.minigrid import MinigridConfig
from yamame.recipes import RecipeInfo
from yamame.recipes.settings.paper import paper_config
from yamame.recipes.settings.presets import default_config
from yamame.run_config import RunConfig

RECIPE = RecipeInfo(
    summary="MiniGrid and BabyAI: remember an object of the first room, or follow a mission.",
    command="yamame train minigrid --env.name MiniGrid-MemoryS7-v0 --env.horizon 245",
    minutes="13",
    score="0.98 (random 0.17)",
    cost="13 minutes on one thread beside two other runs (12,500 updates)",
    expected={
        "": "0.98 / 0.98 / 0.98 (random 0.17)",
        "--env.name MiniGrid-DoorKey-5x5-v0 --env.horizon 250": "0.96 (seed 0; random 0.04)",
    },
)


def config(env: MinigridConfig = MinigridConfig(), *, env_steps: int = 150_000) -> RunConfig:
    """The run for an environment."""
    return default_config(env, env_steps=env_steps)


def paper(env: MinigridConfig = MinigridConfig()) -> RunConfig:
    """The paper's settings for other domains, since it has no experiment with these."""
    return paper_config(env)
