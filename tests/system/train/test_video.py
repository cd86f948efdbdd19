"""Videos of a run: every attempt to its end, in whole files, and one line for what cannot be recorded."""

import json
import re
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from PIL import Image, ImageSequence
from tiny import TINY_NETWORK

from yamame.cli import main
from yamame.collect.collector import RandomPolicy
from yamame.envs.dark_key_to_door import DarkKeyToDoorVectorEnv
from yamame.envs.gymnasium import GymnasiumConfig
from yamame.envs.rendering import AGENT, FLOOR, GOAL, HINT
from yamame.envs.tmaze import TMazeVectorEnv
from yamame.envs.vector.serial import SerialVectorEnv
from yamame.envs.wrappers.trials import TrialWrapper
from yamame.envs.wrappers.video_recorder import VideoRecorder, add_caption
from yamame.errors import UserError
from yamame.recipes import config_from_overrides, load_recipe
from yamame.tools.video import open_video, record_video, validate_video_path
from yamame.training.evaluate import evaluate_policy
from yamame.training.run_files import RunMetadata
from yamame.training.start import train_run
from yamame.training.trained_run import load_trained_run

pytestmark = pytest.mark.slow

TINY: dict[str, Any] = {
    "env_steps": 40,
    "num_envs": 4,
    "replay.batch_size": 2,
    **TINY_NETWORK,
    "eval": {"trials": 2, "final_trials": 2, "num_envs": 2, "interval_env_steps": 0},
}


