"""Source: Wang et al. 2016 ("Learning to reinforcement learn", section 3.1): the task. All settings are those of the
default agent (`settings.presets.default_config`).

With dependent arms every pull tells the same about p, whichever arm is pulled, so that the arm with the larger
posterior mean is always the best one: it earns 73.8 in 100 pulls, an agent that knows p 75, and random pulls 50
(tests/unit/envs/test_bandit.py).
"""

from yamame.envs.bandit import BanditConfig
from yamame.recipes import RecipeInfo
from yamame.recipes.settings.paper import paper_config
from yamame.recipes.settings.presets import default_config
from yamame.run_config import RunConfig

RECIPE = RecipeInfo(
    summary="Find out which of two arms pays, and pull it.",
    command="yamame train bandit",
    minutes="5 to 10",
    score="71.8 of 100 pulls (best possible 73.8, random 50)",
    cost="12,500 updates, 5 to 10 minutes of one CPU core",
    expected={"": "71.8 [69.9, 73.8] of 100 pulls after 50,000 steps (seed 0; best possible 73.8, random 50)"},
)


def config(env: BanditConfig = BanditConfig(), *, env_steps: int = 50_000) -> RunConfig:
    """The run for a number of arms and pulls."""
    return default_config(env, env_steps=env_steps)


def paper(env: BanditConfig = BanditConfig()) -> RunConfig:
    """The paper's settings for other domains, since it has no experiment with these."""
    return paper_config(env)
