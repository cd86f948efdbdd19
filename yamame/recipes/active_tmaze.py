"""Fetch one bit first, then remember it to the end of a corridor.

Command: yamame train active-tmaze --env.horizon 10
Cost: see the results in README.md
Expected: success 1.0 (an agent that never looks at the cue turns the right way half of the time)

Source: paper appendix C.2; the settings are those of `passive-tmaze`.
"""

from yamame.environments.tmaze import ActiveTMazeConfig
from yamame.recipes.passive_tmaze import tmaze
from yamame.run.config import RunConfig


def config(env: ActiveTMazeConfig = ActiveTMazeConfig(horizon=10)) -> RunConfig:  # noqa: B008
    """The run for a corridor."""
    return tmaze(env)
