"""Anything that Gymnasium calls an environment -> `Environments`."""

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv

from yamame.environments.adapters.serial import SerialEnvironments
from yamame.environments.adapters.vector_adapter import VectorAdapter
from yamame.records.action_spaces import MASK_LEAF
from yamame.records.errors import UserError


def vectorize(environments: Any, seed: int, *, mask_key: str = MASK_LEAF) -> SerialEnvironments | VectorAdapter:
    """One `gymnasium.Env`, several of them, or a `gymnasium.vector.VectorEnv`, to be stepped together in this process.

    `mask_key` is where they say which actions they allow (see `ActionMasks`).
    Raises `UserError` for anything else and for spaces that are not supported.
    """
    if isinstance(environments, VectorEnv):
        return VectorAdapter(environments, seed, mask_key=mask_key)
    several = environments if isinstance(environments, Sequence) else [environments]
    for each in several:
        _check_single(each)
    return SerialEnvironments(several, seed, mask_key=mask_key)


def make_singles(make: Callable[[], Any], count: int) -> list[gymnasium.Env[Any, Any]]:
    """`count` new environments; `UserError` for anything that is no `gymnasium.Env` and for the same one twice."""
    made: list[gymnasium.Env[Any, Any]] = []
    for _ in range(count):
        one = make()
        if isinstance(one, VectorEnv):
            raise UserError(f"the factory makes a whole vector environment: set rows to {one.num_envs}")
        _check_single(one)
        made.append(one)
    if len({id(environment) for environment in made}) < count:
        raise UserError("the factory returns the same environment twice: make a new one at each call")
    return made


def _check_single(environment: Any) -> None:
    if not isinstance(environment, gymnasium.Env):
        raise UserError(
            f"{type(environment).__name__} is not a gymnasium.Env nor a gymnasium.vector.VectorEnv: wrap it in one"
        )
