"""What the default derives from the number of steps and from the length of a trial."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from yamame.algorithms.amago.config import AMAGOConfig
from yamame.collect.exploration import BilevelEpsilonGreedy
from yamame.envs.env_fn import EnvFnConfig
from yamame.recipes.settings.presets import MAX_CONTEXT, NUM_UPDATES, default_config


def env(horizon: int) -> EnvFnConfig:
    return EnvFnConfig(env_fn=lambda: gymnasium.make("CartPole-v1"), horizon=horizon)


@pytest.mark.parametrize(
    ("env_steps", "updates"),
    [(1_000, 250), (50_000, NUM_UPDATES), (300_000, NUM_UPDATES), (800_000, NUM_UPDATES), (8_000_000, 125_000)],
)
def test_a_run_has_a_fixed_number_of_updates_within_a_range_of_paces(env_steps: int, updates: int) -> None:
    config = default_config(env(10), env_steps=env_steps)
    assert config.total_updates == pytest.approx(updates, abs=1)
    algorithm, noise = config.algorithm, config.exploration
    assert isinstance(algorithm, AMAGOConfig) and isinstance(noise, BilevelEpsilonGreedy)
    assert algorithm.learner.lr_decay_updates == pytest.approx(updates, abs=1)
    assert noise.anneal_env_steps == env_steps // 2 and config.updates_anneal_env_steps == env_steps // 4
    assert noise.random_env_steps == env_steps // 20


@pytest.mark.parametrize(
    ("horizon", "context", "acting_gamma"),
    [(1, 1, 0.99), (100, 100, 0.99), (500, MAX_CONTEXT, 0.998), (10_000, MAX_CONTEXT, 0.999)],
)
def test_the_horizon_sets_context_and_discount(horizon: int, context: int, acting_gamma: float) -> None:
    config = default_config(env(horizon))
    assert isinstance(config.algorithm, AMAGOConfig)
    agent = config.algorithm.agent
    assert config.resolved_context_length == context
    assert config.eval.choose_policy
    assert config.replay.cover_trial_ends  # otherwise the ends of trials longer than the context are hardly trained on
    assert agent.acting_gamma == pytest.approx(acting_gamma)
    gammas = agent.all_gammas(gymnasium.spaces.Discrete(2))
    assert gammas[-1] == agent.acting_gamma and list(gammas) == sorted(set(gammas)), "each once, the acting one last"


def test_a_minigrid_view_is_one_hot_vectors_in_layers_of_smaller_steps() -> None:
    """Otherwise MemoryS7 is a guess."""
    config = default_config(env(10))
    assert isinstance(config.algorithm, AMAGOConfig)
    view = spaces.MultiDiscrete(np.broadcast_to([11, 6, 3], (7, 7, 3)))
    assert config.algorithm.agent.timestep_encoder.resolve_encoders({"view": view}) == {"view": "vector"}
    assert 0 < config.algorithm.learner.wide_layer_inputs < spaces.flatdim(view)
