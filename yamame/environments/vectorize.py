"""Anything that Gymnasium calls an environment -> `Environments`."""

from collections.abc import Sequence
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv

from yamame.environments.serial import SerialEnvironments
from yamame.environments.vector_adapter import VectorAdapter
from yamame.records.errors import UserError
from yamame.records.interfaces import Environments


def vectorize(environments: Any, seed: int) -> Environments:
    """One `gymnasium.Env`, several of them, or a `gymnasium.vector.VectorEnv`, to be stepped together.

    Raises `UserError` for anything else and for spaces that are not supported.
    """
    if isinstance(environments, VectorEnv):
        return VectorAdapter(environments, seed)
    several = environments if isinstance(environments, Sequence) else [environments]
    for each in several:
        if not isinstance(each, gymnasium.Env):
            raise UserError(
                f"{type(each).__name__} is not a gymnasium.Env nor a gymnasium.vector.VectorEnv: wrap it in one"
            )
    return SerialEnvironments(several, seed)
