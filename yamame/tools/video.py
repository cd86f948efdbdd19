"""A run's policy as a film."""

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Shaped, UInt8
from PIL import Image

from yamame.algorithms.base import model_device
from yamame.config import RunConfig
from yamame.data.goals import COMPLETED, INSTRUCTION_KEY
from yamame.envs.base import RenderableVectorEnv
from yamame.envs.wrappers.instruction import GoalEnvConfig, apply_instruction
from yamame.envs.wrappers.trials import TrialWrapper
from yamame.envs.wrappers.video_recorder import VideoRecorder
from yamame.errors import UserError
from yamame.evaluate import EVALUATION_SEED, EvalResult, evaluate
from yamame.runs import LATEST, load_model, read_config

Frame = UInt8[np.ndarray, "height width 3"]
MAX_GIF = 50.0
"""Pictures per second; viewers slow down GIFs that ask for more."""


class VideoWriter(ABC):
    """A video in the making. The first picture gives its size; others are scaled to it."""

    def __init__(self) -> None:
        self._size: tuple[int, int] | None = None

    def add(self, picture: Frame) -> None:
        """One more picture."""
        image = Image.fromarray(picture)
        self._size = self._size or image.size
        self._add(image if image.size == self._size else image.resize(self._size))

    @abstractmethod
    def _add(self, image: Image.Image) -> None:
        """One more picture, of the size of the first."""

    @abstractmethod
    def close(self) -> None:
        """Write what is not written yet. There must be a picture."""


class GifWriter(VideoWriter):
    """An animated GIF; keeps its pictures, in 256 colours, until the end."""

    def __init__(self, path: Path, frames_per_second: float) -> None:
        super().__init__()
        self._path, self._milliseconds = path, 1000 / min(frames_per_second, MAX_GIF)
        self._images: list[Image.Image] = []

    def _add(self, image: Image.Image) -> None:
        self._images.append(image.quantize(256, dither=Image.Dither.NONE))

    def close(self) -> None:
        """See `Video.finish`."""
        first, *others = self._images
        first.save(
            self._path, "GIF", save_all=True, append_images=others, duration=self._milliseconds, loop=0, optimize=False
        )


class Mp4Writer(VideoWriter):
    """MP4 (H.264) through imageio-ffmpeg."""

    def __init__(self, path: Path, frames_per_second: float) -> None:
        super().__init__()
        self._path, self._frames_per_second = path, frames_per_second
        self._writer: Generator[None, Any, None] | None = None

    def _add(self, image: Image.Image) -> None:
        even = Image.new("RGB", (image.width + image.width % 2, image.height + image.height % 2))  # H.264 asks for it
        even.paste(image)
        if self._writer is None:
            import imageio_ffmpeg

            self._writer = imageio_ffmpeg.write_frames(
                str(self._path), even.size, fps=self._frames_per_second, macro_block_size=2, ffmpeg_log_level="error"
            )
            self._writer.send(None)
        self._writer.send(even.tobytes())

    def close(self) -> None:
        """See `Video.finish`."""
        if self._writer is not None:
            self._writer.close()


def validate_video_path(path: Path) -> None:
    """Raise `UserError` if no video can be written there, before anything is filmed."""
    if path.suffix not in (".gif", ".mp4"):
        raise UserError(f"cannot write a video into {path}: its name must end in .gif or .mp4")
    if path.is_dir() or not path.parent.is_dir():
        raise UserError(f"cannot write a video into {path}: give a file in a folder that exists")
    if path.suffix == ".mp4" and importlib.util.find_spec("imageio_ffmpeg") is None:
        raise UserError("MP4 needs imageio-ffmpeg: pip install 'yamame[video]', or let the name end in .gif")


@contextmanager
def open_video(path: Path, frames_per_second: float) -> Iterator[VideoWriter]:
    """A video that is whole in its file after the block, or not there at all."""
    validate_video_path(path)
    aside = path.with_name(f".{path.stem}.partial{path.suffix}")
    video = (GifWriter if path.suffix == ".gif" else Mp4Writer)(aside, frames_per_second)
    try:
        yield video
        video.close()
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def record_video(
    directory: Path,
    path: Path,
    *,
    instruction: str = "",
    trials: int = 1,
    seed: int | None = None,
    checkpoint: str = LATEST,
    config: RunConfig | None = None,
) -> EvalResult:
    """Film the greedy policy of a run's checkpoint: `trials` of what it is judged on, from `seed`.

    `instruction` is what to do, instead of what the task would draw. Raises `UserError` for a file that cannot be
    written, for a task that has no pictures, and for an instruction that nobody can follow there. `checkpoint` and
    `config` are as in `evaluate`. Returns how the filmed trials went.
    """
    validate_video_path(path)
    if trials < 1:
        raise UserError(f"cannot film {trials} trials: give at least 1")
    config = config or read_config(directory)
    env = apply_instruction(config.env.eval_config(), instruction)
    model, _ = load_model(directory, checkpoint, config)
    seed = EVALUATION_SEED if seed is None else seed
    with closing(env.build_for_rendering(seed)) as plain:
        if not isinstance(plain, TrialWrapper) or not isinstance(plain.environments, RenderableVectorEnv):
            raise UserError(f"{env.task_name} cannot be filmed: it has no pictures")
        with open_video(path, plain.environments.render_fps) as video:
            describe = partial(_describe, env) if isinstance(env, GoalEnvConfig) else None
            camera = VideoRecorder(plain.environments, video.add, trials=trials, describe=describe)
            filmed = TrialWrapper(camera, horizon=plain.horizon, attempts=plain.attempts)
            generator = torch.Generator(model_device(model)).manual_seed(seed)
            policy = config.algorithm.build_policy(model, num_envs=camera.num_envs, generator=generator)
            return evaluate(policy, filmed, trials=trials * camera.num_envs, deterministic=True)


def _describe(env: GoalEnvConfig, seen: Mapping[str, Shaped[np.ndarray, "..."]]) -> str:
    """How far the instruction is followed; nothing where there is none."""
    if INSTRUCTION_KEY not in seen:
        return ""
    instruction = seen[INSTRUCTION_KEY]
    completed = int((instruction == COMPLETED).all(axis=1).sum())
    open_goals = [env.goal_text(goal) for goal in instruction if goal.min() >= 0]
    return f"{completed} done; " + ("now " + ", then ".join(open_goals) if open_goals else "that was all")
