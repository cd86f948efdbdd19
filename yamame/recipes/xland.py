"""Rulesets are sampled here, since those of the package must be downloaded. --env.rules 0 is easier; more rules or
objects are harder.
"""

from yamame.envs.xland import XLandConfig
from yamame.recipes import RecipeInfo
from yamame.recipes.settings.paper import paper_config
from yamame.recipes.settings.presets import default_config
from yamame.run_config import RunConfig

RECIPE = RecipeInfo(
    summary="Find out the hidden rule and the hidden goal of a room of objects, attempt by attempt: XLand-MiniGrid, in "
    "JAX.",
    command="yamame train xland --env.size 7 --env.objects 4 --env.rules 1 --env.horizon 200 --env.attempt-length 50",
    score="not measured",
    cost="1,000,000 environment steps; not measured",
    expected={"": "not known yet; random actions earn 0.38 in 200 steps"},
)


def config(env: XLandConfig = XLandConfig(), *, env_steps: int = 1_000_000) -> RunConfig:
    """The run for a distribution of rulesets."""
    return default_config(env, env_steps=env_steps)


def paper(env: XLandConfig = XLandConfig()) -> RunConfig:
    """The paper's settings for other domains, since it has no experiment with these."""
    return paper_config(env)
