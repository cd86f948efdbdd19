"""Find up to three places, one after the other, in a maze that one has never seen; relabeling gives the first hints.

Command: yamame train maze-runner
Cost: an hour of training on one thread beside other runs
Expected: 1.30 of 2 sub-goals on average and 52 % of the instructions (seed 0; without relabeling 0.57 and 31 %), still
    rising; random actions complete 0.41 and 15 %. All can be completed: one who knows the maze needs 24 steps on
    average (99 of 100 times at most 64), one who knows what was seen so far and takes the shortest way by that 33
    (107), of 400

Source: paper section 5 and appendix C.4; rewards x100. Differs from the paper: a narrower network, fewer discounts, a
larger step size and a memory of 128 steps, so that it learns on a CPU; --context-length 0 remembers the whole trial.
With continuous actions each discount costs a pass of the critics, so give fewer; they learn as fast (1.06 after 883,000
steps). Rewired mazes are not learned in 6,000 updates.
The paper's other mazes (30 has a horizon of 1000; random actions complete 0.18 of 2 there, the oracle needs 64 steps,
one who has to look 136):

    yamame train maze-runner --env.size 30
    yamame train maze-runner --env.actions continuous --agent.discounts 0.9 0.97
    yamame train maze-runner --env.rewired
    yamame train maze-runner --env.no-position
"""

from yamame.environments.maze_runner import MazeRunnerConfig
from yamame.learning.learner import LearnerConfig
from yamame.learning.losses.td import TDLoss
from yamame.replay.sampler import ReplayConfig
from yamame.rollout.exploration import BiLevelEpsilon
from yamame.run.config import EvaluationConfig, RunConfig
from yamame.run.defaults import small_agent
from yamame.run.pace import PaceConfig

TRIALS, UPDATES_PER_TRIAL = 5_000, 2.0
"""Length and pace of a run, in trials that last to the horizon."""
LONGEST_CONTEXT = 128


def config(env: MazeRunnerConfig = MazeRunnerConfig()) -> RunConfig:  # noqa: B008
    """The run for a kind of maze."""
    steps = env.trial_length
    return RunConfig(
        env=env,
        num_envs=48,
        env_steps=TRIALS * steps,
        context_length=min(steps, LONGEST_CONTEXT),
        agent=small_agent(acting_discount=0.99),
        learner=LearnerConfig(
            td=TDLoss(reward_scale=100.0),
            learning_rate=5e-4,
            warmup_updates=100,
            decay_updates=int(UPDATES_PER_TRIAL * TRIALS),
            weight_decay=1e-4,
        ),
        exploration=BiLevelEpsilon(anneal_steps=TRIALS // 2 * steps),
        replay=ReplayConfig(capacity_trajectories=20_000),
        pace=PaceConfig(updates_per_env_step=UPDATES_PER_TRIAL / steps),
        evaluation=EvaluationConfig(every_env_steps=480 * steps, trials=128),
    )
