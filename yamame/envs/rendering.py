"""Frames of environments, and canvases on which NumPy environments draw them."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv
from jaxtyping import Float64, UInt8

from yamame.errors import UserError

Color = tuple[int, int, int]
Point = Float64[np.ndarray, "xy"]
WALL, FLOOR, AGENT, GOAL, HINT = (40, 44, 52), (235, 235, 230), (204, 51, 17), (34, 136, 51), (238, 187, 51)
LINE, GREY = (212, 212, 205), (176, 178, 176)
"""Lines between floor cells; minor objects."""
CANVAS_PIXELS = 480
"""Maximum length of the longer side of a canvas, if its cells have at least one pixel."""
MAX_CELL_PIXELS = 64
MIN_LINED_PIXELS, MIN_TEXT_PIXELS = 6, 14
"""Minimum sizes of cells with lines between them, and with text."""
_SUPERSAMPLING = 3
"""Factor by which planes are drawn larger for smooth edges."""


class GridCanvas:
    """Image of a grid of cells, x to the right and y upwards from 0."""

    def __init__(self, width: int, height: int, color: Color) -> None:
        self.pixels = max(1, min(MAX_CELL_PIXELS, CANVAS_PIXELS // max(width, height)))
        """Side of a cell in pixels."""
        self.image = np.empty((height * self.pixels, width * self.pixels, 3), np.uint8)
        self.image[:] = color
        self._height = height

    def fill(self, x: int, y: int, color: Color) -> None:
        """Fill one cell."""
        cell = self._cell(x, y)
        cell[:] = color
        if color == FLOOR and self.pixels >= MIN_LINED_PIXELS:
            cell[-1], cell[:, -1] = LINE, LINE

    def square(self, x: int, y: int, color: Color, *, fraction: float) -> None:
        """Draw a square in the middle of a cell, with a fraction of its side."""
        margin = int(self.pixels * (1.0 - fraction) / 2)
        self._cell(x, y)[margin : self.pixels - margin, margin : self.pixels - margin] = color

    def disc(self, x: int, y: int, color: Color, *, fraction: float) -> None:
        """Draw an antialiased disc in the middle of a cell, with a fraction of its side as diameter."""
        across, up = self._from_middle()
        self._blend(x, y, color, fraction * self.pixels / 2 - np.hypot(across, up))

    def arrow(self, x: int, y: int, color: Color, *, up: bool, fraction: float) -> None:
        """Draw a triangle that points up or down, with a fraction of the side of the cell."""
        across, upwards = self._from_middle()
        half, height = fraction * self.pixels / 2, upwards if up else -upwards
        self._blend(x, y, color, np.minimum(height + half, half - np.abs(across) * 1.1 - (height + half) / 2))

    def text(self, x: int, y: int, text: str, color: Color) -> None:
        """Draw text in the middle of a cell, unless the cell is too small."""
        if self.pixels < MIN_TEXT_PIXELS:
            return
        from PIL import Image, ImageDraw, ImageFont

        image = Image.fromarray(self._cell(x, y))
        font = ImageFont.load_default(self.pixels * 0.55)
        middle = self.pixels / 2
        ImageDraw.Draw(image).text((middle, middle), text, color, font, anchor="mm")
        self._cell(x, y)[:] = np.asarray(image)

    def _cell(self, x: int, y: int) -> UInt8[np.ndarray, "side side 3"]:
        top, left = (self._height - 1 - y) * self.pixels, x * self.pixels
        return self.image[top : top + self.pixels, left : left + self.pixels]

    def _from_middle(self) -> tuple[Float64[np.ndarray, "1 side"], Float64[np.ndarray, "side 1"]]:
        """Return the distance of each pixel of a cell to the right of its middle, and above it."""
        distance = np.arange(self.pixels) - (self.pixels - 1) / 2
        return distance[None], -distance[:, None]

    def _blend(self, x: int, y: int, color: Color, inside: Float64[np.ndarray, "side side"]) -> None:
        """Draw a shape into a cell, given how far each pixel is inside its edge; pixels at the edge are blended."""
        cell, alpha = self._cell(x, y), np.clip(inside + 0.5, 0.0, 1.0)[..., None]
        cell[:] = np.rint(cell * (1.0 - alpha) + np.array(color) * alpha)


class PlaneCanvas:
    """Antialiased image of a part of the plane, x to the right and y upwards; points outside are drawn at its edge."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float], color: Color) -> None:
        from PIL import Image, ImageDraw

        self._low, high = np.array([x[0], y[0]]), np.array([x[1], y[1]])
        self._scale = _SUPERSAMPLING * CANVAS_PIXELS / float((high - self._low).max())
        width, self._height = np.rint((high - self._low) * self._scale).astype(int).tolist()
        self._image = Image.new("RGB", (width, self._height), color)
        self._draw = ImageDraw.Draw(self._image)

    def disc(self, middle: Point, radius: float, color: Color) -> None:
        """Draw a disc."""
        x, y = self._pixel(middle)
        r = radius * self._scale
        self._draw.ellipse((x - r, y - r, x + r, y + r), color)

    def arrow(self, tail: Point, head: Point, color: Color) -> None:
        """Draw an arrow."""
        ends = np.array([self._pixel(tail), self._pixel(head)])
        along = ends[1] - ends[0]
        length = float(np.hypot(*along))
        if length < 1:
            return
        forward = along / length * min(length, 6 * _SUPERSAMPLING)
        side = 0.6 * np.array([-forward[1], forward[0]])
        neck = ends[1] - forward
        self._draw.line([*ends[0], *neck], color, 2 * _SUPERSAMPLING)
        self._draw.polygon([*ends[1], *(neck + side), *(neck - side)], color)

    def image(self) -> UInt8[np.ndarray, "height width 3"]:
        """Return what was drawn, reduced to the size of a frame."""
        return np.asarray(self._image.reduce(_SUPERSAMPLING))

    def _pixel(self, point: Point) -> tuple[float, float]:
        x, y = (point - self._low) * self._scale
        return float(np.clip(x, 0, self._image.width)), float(np.clip(self._height - y, 0, self._height))


def render_frame(env: gymnasium.Env[Any, Any] | VectorEnv) -> UInt8[np.ndarray, "height width 3"]:
    """Return a frame of an environment, or of the first of a vector environment.

    An environment that has render modes must have been made with `render_mode="rgb_array"`.

    Raises:
        UserError: If it cannot be rendered.
    """
    try:
        rendered = env.render()
    except Exception as error:  # third-party code may raise anything
        raise UserError(f"this environment cannot be recorded: it does not render ({error!r})") from error
    first = rendered[0] if isinstance(env, VectorEnv) and rendered is not None else rendered
    if not isinstance(first, np.ndarray) or first.dtype != np.uint8 or first.ndim != 3 or first.shape[2] != 3:
        raise UserError(
            "this environment cannot be recorded: its render() returns no frame (uint8, height x width x 3); "
            "make it with render_mode='rgb_array'"
        )
    return first


def render_fps(env: gymnasium.Env[Any, Any] | VectorEnv) -> float:
    """Return the frames per second that an environment declares, by default 10."""
    return float(env.metadata.get("render_fps") or 10.0)
