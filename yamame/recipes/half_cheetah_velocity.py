"""Source: paper section 4, figure 5. Differs from the paper: a narrower network, two gammas, a larger learning rate and
windows of 16 steps, to train on a CPU; values are bootstrapped at the horizon; no filtered BC, and an entropy bonus.
Exploration noise is clipped at the bounds of an action, and filtered BC imitates the clipped actions; without both the
policy soon repeats one extreme action. The policy follows the mean of the critics instead of the minimum. Also: 5-step
targets, tau 0.01, a learning rate that decays, the same noise in all trials and at all steps, no dropout. The paper
does not give the reward scale of this task, its network or its length: `--preset paper` has the default scale, the
network of Meta-World, and the 612,000 updates of figure 5.
"""

from yamame.algorithms.amago.config import AMAGOConfig
from yamame.algorithms.amago.learner import LearnerConfig
from yamame.algorithms.amago.losses.filtered_bc import FilteredBCLoss
from yamame.algorithms.amago.losses.policy_gradient import PolicyGradientLoss
from yamame.algorithms.amago.losses.td import TDLoss
from yamame.collect.exploration import EpsilonGreedy
from yamame.data.sampler import ReplayConfig
from yamame.envs.half_cheetah_velocity import HalfCheetahVelocityConfig
from yamame.recipes import RecipeInfo
from yamame.recipes.settings.paper import paper_agent, paper_config
from yamame.recipes.settings.presets import small_agent
from yamame.run_config import EvalConfig, RunConfig

RECIPE = RecipeInfo(
    summary="Run at a target velocity that only the reward shows, three attempts per target.",
    command="yamame train half-cheetah-velocity",
    minutes="45",
    score="-238 (random -1,037)",
    cost="41 to 46 minutes (94,000 updates, 3.2 million steps) on one thread with --compute.dtype bfloat16 and "
    "AVX512-BF16 units, beside one to three other runs; in float32 an update takes nearly twice as long",
    expected={
        "": "-288 / -261 / -164 (seeds 0, 1, 2), the same in every attempt (random actions -1,037, standing still "
        "about -900, running at the target without effort would earn 0); without memory -352 / -298 / -415",
    },
)


def config(env: HalfCheetahVelocityConfig = HalfCheetahVelocityConfig()) -> RunConfig:
    """The run for a number of attempts."""
    num_envs = 96
    return RunConfig(
        env=env,
        num_envs=num_envs,
        env_steps=3_200_000,
        context_length=min(env.max_trial_steps, 16),
        algorithm=AMAGOConfig(
            agent=small_agent(acting_gamma=0.96, gammas=(0.85,), head_width=128),
            learner=LearnerConfig(
                td=TDLoss(n_step=5, truncation_is_terminal=False),
                policy_gradient=PolicyGradientLoss(critic_reduction="mean", entropy_coef=0.003),
                filtered_bc=FilteredBCLoss(weight=0.0),
                learning_rate=1e-3,
                lr_warmup_updates=100,
                lr_decay_updates=96_000,
                tau=0.01,
            ),
        ),
        exploration=EpsilonGreedy(anneal_env_steps=200_000, final_eps=0.0),
        replay=ReplayConfig(batch_size=32),
        updates_per_env_step=0.03,
        learning_starts=num_envs * env.max_trial_steps,
        env_steps_per_iteration=num_envs * 100,
        eval=EvalConfig(interval_env_steps=192_000, trials=48, num_envs=num_envs),
    )


def paper(env: HalfCheetahVelocityConfig = HalfCheetahVelocityConfig()) -> RunConfig:
    """Table 4, with the network of Meta-World."""
    return paper_config(env, agent=paper_agent(timestep_hidden=(256, 256)), epochs=612)
