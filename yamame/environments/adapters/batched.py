"""What our batched environments share: the reading of `reset`'s options."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool


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
