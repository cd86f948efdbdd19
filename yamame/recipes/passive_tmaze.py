"""Source: paper section 4 and appendix C.2: greedy actions, the T-Maze exploration schedule, acting gamma 0.9999.
Differs from the paper: a narrower network, fewer gammas and a larger learning rate, for speed; TD targets to the end of
the trial (--learner.td.n-step 1 is the paper's), so that the target of every step depends on the use of the cue. With
one-step targets half of the seeds took far longer. The noise at the junction stays at 0.3, in the last step only
(paper: 0.01, in the last three steps); otherwise some seeds never try the other way again. Unknown for `--preset
paper`: the number of epochs. Its corridor is the shortest of figure 5.
"""

from dataclasses import replace

from yamame.algorithms.amago.config import AMAGOConfig
from yamame.algorithms.amago.learner import LearnerConfig
from yamame.algorithms.amago.losses.td import TDLoss
from yamame.collect.exploration import TMazeEpsilonGreedy
from yamame.envs.tmaze import ActiveTMazeConfig, PassiveTMazeConfig
from yamame.recipes import RecipeInfo
from yamame.recipes.settings.paper import paper_agent, paper_config
from yamame.recipes.settings.presets import small_agent
from yamame.run_config import EvalConfig, RunConfig

RECIPE = RecipeInfo(
    summary="Remember one bit to the end of a corridor.",
    command="yamame train passive-tmaze --env.horizon 30",
    minutes="0.3",
    score="success 1.0 (guess 0.5)",
    cost="a quarter of a minute of training on two CPU cores at horizon 30, half a minute at 60, three minutes at 200; "
    "stops when two evaluations in a row are perfect",
    expected={
        "": "success 1.0 (without memory 0.5)",
        "--env.horizon 60": "success 1.0 (without memory 0.5)",
        "--env.horizon 200": "success 1.0 (without memory 0.5)",
    },
)


ANNEAL_STEPS_PER_ACTOR = 100_000


def config(env: PassiveTMazeConfig = PassiveTMazeConfig(horizon=30)) -> RunConfig:
    """The run for a corridor."""
    return tmaze(env)


def tmaze(env: PassiveTMazeConfig | ActiveTMazeConfig) -> RunConfig:
    """The run for either kind of T-Maze."""
    steps = env.max_trial_steps
    return RunConfig(
        env=env,
        num_envs=24,
        env_steps=20_000 * steps,
        deterministic_actions=True,
        algorithm=AMAGOConfig(
            agent=small_agent(acting_gamma=0.9999),
            learner=LearnerConfig(
                td=TDLoss(n_step=steps),
                learning_rate=1e-3,
                lr_warmup_updates=50,
            ),
        ),
        exploration=TMazeEpsilonGreedy(anneal_env_steps=320 * steps, final_eps=0.3, num_junction_steps=1),
        updates_per_env_step=1.4 / steps,
        eval=EvalConfig(interval_env_steps=48 * steps, trials=64, stop_return=0.995),
    )


def paper(env: PassiveTMazeConfig = PassiveTMazeConfig(horizon=1500)) -> RunConfig:
    """Tables 3 and 4; figure 5 has corridors of up to 10,000 steps."""
    return paper_tmaze(env)


def paper_tmaze(env: PassiveTMazeConfig | ActiveTMazeConfig) -> RunConfig:
    """The paper's run for either kind of T-Maze.

    The authors' code anneals the noise over 100,000 steps of each actor; the paper has no number for T-Mazes.
    """
    agent = paper_agent(
        d_model=128, d_ff=512, num_layers=2, timestep_hidden=(128, 128), timestep_width=128, acting_gamma=0.9999
    )
    config = paper_config(env, agent=agent, reward_scale=100.0)
    exploration = TMazeEpsilonGreedy(anneal_env_steps=ANNEAL_STEPS_PER_ACTOR * config.num_envs)
    return replace(config, exploration=exploration, deterministic_actions=True)
