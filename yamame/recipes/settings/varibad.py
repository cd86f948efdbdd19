"""Variants of variBAD with the settings of the code of its authors."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from yamame.algorithms.selection import require_algorithm
from yamame.algorithms.varibad.config import VariBADConfig
from yamame.nets.sequence.gru import GRUConfig
from yamame.recipes.settings.ppo import PPO_VARIANTS
from yamame.run_config import RunConfig


def _published_varibad(
    config: RunConfig,
    *,
    ppo: str,
    memory_size: int,
    kl_weight: float,
    capacity_trajectories: int,
    vae_updates: int,
    trials_per_batch: int,
) -> RunConfig:
    """Return the config of variBAD with PPO as in a variant of RL^2, and published settings of the autoencoder."""
    require_algorithm(config.algorithm, VariBADConfig, "varibad")
    config = PPO_VARIANTS[ppo](config)
    varibad = require_algorithm(config.algorithm, VariBADConfig, "varibad")
    varibad = replace(
        varibad,
        agent=replace(varibad.agent, trajectory_encoder=GRUConfig(d_model=memory_size, num_layers=1)),
        learner=replace(
            varibad.learner,
            kl_weight=kl_weight,
            vae_updates_per_iteration=vae_updates,
            trials_per_vae_batch=trials_per_batch,
            vae_learning_rate=1e-3,
        ),
    )
    return replace(
        config, algorithm=varibad, replay=replace(config.replay, capacity_trajectories=capacity_trajectories)
    )


VARIBAD_VARIANTS: Mapping[str, Callable[[RunConfig], RunConfig]] = {
    "varibad-grid-navi": partial(
        _published_varibad,
        ppo="rl2-grid-navi",
        memory_size=64,
        kl_weight=0.01,
        capacity_trajectories=100_000,
        vae_updates=3,
        trials_per_batch=25,
    ),
    "varibad-half-cheetah": partial(
        _published_varibad,
        ppo="rl2-half-cheetah",
        memory_size=128,
        kl_weight=0.1,
        capacity_trajectories=10_000,
        vae_updates=1,
        trials_per_batch=10,
    ),
}
