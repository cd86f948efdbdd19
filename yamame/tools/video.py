"""Videos of a run's policy."""

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped, UInt8
from PIL import Image
from typing_extensions import override

from yamame.data.goals import COMPLETED, INSTRUCTION_KEY
from yamame.envs.base import RenderableVectorEnv
from yamame.envs.config import EnvConfig, GoalEnvConfig, apply_instruction
from yamame.envs.working_directory import kept_working_directory
from yamame.envs.wrappers.trials import TrialWrapper
from yamame.envs.wrappers.video_recorder import VideoRecorder
from yamame.errors import UserError, wrap_os_errors
from yamame.runs.durable_files import replace_atomically
from yamame.training.evaluate import EVALUATION_SEED, EvalResult, check_seed, check_trials, evaluate_policy
from yamame.training.trained_run import TrainedRun

Frame = UInt8[np.ndarray, "height width 3"]
MAX_GIF_FPS = 50.0
"""Frames per second; viewers slow down faster GIFs."""


class VideoWriter(ABC):
    """Writes frames to a video file. The first frame sets the size; others are scaled to it."""

    def __init__(self) -> None:
        self._size: tuple[int, int] | None = None

    def add(self, frame: Frame) -> None:
        """Add a frame."""
        image = Image.fromarray(frame)
        self._size = self._size or image.size
        self._add(image if image.size == self._size else image.resize(self._size))

    @abstractmethod
    def _add(self, image: Image.Image) -> None:
        """Add an image of the size of the first."""

    @abstractmethod
    def close(self) -> None:
        """Finish the file. Requires at least one frame."""


class GifWriter(VideoWriter):
    """Writes an animated GIF; keeps its frames, in 256 colors, until the end."""

    def __init__(self, path: Path, frames_per_second: float) -> None:
        super().__init__()
        self._path, self._milliseconds = path, 1000 / min(frames_per_second, MAX_GIF_FPS)
        self._images: list[Image.Image] = []

    @override
    def _add(self, image: Image.Image) -> None:
        self._images.append(image.quantize(256, dither=Image.Dither.NONE))

    @override
    def close(self) -> None:
        first, *others = self._images
        first.save(
            self._path, "GIF", save_all=True, append_images=others, duration=self._milliseconds, loop=0, optimize=False
        )


class Mp4Writer(VideoWriter):
    """Writes MP4 (H.264) with imageio-ffmpeg."""

    def __init__(self, path: Path, frames_per_second: float) -> None:
        super().__init__()
        self._path, self._frames_per_second = path, frames_per_second
        self._writer: Generator[None, Any, None] | None = None

    @override
    def _add(self, image: Image.Image) -> None:
        even = Image.new("RGB", (image.width + image.width % 2, image.height + image.height % 2))  # required by H.264
        even.paste(image)
        if self._writer is None:
            import imageio_ffmpeg

            self._writer = imageio_ffmpeg.write_frames(
                str(self._path), even.size, fps=self._frames_per_second, macro_block_size=2, ffmpeg_log_level="error"
            )
            self._writer.send(None)
        try:
            self._writer.send(even.tobytes())
        except OSError as problem:
            raise UserError(
                f"cannot write a video to {self._path.parent}: ffmpeg ended, as on a full disk"
            ) from problem

    @override
    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def validate_video_path(path: Path) -> None:
    """Raise `UserError` if no video can be written to the path."""
    if path.suffix not in (".gif", ".mp4"):
        raise UserError(f"cannot write a video to {path}: the name must end in .gif or .mp4")
    if path.is_dir() or not path.parent.is_dir():
        raise UserError(f"cannot write a video to {path}: give a file in an existing directory")
    if path.suffix == ".mp4" and importlib.util.find_spec("imageio_ffmpeg") is None:
        raise UserError("MP4 needs imageio-ffmpeg: pip install 'yamame[video]', or use a name that ends in .gif")


@contextmanager
def open_video(path: Path, frames_per_second: float) -> Iterator[VideoWriter]:
    """Yield a writer; the file appears at the end of the block. Raises `UserError` if it cannot be written."""
    validate_video_path(path)
    with ExitStack() as stack:
        with wrap_os_errors(path):
            partial_path = stack.enter_context(replace_atomically(path))
            partial_path.touch()  # before any trial
        video = (GifWriter if path.suffix == ".gif" else Mp4Writer)(partial_path, frames_per_second)
        yield video
        with wrap_os_errors(path):
            video.close()
            stack.close()


@kept_working_directory()
def record_video(
    run: TrainedRun, path: Path, *, instruction: str = "", trials: int = 1, seed: int | None = None
) -> EvalResult:
    """Record a video of the deterministic policy.

    Args:
        run: The run.
        path: Output file, .gif or .mp4.
        instruction: Instruction of every trial; empty: sampled by the task.
        trials: Number of trials.
        seed: Seed of tasks and actions; None: that of evaluations.

    Returns:
        Result of the recorded trials.

    Raises:
        UserError: If the file cannot be written, the task renders no frames or does not take the instruction.
    """
    path = path.absolute()
    validate_video_path(path)
    check_trials(trials)
    env = apply_instruction(run.config.env.eval_config(), instruction)
    seed = EVALUATION_SEED if seed is None else seed
    check_seed(seed)
    with closing(env.build_for_rendering(seed)) as plain:
        if not isinstance(plain, TrialWrapper) or not isinstance(plain.env, RenderableVectorEnv):
            raise UserError(f"{env.task_name} renders no frames: no video can be recorded")
        with open_video(path, plain.env.render_fps) as video:
            caption = partial(_caption, env) if isinstance(env, GoalEnvConfig) else None
            recorder = VideoRecorder(plain.env, video.add, trials=trials, describe=caption)
            recorded = TrialWrapper(recorder, horizon=plain.horizon, attempts=plain.attempts)
            policy = run.policy(num_envs=recorder.num_envs, seed=seed)
            return evaluate_policy(policy, recorded, trials=trials * recorder.num_envs, deterministic=True)


@kept_working_directory()
def renders_frames(env: EnvConfig) -> bool:
    """Return whether videos of the test tasks can be recorded, after rendering a frame."""
    try:
        with closing(env.eval_config().build_for_rendering(EVALUATION_SEED)) as trials:
            if not isinstance(trials, TrialWrapper) or not isinstance(trials.env, RenderableVectorEnv):
                return False
            everywhere = np.ones(trials.num_envs, np.bool_)
            trials.env.reset(everywhere, everywhere)
            trials.env.render()
            return True
    except UserError:
        return False


def _caption(env: GoalEnvConfig, observation: Mapping[str, Shaped[np.ndarray, "..."]]) -> str:
    """Return the progress of the instruction in words; empty without one."""
    if INSTRUCTION_KEY not in observation:
        return ""
    instruction = observation[INSTRUCTION_KEY]
    completed = int((instruction == COMPLETED).all(axis=1).sum())
    open_goals = [env.goal_text(goal) for goal in instruction if goal.min() >= 0]
    return f"{completed} done; " + ("now " + ", then ".join(open_goals) if open_goals else "that was all")
