"""What our batched environments share: the reading of `reset`'s options, and going on where one stood."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from jaxtyping import Bool

from yamame.records.resumable import State, set_attributes


class BatchedEnv(VectorEnv):
    """A vector environment all of whose state is in NumPy arrays that are its attributes, and in `np_random`."""

    def state_dict(self) -> State:
        """See `Resumable`."""
        arrays = {name: value.copy() for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return {"arrays": arrays, "rng": self.np_random.bit_generator.state}

    def load_state_dict(self, state: State) -> None:
        """See `Resumable`."""
        set_attributes(self, state["arrays"])
        self.np_random.bit_generator.state = state["rng"]


def rows_to_reset(
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
