"""Pictures: what environments look like, and boards of cells drawn by NumPy."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv
from jaxtyping import UInt8

from yamame.records.errors import UserError

Color = tuple[int, int, int]
WALL, FLOOR, AGENT, GOAL, HINT = (40, 44, 52), (235, 235, 230), (204, 51, 17), (34, 136, 51), (238, 187, 51)
BOARD_PIXELS = 480
"""A board's longer side is at most so long, as far as its cells keep a pixel each."""
SMALLEST_LINED = 6
"""Cells of fewer pixels have no lines between them."""


class Board:
    """A picture of cells, x to the right and y upwards from 0."""

    def __init__(self, width: int, height: int, color: Color) -> None:
        self._pixels = max(1, min(32, BOARD_PIXELS // max(width, height)))
        self.picture = np.empty((height * self._pixels, width * self._pixels, 3), np.uint8)
        self.picture[:] = color
        self._height = height

    def fill(self, x: int, y: int, color: Color, *, share: float = 1.0) -> None:
        """Paint one cell, or a square in its middle whose side is `share` of the cell's."""
        margin = int(self._pixels * (1.0 - share) / 2)
        line = int(self._pixels >= SMALLEST_LINED and share == 1.0)
        top, left = (self._height - 1 - y) * self._pixels + margin, x * self._pixels + margin
        side = max(1, self._pixels - 2 * margin - line)
        self.picture[top : top + side, left : left + side] = color


def render(environment: gymnasium.Env[Any, Any] | VectorEnv) -> UInt8[np.ndarray, "height width 3"]:
    """What an environment, or the first of a vector environment, looks like now; `UserError` where it cannot be seen.

    It must have been made with `render_mode="rgb_array"`, if it is one that has render modes.
    """
    try:
        rendered = environment.render()
    except Exception as problem:  # third-party code: it may raise anything
        raise UserError(f"this environment cannot be filmed: it does not render ({problem!r})") from problem
    first = rendered[0] if isinstance(environment, VectorEnv) and rendered is not None else rendered
    if not isinstance(first, np.ndarray) or first.dtype != np.uint8 or first.ndim != 3 or first.shape[2] != 3:
        raise UserError(
            "this environment cannot be filmed: its render() gives no picture (uint8, height x width x 3); "
            "make it with render_mode='rgb_array'"
        )
    return first


def frames_per_second(environment: gymnasium.Env[Any, Any] | VectorEnv, default: float = 10.0) -> float:
    """What an environment says of how fast its pictures are meant to follow each other."""
    return float(environment.metadata.get("render_fps") or default)
