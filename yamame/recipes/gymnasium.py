"""On CartPole-v1 the maximum is 500, and random actions earn 22."""

from yamame.envs.gymnasium import GymnasiumConfig
from yamame.recipes import RecipeInfo
from yamame.recipes.settings.paper import paper_config
from yamame.recipes.settings.presets import default_config
from yamame.run_config import RunConfig

RECIPE = RecipeInfo(
    summary="Any registered Gymnasium environment.",
    command="yamame train gymnasium --env.id CartPole-v1 --env.horizon 500",
    score="depends on the environment",
    cost="depends on the environment",
)


def config(
    env: GymnasiumConfig = GymnasiumConfig(id="CartPole-v1", horizon=500), *, env_steps: int = 300_000
) -> RunConfig:
    """The run for an environment."""
    return default_config(env, env_steps=env_steps)


def paper(env: GymnasiumConfig = GymnasiumConfig(id="CartPole-v1", horizon=500)) -> RunConfig:
    """The paper's settings for other domains, since it has no experiment with these."""
    return paper_config(env)
