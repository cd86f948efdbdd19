"""Source: paper section 4 and appendix C.3. Differs from the paper: a smaller room and network, fewer gammas and a
larger learning rate, to train on a CPU; values are bootstrapped at the horizon; a learning rate that decays, noise
annealed over half of the run, no dropout; the acting gamma is among the extra ones, too, which doubles its weight
(without: 12.9 and 14.2 instead of 14.7 and 15.7); --env.size 9 --env.horizon 500 --env.attempt-length 50 is the paper's
task. Its comparison with algorithm distillation (appendix C.2) has a fixed start:

    yamame train dark-key-to-door --env.size 8 --env.fixed-start --env.horizon 500 --env.attempt-length 50

Unknown for `--preset paper`: the number of epochs; 3700 reach the last point of figure 5 (22.2 million steps).

In the room of algorithm distillation an agent that knows the positions of key and door earns 127.6 in 500 steps, and
random actions 3.5.
"""

from yamame.algorithms.amago.config import AMAGOConfig
from yamame.algorithms.amago.learner import LearnerConfig
from yamame.algorithms.amago.losses.td import TDLoss
from yamame.collect.exploration import BilevelEpsilonGreedy
from yamame.data.sampler import ReplayConfig
from yamame.envs.dark_key_to_door import DarkKeyToDoorConfig
from yamame.recipes import RecipeInfo
from yamame.recipes.settings.paper import paper_agent, paper_config
from yamame.recipes.settings.presets import small_agent
from yamame.run_config import EvalConfig, RunConfig

RECIPE = RecipeInfo(
    summary="Find a key and a door in the dark, attempt after attempt in the same room.",
    command="yamame train dark-key-to-door --env.size 5 --env.horizon 100 --env.attempt-length 25",
    minutes="10 to 17",
    score="14.5 to 15.7 in 100 steps (random 1.8)",
    cost="10 to 17 minutes of training on one thread beside another run",
    expected={"": "return 14.7 / 15.7 / 14.5 in 100 steps (seeds 0, 1, 2; random actions 1.8)"},
)

TRIALS, UPDATES_PER_TRIAL = 7200, 0.5
"""Length and pace of a run."""


def config(env: DarkKeyToDoorConfig = DarkKeyToDoorConfig(size=5, horizon=100, attempt_length=25)) -> RunConfig:
    """The run for a room."""
    steps = env.max_trial_steps
    return RunConfig(
        env=env,
        num_envs=96,
        env_steps=TRIALS * steps,
        algorithm=AMAGOConfig(
            agent=small_agent(acting_gamma=0.995),
            learner=LearnerConfig(
                td=TDLoss(truncation_is_terminal=False),
                learning_rate=5e-4,
                lr_warmup_updates=100,
                lr_decay_updates=int(UPDATES_PER_TRIAL * TRIALS),
                weight_decay=1e-4,
            ),
        ),
        exploration=BilevelEpsilonGreedy(anneal_env_steps=TRIALS // 2 * steps),
        replay=ReplayConfig(capacity_trajectories=10_000),
        updates_per_env_step=UPDATES_PER_TRIAL / steps,
        eval=EvalConfig(interval_env_steps=480 * steps, trials=128),
    )


def paper(env: DarkKeyToDoorConfig = DarkKeyToDoorConfig(size=9, horizon=500, attempt_length=50)) -> RunConfig:
    """Tables 3 and 4, for the room of figures 5 and 19."""
    return paper_config(
        env, agent=paper_agent(timestep_hidden=(128, 128), timestep_width=64), reward_scale=100.0, epochs=3700
    )
