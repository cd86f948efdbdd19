"""Images of active trials are compressed as they come, and come back as they were."""

from contextlib import closing
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from yamame.collect.collector import Collector, RandomPolicy
from yamame.collect.exploration import Explorer, NoExploration
from yamame.collect.frame_buffer import FrameBuffer
from yamame.data.codec import decode, encode
from yamame.data.trajectory import CHUNK_TIMESTEPS, CompressedFrames, Trajectory
from yamame.envs.env_fn import EnvFnConfig

LENGTHS = (CHUNK_TIMESTEPS - 1, CHUNK_TIMESTEPS, 3 * CHUNK_TIMESTEPS + 5)


class Numbered(gymnasium.Env[Any, Any]):
    """Every image shows the step of its episode; episodes have the lengths of `LENGTHS` in turn."""

    action_space = spaces.Discrete(2)

    def __init__(self, image: spaces.Box) -> None:
        self.observation_space = spaces.Dict(image=image, step=spaces.Box(0, 1000, (1,)))
        self.episode, self.frame = 0, np.zeros(image.shape, image.dtype)

    def observe(self) -> dict[str, Any]:
        self.frame[...] = self.steps % 200  # the array of all steps
        return {"image": self.frame, "step": np.array([self.steps], np.float32)}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.episode, self.steps = self.episode + 1, 0
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self.observe(), 1.0, self.steps == LENGTHS[self.episode % len(LENGTHS)], False, {}


def collector(dtype: Any) -> Collector:
    image = spaces.Box(0, 1 if dtype is np.bool_ else 255, (26, 27, 3), dtype)
    envs = EnvFnConfig(env_fn=lambda: Numbered(image), horizon=300).build(2, 0)
    return Collector(envs, "", Explorer(NoExploration(), envs.action_space, 2, np.random.default_rng(0)))


def play(made: Collector, steps: int) -> list[Trajectory]:
    policy = RandomPolicy(made.environments.action_space, np.random.default_rng(0))
    return [trial for _ in range(steps) for _, trial in made.step(policy, deterministic=False)]


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.int16, np.bool_])
def test_trials_of_any_length_come_back(dtype: Any) -> None:
    with closing(collector(dtype)) as made:
        trials = play(made, 2 * sum(LENGTHS))
    assert len(trials) == 2 * 2 * len(LENGTHS) and {len(trial) for trial in trials} == set(LENGTHS)
    for trial in trials:
        stored = np.uint8 if dtype == np.uint8 else np.bool_ if dtype == np.bool_ else np.float32
        assert bool(trial.lazy_observation) is (len(trial) >= CHUNK_TIMESTEPS)
        step = (trial.observation["step"][:, 0] % 200).astype(stored)
        for read in (trial, decode(encode(trial)), decode(encode(trial), lazy=True)):
            image = read.read_observation("image", 0, len(trial) + 1)
            assert image.dtype == stored and image.shape == (len(trial) + 1, 26, 27, 3)
            np.testing.assert_array_equal(image, np.broadcast_to(step[:, None, None, None], image.shape))


def test_memory_of_trials_in_flight_is_that_of_their_chunks() -> None:
    frames = FrameBuffer()
    for _ in range(10 * CHUNK_TIMESTEPS):
        frames.write(np.zeros((2, 64, 64, 3), np.uint8))
        frames.keep(np.ones(2, np.bool_))
    assert frames.state_dict()["chunks"].nbytes < 64 * 64 * 3


def test_a_row_that_is_not_kept_is_replaced_and_a_cut_trial_ends_with_it() -> None:
    frames = FrameBuffer()
    for number in range(2 * CHUNK_TIMESTEPS + 3):
        frames.write(np.full((2, 50, 50), number, np.uint8))
        frames.keep(np.array([True, number % 2 == 0]))
    last = np.full((50, 50), 255, np.uint8)
    expected = {0: [*range(2 * CHUNK_TIMESTEPS + 3), 255], 1: [*range(0, 2 * CHUNK_TIMESTEPS + 3, 2), 255]}
    for env, numbers in expected.items():
        found = frames.read(env, last)
        assert isinstance(found, CompressedFrames)
        assert found.read(0, found.shape[0])[:, 0, 0].tolist() == numbers
    frames.write(np.full((2, 50, 50), 99, np.uint8))
    cut = frames.read(1, None)
    assert isinstance(cut, CompressedFrames) and cut.read(0, cut.shape[0])[-2:, 0, 0].tolist() == [130, 99]
    frames.clear(np.array([True, False]))
    frames.write(np.full((2, 50, 50), 7, np.uint8))
    short = frames.read(0, last)
    assert isinstance(short, np.ndarray) and short[:, 0, 0].tolist() == [255]


def test_state_continues_in_another_buffer() -> None:
    first, second = FrameBuffer(), FrameBuffer()
    for number in range(100):
        first.write(np.full((2, 50, 50), number, np.uint8))
        first.keep(np.array([True, number < 70]))
    second.load_state_dict(first.state_dict())
    for env in range(2):
        ones, others = (buffer.read(env, np.zeros((50, 50), np.uint8)) for buffer in (first, second))
        assert isinstance(ones, CompressedFrames) and ones == others
    empty = FrameBuffer()
    empty.load_state_dict(FrameBuffer().state_dict())
    empty.write(np.zeros((3, 50, 50), np.uint8))


def test_state_of_an_earlier_version_has_images_among_the_rows() -> None:
    with closing(collector(np.uint8)) as made:
        play(made, 150)
        rows, columns = [], dict(made._observations.state_dict(made._row, made._first_row_E))
        first = columns["first_row"]
        for row in range(first, made._row):
            steps = [made._observations.read("step", env, row, row + 1)[0, 0] for env in range(2)]
            rows.append(np.stack([np.full((26, 27, 3), step % 200, np.uint8) for step in steps]))
        transitions = made._transitions.state_dict(made._row, made._first_row_E)
        saved = {**columns, "columns": {**columns["columns"], "image": np.stack(rows)}}
        before = {env: made._frames["image"].read(env, np.zeros((26, 27, 3), np.uint8)) for env in range(2)}
        made._frames = {}
        others = made._take_frames(saved, transitions["columns"]["is_transition"])
        assert list(others["columns"]) == ["step"]
        for env, expected in before.items():
            assert made._frames["image"].read(env, np.zeros((26, 27, 3), np.uint8)) == expected
