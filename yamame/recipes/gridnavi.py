"""Source: variBAD (Zintgraf et al. 2020, section 5.1): the task. Settings are those of `dark-key-to-door`, with values
that end with the trial.

In four attempts of 15 steps on the 5 x 5 grid an agent that knows the goal earns 44.3, one that searches
systematically and then walks straight 37.2 (tests/unit/envs/test_gridnavi.py), and random actions -4.7.
"""

from yamame.algorithms.amago.config import AMAGOConfig
from yamame.algorithms.amago.learner import LearnerConfig
from yamame.collect.exploration import BilevelEpsilonGreedy
from yamame.data.sampler import ReplayConfig
from yamame.envs.gridnavi import GridNaviConfig
from yamame.recipes import RecipeInfo
from yamame.recipes.settings.paper import paper_config
from yamame.recipes.settings.presets import small_agent
from yamame.run_config import EvalConfig, RunConfig

RECIPE = RecipeInfo(
    summary="Search for an unseen goal in a small grid, then walk straight to it in later attempts.",
    command="yamame train gridnavi",
    score="belief oracle 37.2 (random -4.7)",
    cost="a quarter of the run, 6 minutes of training on one busy CPU core, reaches 18",
)

TRIALS, UPDATES_PER_TRIAL = 7200, 0.5
"""Length and pace of a run."""


def config(env: GridNaviConfig = GridNaviConfig()) -> RunConfig:
    """The run for a grid."""
    steps = env.max_trial_steps
    return RunConfig(
        env=env,
        num_envs=48,
        env_steps=TRIALS * steps,
        algorithm=AMAGOConfig(
            agent=small_agent(acting_gamma=0.97),
            learner=LearnerConfig(
                learning_rate=1e-3,
                lr_warmup_updates=100,
                lr_decay_updates=int(UPDATES_PER_TRIAL * TRIALS),
            ),
        ),
        exploration=BilevelEpsilonGreedy(anneal_env_steps=TRIALS // 2 * steps),
        replay=ReplayConfig(capacity_trajectories=10_000),
        updates_per_env_step=UPDATES_PER_TRIAL / steps,
        eval=EvalConfig(interval_env_steps=480 * steps, trials=128),
    )


def paper(env: GridNaviConfig = GridNaviConfig()) -> RunConfig:
    """The paper's settings for other domains, since it has no experiment with these."""
    return paper_config(env)
