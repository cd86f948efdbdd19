"""Follow instructions on a road whose forks and way of delivering have to be found out; relabeling makes it learnable.

Command: yamame train package-delivery
Cost: half an hour of training on one thread beside another run
Expected: 1.99 / 1.94 / 1.92 of 3 deliveries (seeds 0, 1, 2; random actions 0.2), and nearly half of the instructions;
    2.16 after twice as many trials (seed 0). It remembers the valid way to drop once it has found it, but not which
    ways failed, nor which way was right at a fork

Source: paper section 5 and appendix C. Differs from the paper: a narrower network, fewer discounts, a larger step size
and rewards x100 instead of x10, so that it learns on a CPU.
"""

from yamame.environments.package_delivery import PackageDeliveryConfig
from yamame.learning.learner import LearnerConfig
from yamame.learning.losses.td import TDLoss
from yamame.replay.sampler import ReplayConfig
from yamame.rollout.exploration import BiLevelEpsilon
from yamame.run.config import EvaluationConfig, RunConfig
from yamame.run.defaults import small_agent
from yamame.run.pace import PaceConfig

TRIALS, UPDATES_PER_TRIAL = 9_600, 1.0
"""Length and pace of a run."""


def config(env: PackageDeliveryConfig = PackageDeliveryConfig()) -> RunConfig:  # noqa: B008
    """The run for a road."""
    steps = env.trial_length
    return RunConfig(
        env=env,
        num_envs=48,
        env_steps=TRIALS * steps,
        agent=small_agent(acting_discount=0.995, head_width=64),
        learner=LearnerConfig(
            td=TDLoss(reward_scale=100.0),
            learning_rate=5e-4,
            warmup_updates=100,
            decay_updates=int(UPDATES_PER_TRIAL * TRIALS),
            weight_decay=1e-4,
        ),
        exploration=BiLevelEpsilon(anneal_steps=TRIALS // 2 * steps),
        replay=ReplayConfig(capacity_trajectories=15_000),
        pace=PaceConfig(updates_per_env_step=UPDATES_PER_TRIAL / steps),
        evaluation=EvaluationConfig(every_env_steps=480 * steps, trials=128),
    )
