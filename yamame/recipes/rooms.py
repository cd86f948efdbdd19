"""Source: HyperX (Zintgraf et al. 2021): the multi-stage gridworld, by the rules of the authors' code. Settings are
those of `gridnavi`, with twice as many trials and a larger discount factor; they are not measured: `--algorithm hyperx`
and `--algorithm varibad` are.

An agent that knows the goals earns 3,376 in 50 steps, one that tries the corners in order 2,375, and random actions
0.15 (tests/unit/envs/test_rooms.py). A searcher that stays at the first goal earns 46, at the second one 370.
"""

from yamame.algorithms.amago.config import AMAGOConfig
from yamame.algorithms.amago.learner import LearnerConfig
from yamame.collect.exploration import BilevelEpsilonGreedy
from yamame.data.sampler import ReplayConfig
from yamame.envs.rooms import RoomsConfig
from yamame.recipes import RecipeInfo
from yamame.recipes.settings.paper import paper_config
from yamame.recipes.settings.presets import small_agent
from yamame.run_config import EvalConfig, RunConfig

RECIPE = RecipeInfo(
    summary="Find three goals in order, each worth ten times the one before, in rooms behind corridors.",
    command="yamame train rooms",
    score="not measured (searcher 2,375, random 0.15)",
    cost="not measured; four fifths of a run with --algorithm hyperx took 4.6 minutes of CPU time",
)

TRIALS, UPDATES_PER_TRIAL = 14_400, 0.5
"""Length and pace of a run."""


def config(env: RoomsConfig = RoomsConfig()) -> RunConfig:
    """The run for a row of rooms."""
    steps = env.max_trial_steps
    return RunConfig(
        env=env,
        num_envs=48,
        env_steps=TRIALS * steps,
        algorithm=AMAGOConfig(
            agent=small_agent(acting_gamma=0.98),
            learner=LearnerConfig(
                learning_rate=1e-3,
                lr_warmup_updates=100,
                lr_decay_updates=int(UPDATES_PER_TRIAL * TRIALS),
            ),
        ),
        exploration=BilevelEpsilonGreedy(anneal_env_steps=TRIALS // 2 * steps),
        replay=ReplayConfig(capacity_trajectories=10_000),
        updates_per_env_step=UPDATES_PER_TRIAL / steps,
        eval=EvalConfig(interval_env_steps=960 * steps, trials=128),
    )


def paper(env: RoomsConfig = RoomsConfig()) -> RunConfig:
    """The paper's settings for other domains, since it has no experiment with these."""
    return paper_config(env)
