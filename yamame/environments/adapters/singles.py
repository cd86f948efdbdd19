"""Single environments as they are made, and as they are left when they have failed."""

from collections.abc import Callable
from typing import Any, NoReturn

import gymnasium
from gymnasium.vector import VectorEnv

from yamame.records.errors import UserError


def make_envs(make: Callable[[], Any], count: int) -> list[gymnasium.Env[Any, Any]]:
    """`count` new environments; `UserError` for anything that is no `gymnasium.Env` and for the same one twice."""
    made: list[gymnasium.Env[Any, Any]] = []
    for _ in range(count):
        one = make()
        if isinstance(one, VectorEnv):
            raise UserError(f"the factory makes a whole vector environment: set rows to {one.num_envs}")
        validate_env(one)
        made.append(one)
    if len({id(environment) for environment in made}) < count:
        raise UserError("the factory returns the same environment twice: make a new one at each call")
    return made


def validate_env(environment: Any) -> None:
    """Raise `UserError` for anything that is no `gymnasium.Env`."""
    if not isinstance(environment, gymnasium.Env):
        raise UserError(
            f"{type(environment).__name__} is not a gymnasium.Env nor a gymnasium.vector.VectorEnv: wrap it in one"
        )


class FailedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that has failed in a reset: a step raises why."""

    def __init__(self, environment: gymnasium.Env[Any, Any], error: Exception) -> None:
        super().__init__(environment)
        self._error = error

    def step(self, action: Any) -> NoReturn:
        """Raise what the reset raised."""
        raise self._error
