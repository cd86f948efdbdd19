"""Run at a velocity that only the reward tells, three attempts at each.

Command: yamame train half-cheetah-velocity
Cost: 25,000 updates; not measured on a quiet machine
Expected: not measured yet; random actions earn -346 in each attempt, -1,037 in a trial, and to run at the velocity for
    nothing would earn 0

Source: paper section 4, figure 5. Differs from the paper: a narrower network, fewer discounts, a larger step size and
windows of 32 steps, so that it learns on a CPU; the paper does not give its reward scale for this task.
"""

from yamame.environments.half_cheetah_velocity import HalfCheetahVelocityConfig
from yamame.learning.learner import LearnerConfig
from yamame.learning.losses.filtered_imitation import FilteredImitationLoss
from yamame.learning.losses.td import TDLoss
from yamame.rollout.exploration import EpsilonGreedy
from yamame.run.config import EvaluationConfig, RunConfig
from yamame.run.defaults import small_agent
from yamame.run.pace import PaceConfig


def config(env: HalfCheetahVelocityConfig = HalfCheetahVelocityConfig()) -> RunConfig:  # noqa: B008
    """The run for a number of attempts."""
    return RunConfig(
        env=env,
        num_envs=24,
        env_steps=500_000,
        context_length=min(env.trial_length, 32),
        agent=small_agent(acting_discount=0.98, discounts=(0.9, 0.95), head_width=128),
        learner=LearnerConfig(
            td=TDLoss(reward_scale=10.0, n_step=5),
            imitation=FilteredImitationLoss(weight=0.02),
            learning_rate=1e-3,
            warmup_updates=100,
            target_rate=0.01,
        ),
        exploration=EpsilonGreedy(anneal_steps=100_000),
        pace=PaceConfig(updates_per_env_step=0.05, round_env_steps=24 * 200),
        evaluation=EvaluationConfig(every_env_steps=48_000, trials=24, num_envs=24),
    )
