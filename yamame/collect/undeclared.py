"""What the first observation of an environment has beyond its space."""

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import gymnasium
from gymnasium import spaces

from yamame.data.spaces import Keys, leaf_name
from yamame.envs.env_fn import EnvFn
from yamame.envs.gymnasium import make_env
from yamame.envs.vector.construction import call_env_fn


def undeclared_findings(env: EnvFn | str) -> list[str]:
    """Return a finding if the first observation of an environment has parts that are not in its space."""
    with closing(make_env(env) if isinstance(env, str) else call_env_fn(env)) as made:
        if not isinstance(made, gymnasium.Env):
            return []
        names = undeclared_parts(made.observation_space, made.reset(seed=0)[0])
    return [
        f"observation {name!r} is not in the observation space, so that the agent does not observe it: add it to the "
        "space, or leave it out"
        for name in names[:1]
    ]


def undeclared_parts(space: spaces.Space[Any], observation: Any, keys: Keys = ()) -> list[str]:
    """Return the names of the parts of an observation that are not in its space, which are not observed."""
    parts: list[tuple[str | int, spaces.Space[Any], Any]]
    if isinstance(space, spaces.Dict) and isinstance(observation, Mapping):
        names = [leaf_name((*keys, key)) for key in observation if key not in space.spaces]
        parts = [(key, part, observation[key]) for key, part in space.spaces.items() if key in observation]
    elif isinstance(space, spaces.Tuple) and isinstance(observation, tuple | list):
        names = [leaf_name((*keys, index)) for index in range(len(space.spaces), len(observation))]
        parts = [*zip(range(len(space.spaces)), space.spaces, observation, strict=False)]
    else:
        return []
    return [*names, *(name for key, part, value in parts for name in undeclared_parts(part, value, (*keys, key)))]
