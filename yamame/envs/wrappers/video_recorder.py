"""`Camera`: stands between trials and their environments and takes a picture of the first one at every step."""

from collections.abc import Callable, Mapping
from textwrap import wrap

import numpy as np
from jaxtyping import Bool, Shaped, UInt8
from PIL import Image, ImageDraw, ImageFont

from yamame.data.step import EpisodeStep
from yamame.envs.base import RenderableVectorEnv

Frame = UInt8[np.ndarray, "height width 3"]
CaptionFn = Callable[[Mapping[str, Shaped[np.ndarray, "..."]]], str]
"""What one environment sees -> a text."""

MIN_SIDE = 320
"""Pictures whose longer side is shorter are enlarged, each pixel to a square of pixels."""
LINE_HEIGHT, FONT_SIZE, LETTER_WIDTH = 20, 14, 8
DESCRIPTION_LINES = 3


class VideoRecorder:
    """`Environments` that behave as those behind it, and show what the first of them does, with a caption.

    A picture is taken after every reset and every transition, before the next attempt begins, so that each attempt is
    seen to its end. `trials` of them are shown; later ones happen unseen. `describe` may say something about what the
    first environment sees, which becomes part of the caption.
    """

    def __init__(
        self,
        environments: RenderableVectorEnv,
        show: Callable[[Frame], None],
        *,
        trials: int,
        describe: CaptionFn | None = None,
    ) -> None:
        self._environments, self._show, self._trials = environments, show, trials
        self._describe = describe
        self.num_envs = environments.num_envs
        self.observation_space = environments.observation_space
        self.action_space = environments.action_space
        self.env_action_space = environments.env_action_space
        self._trial = self._attempt = self._step = 0
        self._reward = self._return = 0.0

    def reset(
        self, reset_mask: Bool[np.ndarray, "E"], new_task: Bool[np.ndarray, "E"]
    ) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        """See `Environments.reset`."""
        observation = self._environments.reset(reset_mask, new_task)
        if reset_mask[0]:
            self._attempt += 1
            if new_task[0]:
                self._trial, self._attempt, self._step, self._return = self._trial + 1, 1, 0, 0.0
            self._reward = 0.0
            self._take(observation)
        return observation

    def step(self, action: Shaped[np.ndarray, "E ..."]) -> EpisodeStep:
        """See `Environments.step`."""
        answer = self._environments.step(action)
        if answer.is_transition[0]:
            self._step += 1
            self._reward = float(answer.reward[0])
            self._return += self._reward
        self._take(answer.observation)
        return answer

    def close(self) -> None:
        """Close what is behind."""
        self._environments.close()

    def _take(self, observation: Mapping[str, Shaped[np.ndarray, "E ..."]]) -> None:
        if self._trial > self._trials:
            return
        picture = self._environments.render()
        lines = [
            f"trial {self._trial}   attempt {self._attempt}   step {self._step}",
            f"reward {self._reward:.3g}   return {self._return:.4g}",
        ]
        if self._describe:
            said = self._describe({name: leaf[0] for name, leaf in observation.items()})
            wrapped = wrap(said, max(MIN_SIDE, picture.shape[1]) // LETTER_WIDTH)[:DESCRIPTION_LINES]
            lines += wrapped + [""] * (DESCRIPTION_LINES - len(wrapped))
        self._show(add_caption(picture, tuple(lines)))


def add_caption(frame: Frame, lines: tuple[str, ...]) -> UInt8[np.ndarray, "larger_height larger_width 3"]:
    """A picture, enlarged where it is small, with lines of text below it."""
    scale = -(-MIN_SIDE // max(frame.shape[:2]))
    large = Image.fromarray(frame.repeat(scale, axis=0).repeat(scale, axis=1))
    canvas = Image.new("RGB", (max(MIN_SIDE, large.width), large.height + LINE_HEIGHT * len(lines) + 6), "black")
    canvas.paste(large, ((canvas.width - large.width) // 2, 0))
    draw, font = ImageDraw.Draw(canvas), ImageFont.load_default(FONT_SIZE)
    for number, line in enumerate(lines):
        draw.text((6, large.height + 3 + number * LINE_HEIGHT), line, "white", font)
    return np.asarray(canvas)
