"""Base class of the batched NumPy environments, and their single-environment form."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, TypeVar

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from jaxtyping import Bool, Float64, Shaped, UInt8
from typing_extensions import override

from yamame.errors import UserError
from yamame.types import State, set_attributes

RENDERING = {"render_modes": ["rgb_array"], "render_fps": 10.0}

_Observation = TypeVar("_Observation")
StepResult = tuple[_Observation, Float64[np.ndarray, "E"], Bool[np.ndarray, "E"], Bool[np.ndarray, "E"], dict[str, Any]]
"""Observation, reward, terminated, truncated, info."""


class NumpyVectorEnv(VectorEnv, ABC):
    """Vector environment whose state is its NumPy array attributes and `np_random`."""

    def __init__(
        self,
        num_envs: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        render_mode: str | None,
    ) -> None:
        if render_mode not in (None, "rgb_array"):
            raise UserError(f"render_mode is {render_mode!r}: give 'rgb_array', or None")
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = observation_space, action_space
        self.observation_space, self.action_space = (
            batch_space(space, num_envs) for space in (observation_space, action_space)
        )
        self.metadata = {**RENDERING, "autoreset_mode": AutoresetMode.DISABLED}
        self.render_mode = render_mode

    @abstractmethod
    def render_single(self, index: int) -> UInt8[np.ndarray, "height width 3"]:
        """Return a frame of one environment."""

    @override
    def render(self) -> tuple[UInt8[np.ndarray, "height width 3"], ...]:
        return tuple(self.render_single(row) for row in range(self.num_envs))

    def state_dict(self) -> State:
        """Return copies of all arrays and the state of the random generator."""
        arrays = {name: value.copy() for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return {"arrays": arrays, "rng": self.np_random.bit_generator.state}

    def load_state_dict(self, state: State) -> None:
        """Restore the result of `state_dict`."""
        set_attributes(self, state["arrays"])
        self.np_random.bit_generator.state = state["rng"]


def parse_reset_options(
    options: Mapping[str, Any] | None, has_task: Bool[np.ndarray, "E"]
) -> tuple[Bool[np.ndarray, "E"], Bool[np.ndarray, "E"]]:
    """Read the options of a reset.

    Args:
        options: `reset_mask` (all rows if absent) and `new_task` (bools, or one for all; True if absent).
        has_task: Rows that have a task; the others always sample one.

    Returns:
        The rows that start an episode, and those among them that sample a new task.
    """
    options = options or {}
    rows = np.broadcast_to(np.asarray(options.get("reset_mask", True), np.bool_), has_task.shape)
    new_task = np.broadcast_to(np.asarray(options.get("new_task", True), np.bool_), has_task.shape)
    return rows, rows & (new_task | ~has_task)


class SingleEnvAdapter(gymnasium.Env[np.ndarray, Any]):
    """`gymnasium.Env` over a vector environment of one. `reset(options={"new_task": False})` repeats the task.

    `gymnasium.make(…, render_mode="human")` shows its frames in a window, for which Gymnasium needs pygame.
    """

    metadata = dict(RENDERING)  # noqa: RUF012 -- Gymnasium writes into it

    def __init__(self, vector_env: VectorEnv) -> None:
        self.vector_env = vector_env
        self.observation_space = vector_env.single_observation_space
        self.action_space = vector_env.single_action_space
        self.render_mode = vector_env.render_mode

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Shaped[np.ndarray, "..."], dict[str, Any]]:
        super().reset(seed=seed)
        new_task = (options or {}).get("new_task", True)
        observation, _ = self.vector_env.reset(seed=seed, options={"new_task": new_task})
        return observation[0], {}

    @override
    def step(self, action: Any) -> tuple[Shaped[np.ndarray, "..."], float, bool, bool, dict[str, Any]]:
        batched = np.array([action], self.action_space.dtype)
        observation, reward, terminated, truncated, info = self.vector_env.step(batched)
        single_info = {name: bool(values[0]) for name, values in info.items()}
        return observation[0], float(reward[0]), bool(terminated[0]), bool(truncated[0]), single_info

    @override
    def render(self) -> Any:
        frames = self.vector_env.render()
        return frames[0] if frames else None
