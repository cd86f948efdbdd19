"""Source: paper appendix C.2; the settings are those of `passive-tmaze`."""

from yamame.envs.tmaze import ActiveTMazeConfig
from yamame.recipes import RecipeInfo
from yamame.recipes.passive_tmaze import paper_tmaze, tmaze
from yamame.run_config import RunConfig

RECIPE = RecipeInfo(
    summary="Fetch one bit first, then remember it to the end of a corridor.",
    command="yamame train active-tmaze --env.horizon 10",
    minutes="0.5 to 4.5",
    score="success 1.0 (guess 0.5)",
    cost="up to a minute of training on one CPU core at horizon 10, two to four and a half at 30; stops when two "
    "evaluations in a row are perfect",
    expected={
        "": "success 1.0 (without the cue 0.5)",
        "--env.horizon 30": "success 1.0 (without the cue 0.5)",
    },
)


def config(env: ActiveTMazeConfig = ActiveTMazeConfig(horizon=10)) -> RunConfig:
    """The run for a corridor."""
    return tmaze(env)


def paper(env: ActiveTMazeConfig = ActiveTMazeConfig(horizon=10)) -> RunConfig:
    """The paper's settings for the passive T-Maze; the paper has no experiment with this one."""
    return paper_tmaze(env)
