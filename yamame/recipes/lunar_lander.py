"""Source: paper appendix A, figure 11: unscaled rewards. With `--preset paper`, `--learner.td.reward-scale 10` and
`800` are the other scales of the figure, and `--variant no-popart` its other agent. Unknown for `--preset paper`:
network and length, which are those of other domains. Differs from the paper: LunarLander-v3 (Gymnasium has no v2),
context 256 instead of 128, a narrower network, fewer gammas and a larger learning rate, to train on a CPU
(`settings.presets.default_config` has all). Trials have Gymnasium's limit of 1,000 steps; those of the authors'
example, which `--preset paper` has, have 500.
"""

from dataclasses import replace

from yamame.envs.gymnasium import GymnasiumConfig
from yamame.recipes import RecipeInfo
from yamame.recipes.settings.paper import paper_config
from yamame.recipes.settings.presets import default_config
from yamame.run_config import RunConfig

RECIPE = RecipeInfo(
    summary="Land on the moon at any scale of rewards: the paper's experiment on PopArt.",
    command="yamame train lunar-lander",
    minutes="6",
    score="151 / 148 / 130 (random -184)",
    cost="6 minutes of one CPU core (12,500 updates)",
    expected={
        "": "151 / 148 / 130 (seeds 0, 1, 2; the last before the separate gamma acted in training; 212 / 229 / 248 "
        "with the default agent of 2026-11-27; random actions about -184, and 200 counts as solved). The "
        "figure docs/popart.png shows a still earlier agent, which stayed near random actions",
    },
)


def config(
    env: GymnasiumConfig = GymnasiumConfig(id="LunarLander-v3", horizon=1000), *, env_steps: int = 150_000
) -> RunConfig:
    """The run for the lander."""
    return default_config(env, env_steps=env_steps)


def paper(env: GymnasiumConfig = GymnasiumConfig(id="LunarLander-v3", horizon=500)) -> RunConfig:
    """Table 4, with the context of figure 11."""
    return replace(paper_config(env, reward_scale=1.0), context_length=min(env.horizon, 128))
