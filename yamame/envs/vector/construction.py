"""Environments made by a function of the user: what it may return, and what its failures mean."""

from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from yamame.envs.vector.faults import InvalidEnvOutputError, close_envs
from yamame.errors import UserError, describe_error


def call_env_fn(env_fn: Callable[[], Any]) -> Any:
    """Return what `env_fn` makes. Raises `RuntimeError` if it calls `sys.exit`, which must not end the run."""
    try:
        return env_fn()
    except SystemExit as error:
        raise RuntimeError(f"env_fn called sys.exit({error.code!r})") from error


def make_envs(env_fn: Callable[[], Any], count: int) -> list[gymnasium.Env[Any, Any]]:
    """Return `count` new environments.

    Raises:
        UserError: If `env_fn` returns anything else than a `gymnasium.Env`, or the same one twice; if it fails to make
            another one beside those that it has made, which are closed then.
    """
    envs: list[gymnasium.Env[Any, Any]] = []
    for _ in range(count):
        try:
            env = call_env_fn(env_fn)
        except Exception as error:
            close_envs(envs)
            if not envs or isinstance(error, UserError):
                raise
            raise not_beside_others(len(envs), "env_fn failed to make", error) from error
        if isinstance(env, VectorEnv):
            raise UserError(
                f"the function makes a vector environment of {env.num_envs}, where single ones are expected: let "
                "env_fn and eval_env_fn both make single environments, or both vector environments of the same size "
                f"(in an EnvFnConfig set vector_size to {env.num_envs})"
            )
        validate_env(env)
        envs.append(env)
    if any(len({id(env) for env in made}) < count for made in (envs, [env.unwrapped for env in envs])):
        raise UserError("env_fn returns the same environment twice: make a new one at each call")
    return envs


def not_beside_others(row: int, what: str, error: BaseException) -> InvalidEnvOutputError:
    """Return the error of an environment that fails where those before it do not. `what` failed, for the message."""
    return InvalidEnvOutputError(
        "exception",
        f"{what} environment {row} beside {row} others ({describe_error(error)}): fix it, or pass num_envs=1 if "
        "only one environment can exist, without eval.num_envs",
    )


def validate_env(env: Any) -> None:
    """Raise `UserError` unless this is a `gymnasium.Env` with an observation space and an action space."""
    if not isinstance(env, gymnasium.Env):
        raise UserError(f"{type(env).__name__} is not a gymnasium.Env nor a gymnasium.vector.VectorEnv: wrap it in one")
    for name in ("observation_space", "action_space"):
        if not isinstance(getattr(env, name, None), spaces.Space):
            found = type(getattr(env, name)).__name__ if hasattr(env, name) else "missing"
            raise UserError(
                f"the {name} of {type(env.unwrapped).__name__} is {found}: set it to a space of gymnasium.spaces"
            )
