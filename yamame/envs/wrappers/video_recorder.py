"""Wrapper that records captioned frames of the first environment."""

from collections.abc import Callable, Mapping
from textwrap import wrap

import numpy as np
from jaxtyping import Bool, Shaped, UInt8
from PIL import Image, ImageDraw, ImageFont
from typing_extensions import override

from yamame.data.step import VectorStep
from yamame.envs.base import EpisodeVectorEnv
from yamame.envs.wrappers.base import VectorEnvWrapper

Frame = UInt8[np.ndarray, "height width 3"]
CaptionFn = Callable[[Mapping[str, Shaped[np.ndarray, "..."]]], str]
"""Observation of one environment -> text."""

MIN_SIDE = 320
"""Frames whose longer side has fewer pixels are enlarged by an integer factor."""
LINE_HEIGHT, FONT_SIZE, LETTER_WIDTH = 20, 14, 8
CAPTION_LINES = 3
"""Lines reserved for the text of the `CaptionFn`."""


class VideoRecorder(VectorEnvWrapper):
    """Passes a captioned frame of the first environment to `add_frame` after each of its resets and steps.

    The frame of a step precedes the reset after it, so the last step of every attempt is recorded. Put it below
    `TrialWrapper`.

    Args:
        trials: Number of trials to record; frames of later trials are not rendered.
        describe: Returns a text about the first environment's observation, which becomes part of the caption.
    """

    def __init__(
        self,
        env: EpisodeVectorEnv,
        add_frame: Callable[[Frame], None],
        *,
        trials: int,
        describe: CaptionFn | None = None,
    ) -> None:
        super().__init__(env)
        self._add_frame, self._max_trials, self._describe = add_frame, trials, describe
        self._trial = self._attempt = self._step = 0
        self._reward = self._return = 0.0

    @override
    def reset(
        self, reset_mask: Bool[np.ndarray, "E"], new_task: Bool[np.ndarray, "E"]
    ) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        observation = self.env.reset(reset_mask, new_task)
        if reset_mask[0]:
            self._attempt += 1
            if new_task[0]:
                self._trial, self._attempt, self._step, self._return = self._trial + 1, 1, 0, 0.0
            self._reward = 0.0
            self._record(observation)
        return observation

    @override
    def step(self, action: Shaped[np.ndarray, "E ..."]) -> VectorStep:
        step = self.env.step(action)
        if step.is_transition[0]:
            self._step += 1
            self._reward = float(step.reward[0])
            self._return += self._reward
        self._record(step.observation)
        return step

    def _record(self, observation: Mapping[str, Shaped[np.ndarray, "E ..."]]) -> None:
        if self._trial > self._max_trials:
            return
        frame = self.render()
        lines = [
            f"trial {self._trial}   attempt {self._attempt}   step {self._step}",
            f"reward {self._reward:.3g}   return {self._return:.4g}",
        ]
        if self._describe:
            text = self._describe({name: leaf[0] for name, leaf in observation.items()})
            wrapped = wrap(text, max(MIN_SIDE, frame.shape[1]) // LETTER_WIDTH)[:CAPTION_LINES]
            lines += wrapped + [""] * (CAPTION_LINES - len(wrapped))
        self._add_frame(add_caption(frame, tuple(lines)))


def add_caption(frame: Frame, lines: tuple[str, ...]) -> UInt8[np.ndarray, "larger_height larger_width 3"]:
    """Return a frame, enlarged if it is small, with lines of text below it."""
    scale = -(-MIN_SIDE // max(frame.shape[:2]))
    large = Image.fromarray(frame.repeat(scale, axis=0).repeat(scale, axis=1))
    canvas = Image.new("RGB", (max(MIN_SIDE, large.width), large.height + LINE_HEIGHT * len(lines) + 6), "black")
    canvas.paste(large, ((canvas.width - large.width) // 2, 0))
    draw, font = ImageDraw.Draw(canvas), ImageFont.load_default(FONT_SIZE)
    for number, line in enumerate(lines):
        draw.text((6, large.height + 3 + number * LINE_HEIGHT), line, "white", font)
    return np.asarray(canvas)
