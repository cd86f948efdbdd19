"""Pictures: what environments look like, and boards of cells drawn by NumPy."""

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv
from jaxtyping import Float64, UInt8
from PIL import Image, ImageDraw, ImageFont

from yamame.errors import UserError

Color = tuple[int, int, int]
Point = Float64[np.ndarray, "xy"]
WALL, FLOOR, AGENT, GOAL, HINT = (40, 44, 52), (235, 235, 230), (204, 51, 17), (34, 136, 51), (238, 187, 51)
LINE, GREY = (212, 212, 205), (176, 178, 176)
"""Lines between cells of a floor; what matters less."""
BOARD_PIXELS = 480
"""A board's longer side is at most so long, as far as its cells keep a pixel each."""
MAX_CELL = 64
MIN_LINED, MIN_TEXT = 6, 14
"""Cells of fewer pixels have no lines between them, and no text."""
_FINER = 3
"""Planes are painted so many times larger, so that edges become smooth."""


class GridCanvas:
    """A picture of cells, x to the right and y upwards from 0."""

    def __init__(self, width: int, height: int, color: Color) -> None:
        self.pixels = max(1, min(MAX_CELL, BOARD_PIXELS // max(width, height)))
        """Side of a cell."""
        self.image = np.empty((height * self.pixels, width * self.pixels, 3), np.uint8)
        self.image[:] = color
        self._height = height

    @staticmethod
    def filled_floor(width: int, height: int) -> "GridCanvas":
        """A board all of whose cells are floor."""
        board = GridCanvas(width, height, FLOOR)
        if board.pixels >= MIN_LINED:
            board.image[board.pixels - 1 :: board.pixels] = LINE
            board.image[:, board.pixels - 1 :: board.pixels] = LINE
        return board

    def fill(self, x: int, y: int, color: Color) -> None:
        """Paint one cell."""
        cell = self._cell(x, y)
        cell[:] = color
        if color == FLOOR and self.pixels >= MIN_LINED:
            cell[-1], cell[:, -1] = LINE, LINE

    def square(self, x: int, y: int, color: Color, *, share: float) -> None:
        """Paint a square in the middle of a cell; its side is `share` of the cell's."""
        margin = int(self.pixels * (1.0 - share) / 2)
        self._cell(x, y)[margin : self.pixels - margin, margin : self.pixels - margin] = color

    def disc(self, x: int, y: int, color: Color, *, share: float) -> None:
        """The like, round and smooth."""
        across, up = self._from_middle()
        self._blend(x, y, color, share * self.pixels / 2 - np.hypot(across, up))

    def arrow(self, x: int, y: int, color: Color, *, up: bool, share: float) -> None:
        """The like, a triangle that points up or down."""
        across, upwards = self._from_middle()
        half, height = share * self.pixels / 2, upwards if up else -upwards
        self._blend(x, y, color, np.minimum(height + half, half - np.abs(across) * 1.1 - (height + half) / 2))

    def text(self, x: int, y: int, text: str, color: Color) -> None:
        """Write into the middle of a cell; nothing where it is too small to be read."""
        if self.pixels < MIN_TEXT:
            return
        image = Image.fromarray(self._cell(x, y))
        font = ImageFont.load_default(self.pixels * 0.55)
        middle = self.pixels / 2
        ImageDraw.Draw(image).text((middle, middle), text, color, font, anchor="mm")
        self._cell(x, y)[:] = np.asarray(image)

    def _cell(self, x: int, y: int) -> UInt8[np.ndarray, "side side 3"]:
        top, left = (self._height - 1 - y) * self.pixels, x * self.pixels
        return self.image[top : top + self.pixels, left : left + self.pixels]

    def _from_middle(self) -> tuple[Float64[np.ndarray, "1 side"], Float64[np.ndarray, "side 1"]]:
        """How far the pixels of a cell are to the right of its middle, and above it."""
        distance = np.arange(self.pixels) - (self.pixels - 1) / 2
        return distance[None], -distance[:, None]

    def _blend(self, x: int, y: int, color: Color, inside: Float64[np.ndarray, "side side"]) -> None:
        """Paint the pixels of a cell that are so far inside a shape; those at its edge in part."""
        cell, part = self._cell(x, y), np.clip(inside + 0.5, 0.0, 1.0)[..., None]
        cell[:] = np.rint(cell * (1.0 - part) + np.array(color) * part)


class PlaneCanvas:
    """A smooth picture of a part of the plane, x to the right and y upwards; what lies outside is drawn at its edge."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float], color: Color) -> None:
        self._low, high = np.array([x[0], y[0]]), np.array([x[1], y[1]])
        self._scale = _FINER * BOARD_PIXELS / float((high - self._low).max())
        width, self._height = np.rint((high - self._low) * self._scale).astype(int).tolist()
        self._image = Image.new("RGB", (width, self._height), color)
        self._pen = ImageDraw.Draw(self._image)

    def disc(self, middle: Point, radius: float, color: Color) -> None:
        """Paint a disc."""
        x, y = self._pixel(middle)
        r = radius * self._scale
        self._pen.ellipse((x - r, y - r, x + r, y + r), color)

    def arrow(self, tail: Point, head: Point, color: Color) -> None:
        """Paint an arrow."""
        ends = np.array([self._pixel(tail), self._pixel(head)])
        along = ends[1] - ends[0]
        length = float(np.hypot(*along))
        if length < 1:
            return
        forward = along / length * min(length, 6 * _FINER)
        side = 0.6 * np.array([-forward[1], forward[0]])
        neck = ends[1] - forward
        self._pen.line([*ends[0], *neck], color, 2 * _FINER)
        self._pen.polygon([*ends[1], *(neck + side), *(neck - side)], color)

    def image(self) -> UInt8[np.ndarray, "height width 3"]:
        """What was painted."""
        return np.asarray(self._image.reduce(_FINER))

    def _pixel(self, point: Point) -> tuple[float, float]:
        x, y = (point - self._low) * self._scale
        return float(np.clip(x, 0, self._image.width)), float(np.clip(self._height - y, 0, self._height))


def render_frame(environment: gymnasium.Env[Any, Any] | VectorEnv) -> UInt8[np.ndarray, "height width 3"]:
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


def render_fps(environment: gymnasium.Env[Any, Any] | VectorEnv, default: float = 10.0) -> float:
    """What an environment says of how fast its pictures are meant to follow each other."""
    return float(environment.metadata.get("render_fps") or default)


class Window:
    """A window that opens with its first picture; closing it, or Ctrl-C, ends the program as it would anywhere."""

    def __init__(self, title: str, render_fps: float) -> None:
        try:
            import pygame
        except ImportError:
            raise UserError("render_mode='human' needs a window: pip install 'yamame[window]'") from None
        self._pygame = pygame
        self._title, self._seconds = title, 1.0 / render_fps
        self._next = 0.0

    def show(self, frame: UInt8[np.ndarray, "height width 3"]) -> None:
        """Show a picture, no sooner than the last one has stood its time. `UserError` where there is no screen."""
        pygame = self._pygame
        height, width = frame.shape[:2]
        try:
            screen = pygame.display.get_surface() if pygame.display.get_init() else None
            if screen is None or screen.get_size() != (width, height):
                pygame.display.init()
                screen = pygame.display.set_mode((width, height))
                pygame.display.set_caption(self._title)
            if any(event.type == pygame.QUIT for event in pygame.event.get()):
                self.close()
                raise KeyboardInterrupt
            screen.blit(pygame.surfarray.make_surface(frame.swapaxes(0, 1)), (0, 0))
            pygame.display.flip()
        except pygame.error as problem:
            raise UserError(f"no window can be opened here ({problem}): use render_mode='rgb_array'") from None
        time.sleep(max(0.0, self._next - time.monotonic()))
        self._next = time.monotonic() + self._seconds

    def close(self) -> None:
        """Close the window."""
        self._pygame.display.quit()
