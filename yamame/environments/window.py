"""`Window`: what an environment looks like on the screen, as it goes on (render mode `human`)."""

import time

import numpy as np
from jaxtyping import UInt8

from yamame.records.errors import UserError


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
