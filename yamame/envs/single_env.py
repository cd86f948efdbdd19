"""Our batched environments one at a time, for anyone who wants a plain `gymnasium.Env`."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv
from jaxtyping import Shaped

from yamame.envs.dark_key_to_door import DarkKeyToDoorVectorEnv
from yamame.envs.tmaze import TMazeVectorEnv
from yamame.envs.wind import WindVectorEnv


class SingleEnvAdapter(gymnasium.Env[np.ndarray, Any]):
    """A batched environment of one. `reset(options={"new_task": False})` repeats the task."""

    def __init__(self, batch_of_one: VectorEnv) -> None:
        self.batch = batch_of_one
        self.observation_space = batch_of_one.single_observation_space
        self.action_space = batch_of_one.single_action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Shaped[np.ndarray, "..."], dict[str, Any]]:
        """As Gymnasium; a new task unless `options["new_task"]` is false."""
        super().reset(seed=seed)
        observation, _ = self.batch.reset(seed=seed, options={"new_task": (options or {}).get("new_task", True)})
        return observation[0], {}

    def render(self) -> Any:
        """The batched environment's first picture, if it has any."""
        pictures = self.batch.render()
        return pictures[0] if pictures else None

    def step(self, action: Any) -> tuple[Shaped[np.ndarray, "..."], float, bool, bool, dict[str, Any]]:
        """As Gymnasium; `info["success"]` as the batched environment says."""
        observation, reward, terminated, truncated, info = self.batch.step(np.array([action], self.action_space.dtype))
        return observation[0], float(reward[0]), bool(terminated[0]), bool(truncated[0]), _first(info)


def make_tmaze(**settings: Any) -> SingleEnvAdapter:
    """One `TMazeVectorEnv` maze."""
    return SingleEnvAdapter(TMazeVectorEnv(1, **settings))


def make_dark_key_to_door(**settings: Any) -> SingleEnvAdapter:
    """One `DarkKeyToDoorVectorEnv` room."""
    return SingleEnvAdapter(DarkKeyToDoorVectorEnv(1, **settings))


def make_wind(**settings: Any) -> SingleEnvAdapter:
    """One `WindVectorEnv` point."""
    return SingleEnvAdapter(WindVectorEnv(1, **settings))


def _first(info: dict[str, Any]) -> dict[str, Any]:
    return {name: bool(values[0]) for name, values in info.items()}
