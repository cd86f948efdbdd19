"""Recordings of real runs: what happened, what it looked like, and that nothing is refused with more than a line."""

import io
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from PIL import Image
from tiny import TINY_NETWORK

from yamame.envs.rendering import AGENT
from yamame.envs.vector.serial import SerialVectorEnv
from yamame.envs.wrappers.trials import TrialWrapper
from yamame.errors import UserError
from yamame.recipes import config_from_overrides, load_recipe
from yamame.tools.trial_recording import FrameRecorder, describe_observation, encode_png, record_trial
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


def made(recipe: str, run: Path, env: dict[str, Any]) -> Path:
    config = config_from_overrides(load_recipe(recipe), [], {**TINY, "env": env})
    train_run(config, RunMetadata(recipe=recipe), run_dir=run, quiet=True)
    return run


def pixels(frame: bytes | None) -> np.ndarray:
    assert frame is not None
    with Image.open(io.BytesIO(frame)) as image:
        return np.asarray(image.convert("RGB"))


def test_attempts_in_a_room(tmp_path: Path) -> None:
    run = made("dark-key-to-door", tmp_path / "run", {"size": 4, "horizon": 12, "attempt_length": 5})
    recording = record_trial(load_trained_run(run), seed=3)
    assert len(recording) == 12 and len(recording.frames) == len(recording.observation_texts) == 13
    assert recording.attempt.tolist() == np.cumsum(recording.trajectory.episode_start).tolist()
    assert set(recording.attempt_end_frames) == set((np.flatnonzero(recording.trajectory.episode_start[1:12])).tolist())
    for moment, frame in enumerate(recording.frames):
        rows, columns = np.nonzero((pixels(frame) == AGENT).all(-1))
        x, y = (recording.trajectory.observation["observation"][moment, :2] * 4).round()
        assert int(columns.mean() // 64) == x and int((256 - rows.mean()) // 64) == y
    assert recording.action_names == ("down", "left", "up", "right", "stay")
    assert recording.sub_goals == () and not recording.goals_completed.any() and not recording.truncated
    again = record_trial(load_trained_run(run), seed=3)
    np.testing.assert_array_equal(again.trajectory.action, recording.trajectory.action)
    assert again.frames == recording.frames
    assert record_trial(load_trained_run(run), seed=3, frames=False).frames == (None,) * 13


def test_a_recording_is_the_trial_that_an_evaluation_sees(tmp_path: Path) -> None:
    run = made("passive-tmaze", tmp_path / "run", {"horizon": 3})
    trained = load_trained_run(run)
    recording = record_trial(trained)
    assert recording.deterministic
    assert recording.trajectory.reward.sum() == pytest.approx(trained.evaluate(trials=1, seed=None)["return_mean"])
    assert recording.analysis.q_TG.shape[0] == 4 and recording.task == "passive-tmaze-3"
    assert not record_trial(trained, deterministic=False).deterministic


def test_instructions_and_sub_goals(tmp_path: Path) -> None:
    run = made("package-delivery", tmp_path / "run", {"horizon": 30})
    recording = record_trial(load_trained_run(run), seed=1)
    assert recording.sub_goals and all(text.startswith("(") for text in recording.sub_goals)
    assert recording.goals_completed[0] == 0 and (np.diff(recording.goals_completed) >= 0).all()
    assert recording.goals_completed[-1] == recording.trajectory.reward.sum()
    assert recording.action_names[:4] == ("forward", "left", "right", "drop 1")
    with pytest.raises(UserError, match="leave --instruction out"):
        record_trial(load_trained_run(run), instruction="4, 9")
    with pytest.raises(UserError, match="has no instructions"):
        record_trial(load_trained_run(made("passive-tmaze", tmp_path / "maze", {"horizon": 3})), instruction="left")


def test_long_trials_are_cut(tmp_path: Path) -> None:
    run = made("wind", tmp_path / "run", {"horizon": 20})
    whole, recording = record_trial(load_trained_run(run)), record_trial(load_trained_run(run), max_length=7)
    assert recording.truncated and not whole.truncated and (len(recording), len(whole)) == (7, 20)
    np.testing.assert_allclose(recording.trajectory.action, whole.trajectory.action[:7])
    np.testing.assert_allclose(recording.analysis.q_TG, whole.analysis.q_TG[:7], atol=1e-5)
    assert recording.analysis.action_distributions.mean_TA is not None
    assert recording.analysis.action_distributions.mean_TA.shape == (8, 2)
    with pytest.raises(UserError, match="at least 1"):
        record_trial(load_trained_run(run), max_length=0)
    with pytest.raises(UserError, match="at least 0"):
        record_trial(load_trained_run(run), seed=-1)
    with pytest.raises(UserError, match="not an intact checkpoint"):
        load_trained_run(run, str(tmp_path / "nothing"))


@pytest.mark.parametrize(
    ("package", "recipe", "env"),
    [("crafter", "crafter", {"num_workers": 0}), ("minigrid", "minigrid", {"num_workers": 0})],
)
def test_actions_of_others_have_their_names(package: str, recipe: str, env: dict[str, Any]) -> None:
    pytest.importorskip(package)
    config = config_from_overrides(load_recipe(recipe), [], {"env": env})
    with closing(config.env.build(1, 0)) as environments:
        assert len(config.env.action_names) == environments.action_space.n  # type: ignore[union-attr]


class Counter(gymnasium.Env[np.ndarray, int]):
    """Shows its step; episodes of three steps; cannot be drawn with `drawn=False`."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, *, drawn: bool) -> None:
        self.drawn, self.time = drawn, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> Any:
        self.time += 1
        return np.zeros(1, np.float32), 1.0, self.time == 3, False, {}

    def render(self) -> Any:
        return np.full((4, 6, 3), 50 * self.time, np.uint8) if self.drawn else None


def test_pictures_of_moments_and_of_ends() -> None:
    kept = FrameRecorder(SerialVectorEnv([Counter(drawn=True)], 0))
    trials = TrialWrapper(kept, horizon=8, attempts=None)
    trials.reset()
    for _ in range(10):
        trials.step(np.zeros(1, np.int64))
    assert [pixels(frame)[0, 0, 0] // 50 for frame in kept.frames] == [0, 1, 2, 0, 1, 2, 0, 1, 2]
    assert {step: pixels(frame)[0, 0, 0] // 50 for step, frame in kept.attempt_end_frames.items()} == {2: 3, 5: 3}


def test_an_environment_without_pictures_has_none() -> None:
    kept = FrameRecorder(SerialVectorEnv([Counter(drawn=False)], 0))
    trials = TrialWrapper(kept, horizon=4, attempts=1)
    trials.reset()
    for _ in range(3):
        trials.step(np.zeros(1, np.int64))
    assert kept.frames == [None] * 4 and not kept.attempt_end_frames


def test_pictures_keep_their_pixels() -> None:
    few = np.zeros((5, 7, 3), np.uint8)
    few[2, 3] = (1, 200, 3)
    many = np.random.default_rng(0).integers(0, 255, (40, 50, 3), np.uint8)
    for image in (few, many):
        np.testing.assert_array_equal(pixels(encode_png(image)), image)


def test_observations_in_a_few_words() -> None:
    observation = {"here": np.array([1.5, -2.0]), "sight": np.zeros((8, 8, 3), np.uint8), "level": np.array(4)}
    assert describe_observation(observation) == "here [1.5, -2]   sight 8 × 8 × 3 numbers from 0 to 0   level 4"
    assert describe_observation({"observation": np.array([0.25])}) == "[0.25]"
    assert describe_observation({"observation": np.arange(3)[2]}) == "2"  # a Discrete leaf at one timestep
