"""Spaces of every kind and environments that sample them, in a module that workers import quickly."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from yamame.data.spaces import space_from_json, space_to_json

LENGTH = 4
KINDS: dict[str, spaces.Space[Any]] = {
    "vector": spaces.Box(-1.0, 1.0, (3,)),
    "vector of doubles": spaces.Box(-1e5, 1e5, (3,), np.float64),
    "vector of bytes": spaces.Box(0, 255, (5,), np.uint8),
    "integers": spaces.Box(-100, 100, (2,), np.int64),
    "bits": spaces.Box(0, 1, (2, 2), np.bool_),
    "no dimension": spaces.Box(-1.0, 1.0, ()),
    "nothing": spaces.Box(0, 255, (0, 3), np.uint8),
    "category": spaces.Discrete(3, start=5),
    "large category": spaces.Discrete(200, start=-9),
    "categories": spaces.MultiDiscrete([3, 4], start=[1, -2]),
    "grid": spaces.MultiDiscrete(np.full((3, 2), 5)),
    "flags": spaces.MultiBinary([2, 2]),
    "image": spaces.Box(0, 255, (9, 8, 3), np.uint8),
    "image, channels first": spaces.Box(0, 255, (1, 12, 10), np.uint8),
    "text": spaces.Text(6, min_length=0, charset="abc"),
}
MIXED = spaces.Dict(
    {
        "sight": spaces.Dict({"camera": KINDS["image"], "map": KINDS["grid"], "none": KINDS["nothing"]}),
        "body": spaces.Tuple([KINDS["vector of doubles"], KINDS["category"], KINDS["bits"]]),
        "mission": KINDS["text"],
        "level": KINDS["large category"],
    }
)
ALL = {**KINDS, "all of them in one": MIXED}


class SampledObservations(gymnasium.Env[Any, int]):
    """Observations are samples of a space; the reward is random."""

    action_space = spaces.Discrete(3)

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.observation_space = space_from_json(space_to_json(space))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.time = 0
        return self.observation_space.sample(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return self.observation_space.sample(), float(self.np_random.normal()), False, self.time == LENGTH, {}
