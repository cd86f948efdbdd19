"""Source: none. The settings are those of `passive-tmaze`, but the reward of a turn is only a corridor away: the acting
gamma is smaller, targets reach over one corridor, and exploration is the paper's schedule for other tasks.

The expected return is 0 for a policy that ignores the cues, and 1 for one that always turns as the cue shows. A memory
that keeps the first cue earns 0.1, and one that sums all cues less than 0.45 in 10 corridors.
"""

from yamame.algorithms.amago.config import AMAGOConfig
from yamame.algorithms.amago.learner import LearnerConfig
from yamame.algorithms.amago.losses.td import TDLoss
from yamame.collect.exploration import BilevelEpsilonGreedy
from yamame.envs.endless_tmaze import EndlessTMazeConfig
from yamame.recipes import RecipeInfo
from yamame.recipes.settings.paper import paper_config
from yamame.recipes.settings.presets import small_agent
from yamame.run_config import EvalConfig, RunConfig

RECIPE = RecipeInfo(
    summary="Remember one bit to the end of a corridor, corridor after corridor.",
    command="yamame train endless-tmaze",
    score="at most 1.0 (guess 0.0)",
    cost="with --model linear_recurrence 3.5 minutes of training on one busy CPU core; stops when two evaluations in a "
    "row are perfect",
)


def config(env: EndlessTMazeConfig = EndlessTMazeConfig()) -> RunConfig:
    """The run for a number of corridors."""
    steps, corridor = env.max_trial_steps, env.corridor_length + 1
    return RunConfig(
        env=env,
        num_envs=24,
        env_steps=10_000 * steps,
        deterministic_actions=True,
        algorithm=AMAGOConfig(
            agent=small_agent(acting_gamma=max(0.97, 1.0 - 0.3 / corridor)),
            learner=LearnerConfig(
                td=TDLoss(n_step=corridor),
                learning_rate=1e-3,
                lr_warmup_updates=50,
            ),
        ),
        exploration=BilevelEpsilonGreedy(anneal_env_steps=1000 * steps),
        updates_per_env_step=1.4 / steps,
        eval=EvalConfig(interval_env_steps=96 * steps, trials=64, stop_return=0.995),
    )


def paper(env: EndlessTMazeConfig = EndlessTMazeConfig()) -> RunConfig:
    """The paper's settings for other domains, since it has no experiment with these."""
    return paper_config(env)
