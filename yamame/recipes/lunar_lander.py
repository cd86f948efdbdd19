"""Land on the moon at any scale of rewards: the paper's experiment on PopArt.

Command: yamame train lunar-lander
Minutes: 10
Score: 157 (random -184)
Cost: 5 to 10 minutes of one CPU core: 12,500 updates
Expected: 157 [141, 173] after 300,000 steps (seed 0; 201 with `--learner.td.trace-decay 1`); random actions earn about
    -184, and 200 counts as solved. The figure docs/popart.png shows an earlier agent, which stayed near random actions

Source: paper appendix A, figure 11: context 128, unscaled rewards. `--learner.td.reward-scale 10` and `800` are the
other scales of the figure, `--variant no-popart` its other agent. `benchmarks/popart.py` trains and plots all six runs.
Unknown for `--preset paper`: network and length, which are those of other domains.
Differs from the paper: LunarLander-v3 (Gymnasium has no v2), a narrower network, fewer gammas and a larger learning
rate, to train on a CPU (`yamame.presets.default_config` has all). Trials have Gymnasium's limit of 1,000 steps; with
the 500 of the authors' example, which `--preset paper` has, it ended at 73 with `--learner.td.trace-decay 1`.
"""

from dataclasses import replace

from yamame.config import RunConfig
from yamame.envs.gymnasium import GymnasiumConfig
from yamame.paper import paper_config
from yamame.presets import default_config

CONTEXT_LENGTH = 128
"""Transitions, of the paper's figure."""


def config(
    env: GymnasiumConfig = GymnasiumConfig(id="LunarLander-v3", horizon=1000), *, env_steps: int = 300_000
) -> RunConfig:
    """The run for the lander."""
    return replace(default_config(env, env_steps=env_steps), context_length=min(env.horizon, CONTEXT_LENGTH))


def paper(env: GymnasiumConfig = GymnasiumConfig(id="LunarLander-v3", horizon=500)) -> RunConfig:
    """Table 4, with the context of figure 11."""
    config = paper_config(env, reward_scale=1.0)
    return replace(config, context_length=min(env.horizon, CONTEXT_LENGTH))
