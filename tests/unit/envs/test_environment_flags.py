"""The flags by which a command makes the environment of a run name all of the user's modules."""

from fractions import Fraction
from typing import Any

import gymnasium
import pytest

from yamame.envs.config import EnvConfig
from yamame.envs.env_fn import EnvFnConfig, environment_flags
from yamame.envs.gymnasium import GymnasiumConfig


def make() -> gymnasium.Env[Any, Any]:
    raise NotImplementedError


@pytest.mark.parametrize(
    ("env", "flags"),
    [
        (EnvFnConfig(env_fn=make, horizon=4), f" --env {__name__}:make"),
        (EnvFnConfig(env_fn=make, eval_env_fn=make, horizon=4), f" --env {__name__}:make"),
        (EnvFnConfig(env_fn=make, eval_env_fn=Fraction, horizon=4), f" --env {__name__}:make --import fractions"),
        (EnvFnConfig(env_fn=lambda: make(), horizon=4), " --env MODULE:FUNCTION"),
        (GymnasiumConfig(id="my_tasks:Beacon-v0", horizon=4), " --import my_tasks"),
        (GymnasiumConfig(id="CartPole-v1", horizon=4), ""),
    ],
)
def test_environment_flags(env: EnvConfig, flags: str) -> None:
    assert environment_flags(env) == flags
