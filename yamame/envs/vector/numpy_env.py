"""What our batched environments share: the reading of `reset`'s options, and going on where one stood."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from jaxtyping import Bool, UInt8

from yamame.envs.rendering import Window
from yamame.errors import UserError
from yamame.types import State, set_attributes

RENDER_MODES = ("rgb_array", "human")
FRAMES_PER_SECOND = 10.0


class NumpyVectorEnv(VectorEnv, ABC):
    """A vector environment all of whose state is in NumPy arrays that are its attributes, and in `np_random`.

    With `render_mode="human"` the first of its environments is shown in a window after every reset and step; otherwise
    `render` gives pictures of all of them.
    """

    def __init__(self, render_mode: str | None) -> None:
        if render_mode not in (None, *RENDER_MODES):
            raise UserError(f"render_mode is {render_mode!r}: give one of {', '.join(RENDER_MODES)}")
        self.metadata = {
            "autoreset_mode": AutoresetMode.DISABLED,
            "render_modes": list(RENDER_MODES),
            "render_fps": FRAMES_PER_SECOND,
        }
        self.render_mode = render_mode
        self._window = Window(type(self).__name__, FRAMES_PER_SECOND) if render_mode == "human" else None

    @abstractmethod
    def render_single(self, index: int) -> UInt8[np.ndarray, "height width 3"]:
        """What one of the environments looks like now."""

    def render(self) -> tuple[UInt8[np.ndarray, "height width 3"], ...] | None:
        """Pictures of all of them; with `human` None, since the window shows the first."""
        if self._window is None:
            return tuple(self.render_single(row) for row in range(self.num_envs))
        self._window.show(self.render_single(0))
        return None

    def show(self) -> None:
        """Show how things stand, where there is a window."""
        if self._window is not None:
            self.render()

    def close_extras(self, **kwargs: Any) -> None:
        """See `VectorEnv.close`."""
        if self._window is not None:
            self._window.close()

    def state_dict(self) -> State:
        """See `Resumable`."""
        arrays = {name: value.copy() for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return {"arrays": arrays, "rng": self.np_random.bit_generator.state}

    def load_state_dict(self, state: State) -> None:
        """See `Resumable`."""
        set_attributes(self, state["arrays"])
        self.np_random.bit_generator.state = state["rng"]


def parse_reset_options(
    options: Mapping[str, Any] | None, has_task: Bool[np.ndarray, "E"]
) -> tuple[Bool[np.ndarray, "E"], Bool[np.ndarray, "E"]]:
    """The rows that begin an episode, and those among them that draw a new task.

    `options["reset_mask"]` (all rows if absent) and `options["new_task"]` (bools, or one for all; true if absent);
    a row that never had a task draws one in any case.
    """
    options = options or {}
    rows = np.broadcast_to(np.asarray(options.get("reset_mask", True), np.bool_), has_task.shape)
    new_task = np.broadcast_to(np.asarray(options.get("new_task", True), np.bool_), has_task.shape)
    return rows, rows & (new_task | ~has_task)
