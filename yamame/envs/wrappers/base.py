"""Base class of wrappers around vector environments."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Shaped, UInt8
from typing_extensions import override

from yamame.data.step import VectorStep
from yamame.envs.base import EpisodeVectorEnv, RenderableVectorEnv
from yamame.errors import UserError
from yamame.types import State, load_nested_state_dict, nested_state_dict


class VectorEnvWrapper(RenderableVectorEnv):
    """Forwards every member of an `EpisodeVectorEnv` to `env`. Subclasses override those that they change."""

    _STATE: ClassVar[tuple[str, ...]] = ()
    """Attributes of the wrapper that `state_dict` saves."""

    def __init__(self, env: EpisodeVectorEnv) -> None:
        self.env = env
        self.num_envs = env.num_envs
        self.observation_space = env.observation_space
        self.action_space = env.action_space
        self.env_action_space = env.env_action_space

    @override
    def reset(
        self, reset_mask: Bool[np.ndarray, "E"], new_task: Bool[np.ndarray, "E"]
    ) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        return self.env.reset(reset_mask, new_task)

    @override
    def step(self, action: Shaped[np.ndarray, "E ..."]) -> VectorStep:
        return self.env.step(action)

    @override
    def close(self) -> None:
        self.env.close()

    @property
    @override
    def render_fps(self) -> float:
        return self.env.render_fps if isinstance(self.env, RenderableVectorEnv) else 10.0

    @override
    def render(self) -> UInt8[np.ndarray, "height width 3"]:
        if not isinstance(self.env, RenderableVectorEnv):
            raise UserError("this environment cannot be recorded: it has no frames")
        return self.env.render()

    def state_dict(self) -> State | None:
        """Return the state of the environments and the wrapper; None if the environments cannot save theirs."""
        return nested_state_dict(self.env, self, self._STATE)

    def load_state_dict(self, state: State) -> None:
        """Restore the result of `state_dict`."""
        load_nested_state_dict(self.env, self, state)
