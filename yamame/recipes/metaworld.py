"""Find the goal of a robot arm from rewards: ML1, ML10 and ML45 of Meta-World.

Command: yamame train metaworld --env.name reach-v3 --env.attempts 3 --env.attempt-length 100
Minutes: 10
Score: 875 of 1,500 (random 221), 120,000 steps
Cost: 400,000 environment steps, which take 0.3 to 1 ms each on one core; ML45 takes 40 seconds to start
Expected with --env.attempt-length 50 --env-steps 120000: 864 / 889 / 872 of 1,500 on held-out goals of reach-v3 (seeds
    0, 1, 2; 8 to 13 minutes on one busy core), and half of the trials succeed (random actions 221, none succeed)

In 300 steps random actions earn 430.

Source: paper section 5 and appendix C.4: rewards x10. Differs from the paper: attempts of 100 steps instead of 500, a
narrower network of 2 layers instead of 3, fewer gammas and a larger learning rate, to train on a CPU; values are
bootstrapped at the horizon; tasks of version 3 (the paper: version 2); 5-step targets, the same noise in all trials and
at all steps, no dropout. Unknown for `--preset paper`: the tasks and context lengths of figure 6, and the attempts of a
trial; 5 are the default of the authors' script.
"""

import math

from yamame.algorithms.amago.config import AMAGOConfig
from yamame.algorithms.amago.learner import LearnerConfig
from yamame.algorithms.amago.losses.td import TDLoss
from yamame.collect.exploration import EpsilonGreedy
from yamame.config import EvalConfig, RunConfig
from yamame.envs.metaworld import MetaworldConfig
from yamame.paper import paper_agent, paper_config
from yamame.presets import MAX_CONTEXT, small_agent


def config(env: MetaworldConfig = MetaworldConfig(name="reach-v3", attempts=3, attempt_length=100)) -> RunConfig:
    """The run for a task or a benchmark."""
    steps = env.max_trial_steps
    return RunConfig(
        env=env,
        num_envs=24,
        env_steps=400_000,
        context_length=min(steps, MAX_CONTEXT),
        algorithm=AMAGOConfig(
            agent=small_agent(acting_gamma=0.98, gammas=(0.9, 0.95), head_width=64),
            learner=LearnerConfig(
                td=TDLoss(reward_scale=10.0, n_step=5, truncation_is_terminal=False),
                learning_rate=5e-4,
                lr_warmup_updates=100,
            ),
        ),
        exploration=EpsilonGreedy(anneal_env_steps=150_000),
        updates_per_env_step=0.02,
        env_steps_per_iteration=24 * min(steps, 300),
        eval=EvalConfig(interval_env_steps=50_000, trials=24, final_trials=48, num_envs=24),
    )


def paper(env: MetaworldConfig = MetaworldConfig(name="reach-v3")) -> RunConfig:
    """Tables 3 and 4: 10 million steps."""
    agent = paper_agent(timestep_hidden=(256, 256))
    return paper_config(env, agent=agent, epochs=math.ceil(10_000_000 / (12 * env.max_trial_steps)))
