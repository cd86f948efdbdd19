"""Variants of PPO with published settings: RL^2 in the code of variBAD, and sb3-contrib's `RecurrentPPO`."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from yamame.algorithms.on_policy import PassesConfig
from yamame.algorithms.ppo.config import PPOConfig
from yamame.algorithms.selection import require_algorithm
from yamame.run_config import RunConfig


def published_ppo(
    config: RunConfig, *, num_envs: int, steps: int, epochs: int, minibatch: int, gamma: float, **learner: Any
) -> RunConfig:
    """Return the config of PPO with the settings of another project: `steps` of each environment an iteration."""
    ppo = require_algorithm(config.algorithm, PPOConfig, "ppo")
    passes = PassesConfig(epochs=epochs, minibatch_transitions=minibatch, min_trials=1)
    ppo = replace(
        ppo,
        agent=replace(ppo.agent, acting_gamma=gamma),
        learner=replace(
            ppo.learner,
            passes=passes,
            lr_decay_env_steps=0,
            entropy_decay_env_steps=0,
            target_kl=None,
            min_advantage_scale=0.0,
            **learner,
        ),
    )
    return replace(config, algorithm=ppo, num_envs=num_envs, env_steps_per_iteration=num_envs * steps)


PPO_VARIANTS: Mapping[str, Callable[[RunConfig], RunConfig]] = {
    "rl2-grid-navi": partial(
        published_ppo,
        num_envs=16,
        steps=60,
        epochs=2,
        minibatch=240,
        gamma=0.95,
        clip=0.05,
        trace_decay=0.95,
        learning_rate=7e-4,
        entropy_coef=0.01,
        value_error="huber",
        value_clip=0.05,
    ),
    "rl2-half-cheetah": partial(
        published_ppo,
        num_envs=16,
        steps=400,
        epochs=2,
        minibatch=800,
        gamma=0.97,
        clip=0.1,
        trace_decay=0.9,
        learning_rate=7e-4,
        entropy_coef=0.01,
        value_error="huber",
        value_clip=0.1,
    ),
    "recurrent-ppo": partial(
        published_ppo,
        num_envs=8,
        steps=128,
        epochs=10,
        minibatch=128,
        gamma=0.99,
        clip=0.2,
        trace_decay=0.95,
        learning_rate=3e-4,
        entropy_coef=0.0,
    ),
}
