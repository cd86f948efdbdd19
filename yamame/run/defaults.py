"""A small agent that learns on a CPU, and settings for a task that nobody has tuned: a user's own environment."""

from dataclasses import replace

from yamame.environments.config import EnvConfig
from yamame.learning.learner import LearnerConfig
from yamame.learning.losses.td import TDLoss
from yamame.model.agent import AgentConfig
from yamame.model.discounts import SHORT_GAMMAS
from yamame.model.heads.actor import ActorConfig
from yamame.model.trajectory_encoders.transformer import TransformerConfig
from yamame.rollout.exploration import BilevelEpsilonGreedy
from yamame.run.config import EvalConfig, RunConfig
from yamame.run.pace import PaceConfig
from yamame.run.sizes import SIZES

LONGEST_CONTEXT = 256


def small_agent(
    *,
    acting_gamma: float,
    discounts: tuple[float, ...] = SHORT_GAMMAS,
    head_width: int = 128,
    probability_clip: tuple[float, float] = ActorConfig.probability_clip,
    token_shift: bool = False,
) -> AgentConfig:
    """Two Transformer layers of width 64 under heads of two hidden layers: sizes that a CPU can train."""
    agent = AgentConfig(
        trajectory_encoder=TransformerConfig(token_shift=token_shift),
        actor=ActorConfig(probability_clip=probability_clip),
        gammas=discounts,
        acting_gamma=acting_gamma,
    )
    return replace(SIZES["small"], head_hidden=(head_width, head_width)).apply_to(agent)


def default_config(env: EnvConfig, *, env_steps: int = 300_000) -> RunConfig:
    """A small agent, a whole trial of memory (at most 256 steps), noise that fades over the first half of the run."""
    context = min(env.max_trial_steps, LONGEST_CONTEXT)
    return RunConfig(
        env=env,
        num_envs=24,
        env_steps=env_steps,
        context_length=context,
        agent=small_agent(acting_gamma=0.99),
        learner=LearnerConfig(td=TDLoss(reward_scale=10.0), learning_rate=5e-4, lr_warmup_updates=100),
        exploration=BilevelEpsilonGreedy(anneal_env_steps=max(1, env_steps // 2)),
        pace=PaceConfig(updates_per_env_step=2.0 / context, round_env_steps=24 * context),
        eval=EvalConfig(interval_env_steps=max(1, env_steps // 20), trials=32),
    )
