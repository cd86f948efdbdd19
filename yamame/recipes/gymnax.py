"""For another name, set --env.horizon to its step limit and increase --env-steps."""

from yamame.envs.gymnax import GymnaxConfig
from yamame.recipes import RecipeInfo
from yamame.recipes.settings.paper import paper_config
from yamame.recipes.settings.presets import default_config
from yamame.run_config import RunConfig

RECIPE = RecipeInfo(
    summary="Environments written in JAX: the memory chain of bsuite, or any other environment of gymnax.",
    command="yamame train gymnax --env.name MemoryChain-bsuite --env.horizon 8",
    minutes="1",
    score="1.0 (random 0)",
    cost="a minute on two CPU cores",
    expected={"": "return 1.0 (random actions 0)"},
)


def config(
    env: GymnaxConfig = GymnaxConfig(name="MemoryChain-bsuite", horizon=8), *, env_steps: int = 10_000
) -> RunConfig:
    """The run for an environment."""
    return default_config(env, env_steps=env_steps)


def paper(env: GymnaxConfig = GymnaxConfig(name="MemoryChain-bsuite", horizon=8)) -> RunConfig:
    """The paper's settings for other domains, since it has no experiment with these."""
    return paper_config(env)
