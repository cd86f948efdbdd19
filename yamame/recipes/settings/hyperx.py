"""Variant of HyperX with the settings of the code of its authors."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from yamame.algorithms.hyperx.config import HyperXConfig
from yamame.algorithms.selection import require_algorithm
from yamame.nets.sequence.gru import GRUConfig
from yamame.recipes.settings.ppo import published_ppo
from yamame.run_config import RunConfig


def _published_rooms(config: RunConfig) -> RunConfig:
    """Return the config of HyperX with the published settings of the multi-stage gridworld: those of 1e8 steps."""
    require_algorithm(config.algorithm, HyperXConfig, "hyperx")
    config = published_ppo(
        config,
        num_envs=16,
        steps=100,
        epochs=8,
        minibatch=400,
        gamma=0.98,
        clip=0.05,
        trace_decay=0.95,
        learning_rate=7e-4,
        entropy_coef=0.1,
        value_error="huber",
        value_clip=0.05,
    )
    hyperx = require_algorithm(config.algorithm, HyperXConfig, "hyperx")
    hyperx = replace(
        hyperx,
        agent=replace(
            hyperx.agent,
            trajectory_encoder=GRUConfig(d_model=128, num_layers=1),
            latent_size=10,
            novelty=replace(hyperx.agent.novelty, scale=10.0),
        ),
        learner=replace(
            hyperx.learner,
            kl_weight=0.1,
            vae_updates_per_iteration=1,
            trials_per_vae_batch=25,
            vae_learning_rate=1e-3,
            max_decoded_steps=51,
            novelty_weight=10.0,
            reconstruction_weight=1.0,
            bonus_clip=10.0,
            novelty_updates=1,
        ),
    )
    return replace(config, algorithm=hyperx, replay=replace(config.replay, capacity_trajectories=100_000))


HYPERX_VARIANTS: Mapping[str, Callable[[RunConfig], RunConfig]] = {"hyperx-rooms": _published_rooms}
