"""Source: paper section 5 and appendix C.4. Differs from the paper: a narrower network, fewer gammas, a larger learning
rate and a memory of 128 steps, to train on a CPU; values are bootstrapped at the horizon; --context-length 0 remembers
the whole trial. As in package-delivery, token shift, a world model, and an entropy bonus in place of filtered BC; a
learning rate that decays, noise annealed over a million steps in all, no dropout. The paper's rewired mazes have
continuous actions. The paper's other mazes (size 30 has a horizon of 1000; there random actions complete 0.18 of 2
sub-goals, and the two agents above need 64 and 136 steps):

    yamame train maze-runner --env.size 30
    yamame train maze-runner --env.actions continuous
    yamame train maze-runner --env.rewired
    yamame train maze-runner --env.no-position
"""

from yamame.algorithms.amago.config import AMAGOConfig
from yamame.algorithms.amago.learner import LearnerConfig
from yamame.algorithms.amago.losses.filtered_bc import FilteredBCLoss
from yamame.algorithms.amago.losses.policy_gradient import PolicyGradientLoss
from yamame.algorithms.amago.losses.td import TDLoss
from yamame.algorithms.amago.losses.world_model import WorldModelLoss
from yamame.collect.exploration import BilevelEpsilonGreedy
from yamame.data.sampler import ReplayConfig
from yamame.envs.maze_runner import MazeRunnerConfig
from yamame.recipes import RecipeInfo
from yamame.recipes.settings.paper import paper_agent, paper_config
from yamame.recipes.settings.presets import small_agent
from yamame.run_config import EvalConfig, RunConfig

RECIPE = RecipeInfo(
    summary="Reach up to three positions in order in an unknown maze; relabeling provides the first rewards.",
    command="yamame train maze-runner",
    minutes="20",
    score="1.64 of 2 sub-goals (random 0.4)",
    cost="on one thread beside another run, with --compute.dtype bfloat16: 20 minutes of training, 25 to 40 with "
    "continuous actions, 50 to 80 in rewired mazes",
    expected={
        "": "1.66 / 1.63 / 1.63 of 2 sub-goals on average (seeds 0, 1, 2) and 77 / 73 / 73 % of the instructions, "
        "without relabeling 1.00 / 0.99 / 1.08; random actions 0.41 and 15 %. All instructions can be completed in "
        "400 steps: an agent that knows the maze needs 24 steps on average (at most 64 in 99 of 100 trials), one "
        "that takes the shortest way by what it has seen 33 (107)",
        "--env.actions continuous": "1.37 / 1.37 / 1.24 of 2 sub-goals and 62 / 59 / 58 % of the instructions",
        "--env.rewired": "1.45 / 1.52 / 1.48 of 2 sub-goals and 66 / 72 / 61 % of the instructions (no better "
        "than chance in the first 9,000 updates)",
    },
)

TRIALS, UPDATES_PER_TRIAL = 5_000, 2.0
"""Length and pace of a run, in trials that last to the horizon."""
REWIRED_TRIALS, REWIRED_UPDATES_PER_TRIAL = 10_000, 3.0
"""The same for rewired mazes, whose critics are hardly better than chance for the first 9,000 updates."""
MAX_CONTEXT = 128


def config(env: MazeRunnerConfig = MazeRunnerConfig()) -> RunConfig:
    """The run for a kind of maze."""
    steps = env.max_trial_steps
    trials, updates_per_trial = (
        (REWIRED_TRIALS, REWIRED_UPDATES_PER_TRIAL) if env.rewired else (TRIALS, UPDATES_PER_TRIAL)
    )
    return RunConfig(
        env=env,
        num_envs=48,
        env_steps=trials * steps,
        context_length=min(steps, MAX_CONTEXT),
        algorithm=AMAGOConfig(
            agent=small_agent(acting_gamma=0.97, gammas=(0.8, 0.9, 0.95), token_shift=True),
            learner=LearnerConfig(
                td=TDLoss(truncation_is_terminal=False),
                policy_gradient=_policy_gradient(env),
                filtered_bc=FilteredBCLoss(weight=0.0),
                world_model=WorldModelLoss(weight=30.0),
                learning_rate=5e-4,
                lr_warmup_updates=100,
                lr_decay_updates=int(updates_per_trial * trials),
                weight_decay=1e-4,
            ),
        ),
        exploration=BilevelEpsilonGreedy(anneal_env_steps=(trials if env.rewired else trials // 2) * steps),
        replay=ReplayConfig(capacity_trajectories=20_000),
        updates_per_env_step=updates_per_trial / steps,
        eval=EvalConfig(interval_env_steps=480 * steps, trials=128),
    )


def paper(env: MazeRunnerConfig = MazeRunnerConfig()) -> RunConfig:
    """Tables 3 and 4, column MazeRunner: 5.8 million steps in mazes of size 15, 14.4 million in those of size 30."""
    return paper_config(
        env,
        agent=paper_agent(d_model=128, d_ff=512, timestep_hidden=(128, 128), timestep_width=128),
        reward_scale=100.0,
        learning_rate=3e-4,
        weight_decay=1e-4,
        num_actors=24,
        epochs=600,
    )


def _policy_gradient(env: MazeRunnerConfig) -> PolicyGradientLoss:
    """Rewired actions mean nothing to the critics for long: until then the policy must not go for their errors."""
    if env.rewired:
        return PolicyGradientLoss(entropy_coef=0.1, critic_reduction="mean")
    return PolicyGradientLoss(entropy_coef=0.003)
