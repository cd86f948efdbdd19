"""Fetch one bit first, then remember it to the end of a corridor.

Command: yamame train active-tmaze --env.horizon 10
Minutes: 2.5
Score: not solved: success 0.5
Cost: 2.5 minutes on one core for 5,000 updates at horizon 10
Expected: not solved yet: half of the trials succeed until the agent discovers the cue, which it must turn away from the
    goal to see; success 1.0 is possible

Source: paper appendix C.2; the settings are those of `passive-tmaze`.
"""

from yamame.config import RunConfig
from yamame.envs.tmaze import ActiveTMazeConfig
from yamame.recipes.passive_tmaze import paper_tmaze, tmaze


def config(env: ActiveTMazeConfig = ActiveTMazeConfig(horizon=10)) -> RunConfig:
    """The run for a corridor."""
    return tmaze(env)


def paper(env: ActiveTMazeConfig = ActiveTMazeConfig(horizon=10)) -> RunConfig:
    """The paper's settings for the passive T-Maze; the paper has no experiment with this one."""
    return paper_tmaze(env)
