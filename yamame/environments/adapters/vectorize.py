"""Anything that Gymnasium calls an environment -> `Environments`."""

from collections.abc import Sequence
from typing import Any

from gymnasium.vector import VectorEnv

from yamame.environments.adapters.serial import SerialVectorEnv
from yamame.environments.adapters.singles import validate_env
from yamame.environments.adapters.vector_adapter import GymnasiumVectorAdapter
from yamame.records.action_spaces import ACTION_MASK_KEY


def make_episode_vector_env(environments: Any, seed: int, *, action_mask_key: str = ACTION_MASK_KEY) -> SerialVectorEnv | GymnasiumVectorAdapter:
    """One `gymnasium.Env`, several of them, or a `gymnasium.vector.VectorEnv`, to be stepped together in this process.

    `action_mask_key` is where they say which actions they allow (see `ActionMaskExtractor`).
    Raises `UserError` for anything else and for spaces that are not supported.
    """
    if isinstance(environments, VectorEnv):
        return GymnasiumVectorAdapter(environments, seed, action_mask_key=action_mask_key)
    several = environments if isinstance(environments, Sequence) else [environments]
    for each in several:
        validate_env(each)
    return SerialVectorEnv(several, seed, action_mask_key=action_mask_key)