class Traffic(gymnasium.Env[np.ndarray, int]):
    """Shows its step as a shade of grey; episodes of three steps."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 25}  # noqa: RUF012

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> Any:
        self.time += 1
        return np.zeros(1, np.float32), 1.0, self.time == 3, False, {}

    def render(self) -> Any:
        return np.full((10, 20, 3), 50 * self.time, np.uint8)


def made(recipe: str, run: Path, env: dict[str, Any]) -> Path:
    config = config_from_overrides(load_recipe(recipe), [], {**TINY, "env": env})
    train_run(config, RunMetadata(recipe=recipe), run_dir=run, quiet=True)
    return run


def has(frame: np.ndarray, color: tuple[int, int, int]) -> bool:
    return bool((frame == color).all(-1).any())


# what is shown


@pytest.mark.parametrize("trials", [1, 2])
def test_every_attempt_is_seen_to_its_end(trials: int) -> None:
    shown: list[np.ndarray] = []
    serial = SerialVectorEnv([Traffic()], 0)
    camera = VideoRecorder(serial, shown.append, trials=trials)
    env = TrialWrapper(camera, horizon=100, attempts=2)
    result = evaluate_policy(
        RandomPolicy(serial.action_space, np.random.default_rng(0)), env, trials=3, deterministic=True
    )
    assert result.return_mean == 6.0
    assert [int(frame[0, 0, 0]) for frame in shown] == [0, 50, 100, 150] * 2 * trials
    assert all(frame.shape == shown[0].shape for frame in shown)
    assert len({frame.tobytes() for frame in shown}) == len(shown)  # the caption counts
    assert serial.render_fps == 25


def test_captions_are_below_an_enlarged_frame() -> None:
    frame = np.zeros((30, 40, 3), np.uint8)
    frame[0, 0] = (1, 2, 3)
    captioned_frame = add_caption(frame, ("step 1", "reward 0"))
    assert captioned_frame.shape == (30 * 8 + 46, 320, 3)
    assert (captioned_frame[:8, :8] == (1, 2, 3)).all() and (captioned_frame[:240, 8:] == 0).all()
    assert has(captioned_frame[240:], (255, 255, 255))
    large = np.zeros((500, 600, 3), np.uint8)
    assert add_caption(large, ("a",)).shape == (526, 600, 3)


def test_frames_of_a_maze() -> None:
    mazes = TMazeVectorEnv(4, horizon=5)
    mazes.reset(seed=0)
    start = mazes.render()
    assert len(start) == 4 and all(has(each, GOAL) and has(each, AGENT) and has(each, HINT) for each in start)
    up, down = (int(np.flatnonzero(mazes.goal == goal)[0]) for goal in (1, -1))
    height = start[0].shape[0]
    assert has(start[up][: height // 2], GOAL) and not has(start[up][height // 2 :], GOAL)
    assert has(start[down][height // 2 :], GOAL) and not has(start[down][: height // 2], GOAL)
    mazes.step(np.zeros(4, np.int64))
    moved = mazes.render()
    assert not any(has(each, HINT) for each in moved)
    column = [int(np.flatnonzero((each[0] == AGENT).all(-1).any(0)).mean()) for each in (start, moved)]
    assert column[1] > column[0]


def test_frames_of_a_room() -> None:
    rooms = DarkKeyToDoorVectorEnv(3, size=4)
    rooms.reset(seed=2)
    rooms.start[:], rooms.key[:], rooms.door[:] = 0, 1, 15
    rooms.reset(options={"new_task": False})
    before = rooms.render()[0]
    for color in (AGENT, HINT, GOAL, FLOOR):
        assert has(before, color)
    rooms.step(np.full(3, 2))  # y + 1: the key's cell
    after = rooms.render()[0]
    assert not has(after, HINT) and has(after, GOAL) and has(after, AGENT)


def test_frames_of_a_long_corridor_have_a_maximum_width() -> None:
    mazes = TMazeVectorEnv(1, horizon=2000)
    mazes.reset(seed=0)
    assert mazes.render()[0].shape == (5, 2003, 3)


# files


@pytest.mark.parametrize(
    ("recipe", "env", "trials", "num_frames"),
    [
        ("passive-tmaze", {"horizon": 3}, 1, 5),
        ("passive-tmaze", {"horizon": 3}, 2, 10),
        ("gymnasium", {"id": "yamame/PassiveTMaze-v0", "horizon": 5}, 1, 6),
    ],
)
def test_gif(tmp_path: Path, recipe: str, env: dict[str, Any], trials: int, num_frames: int) -> None:
    run, video = made(recipe, tmp_path / "run", env), tmp_path / "video.gif"
    record_video(load_trained_run(run), video, trials=trials)
    with Image.open(video) as image:
        frames = [np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(image)]
    assert len(frames) == num_frames
    assert len({frame.tobytes() for frame in frames}) == num_frames
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "video.gif"]
    before = video.read_bytes()
    record_video(load_trained_run(run), video, trials=trials)
    assert video.read_bytes() == before


def test_mp4_of_a_room_with_attempts(tmp_path: Path) -> None:
    import imageio_ffmpeg

    run = made("dark-key-to-door", tmp_path / "run", {"size": 3, "horizon": 12, "attempt_length": 4})
    record_video(load_trained_run(run), tmp_path / "video.mp4")
    frames, seconds = imageio_ffmpeg.count_frames_and_secs(tmp_path / "video.mp4")
    assert frames >= 15 and seconds == pytest.approx(frames / 10, abs=0.2)  # 12 steps, 3 or more first observations


def test_cart_pole_is_drawn_by_gymnasium(tmp_path: Path) -> None:
    plain = GymnasiumConfig(id="CartPole-v1", horizon=500).build_for_rendering(0)
    plain.reset()
    assert isinstance(plain, TrialWrapper)
    assert plain.env.render().shape == (400, 600, 3)  # type: ignore[attr-defined]
    plain.close()


# what cannot be


def test_files_that_cannot_be_written_are_early_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, message in (
        ("video.avi", "must end in"),
        ("video", "must end in"),
        ("x/video.gif", "existing directory"),
    ):
        with pytest.raises(UserError, match=message):
            validate_video_path(tmp_path / name)
    validate_video_path(tmp_path / "video.mp4")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'yamame\[video\]'"):
        validate_video_path(tmp_path / "video.mp4")


class Blank(Traffic):
    def render(self) -> Any:
        return None


class Unseen(Traffic):
    def render(self) -> Any:
        raise NotImplementedError


class Unmade(Traffic):
    def render(self) -> Any:
        raise AssertionError  # as Gymnasium's CartPole does when it was not made by `gymnasium.make`


@pytest.mark.parametrize("kind", [Blank, Unseen, Unmade])
def test_environments_without_frames(kind: type[gymnasium.Env[Any, Any]], tmp_path: Path) -> None:
    serial = SerialVectorEnv([kind()], 0)
    with (
        pytest.raises(UserError, match="cannot be recorded") as error,
        open_video(tmp_path / "video.gif", 10.0) as video,
    ):
        VideoRecorder(serial, video.add, trials=1).reset(np.ones(1, bool), np.ones(1, bool))
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


# instructions


def test_the_caption_has_the_progress_of_the_instruction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = made("package-delivery", tmp_path / "run", {"horizon": 8})
    said: list[str] = []

    def heard(frame: np.ndarray, lines: tuple[str, ...]) -> np.ndarray:
        said.append(lines[2])
        return frame

    monkeypatch.setattr("yamame.envs.wrappers.video_recorder.add_caption", heard)
    evaluation = record_video(load_trained_run(run), tmp_path / "video.gif")
    assert evaluation.trials == 1 and len(said) == 9
    assert re.fullmatch(r"0 done; now \(\d+\)(, then \(\d+\))+", said[0])


def test_instructions_are_refused_where_there_are_none(tmp_path: Path) -> None:
    corridor = made("passive-tmaze", tmp_path / "corridor", {"horizon": 3})
    road = made("package-delivery", tmp_path / "road", {"horizon": 8})
    with pytest.raises(UserError, match="has no instructions"):
        record_video(load_trained_run(corridor), tmp_path / "video.gif", instruction="turn left")
    with pytest.raises(UserError, match="leave --instruction out"):
        record_video(load_trained_run(road), tmp_path / "video.gif", instruction="4, 9")
    assert not (tmp_path / "video.gif").exists()


def test_play_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = made("package-delivery", tmp_path / "run", {"horizon": 8})
    video = tmp_path / "video.gif"
    assert main(["play", str(run), "--output", str(video), "--trials", "2", "--json"]) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said["video"] == str(video) and len(said["returns"]) == 2
    with Image.open(video) as frames:
        assert frames.n_frames == 18  # type: ignore[attr-defined]
    assert main(["play", str(run), "--output", str(video), "--instruction", "4, 9"]) == 2
    assert main(["play", str(run)]) == 2
    assert "--output" in capsys.readouterr().err


def test_crafter_accepts_instructions_as_text(tmp_path: Path) -> None:
    pytest.importorskip("crafter")
    run = load_trained_run(made("crafter", tmp_path / "run", {"horizon": 10, "num_workers": 0}))
    evaluation = record_video(run, tmp_path / "video.gif", instruction="Collect some wood, travel to (30, 30)")
    assert evaluation.trials == 1 and evaluation.success_rate is not None
    evaluated = run.evaluate(trials=2, seed=0, instruction="travel to (30, 30)")
    assert evaluated["trials"] == 2
    with pytest.raises(UserError, match="did you mean 'wood'"):
        run.evaluate(trials=2, seed=0, instruction="collect woood")
