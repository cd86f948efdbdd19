"""Observations that are not in their space end a run, in one line, wherever they are collected."""

from functools import partial
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from yamame.envs.env_fn import EnvFnConfig
from yamame.envs.vector.gymnasium_adapter import GymnasiumVectorAdapter
from yamame.envs.vector.subproc import SubprocVectorEnv
from yamame.envs.wrappers.restarting import RestartingVectorEnv
from yamame.errors import UserError

EVERY = np.ones(2, np.bool_)


class Match(gymnasium.Env[Any, Any]):
    """Repeats a bit. 2: the end of a failure; `end`: of a success, at step `length`."""

    observation_space: Any = spaces.Discrete(3)
    action_space = spaces.Discrete(2)

    def __init__(self, end: Any = 3, space: Any = observation_space, length: int = 2) -> None:
        self.end, self.observation_space, self.length = end, space, length

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        self.observation_space.seed(0)
        self.valid = self.observation_space.sample()
        return self.valid, {}

    def step(self, action: int) -> Any:
        self.time += 1
        done = self.time == self.length
        return self.end if done and action else self.valid, float(action), done, False, {}


MESSAGE = (
    "environment 1 at step 2 of its episode: observation 'observation' is 3, which is not in Discrete(3): declare the "
    "observation space as it is, at the end of episodes too, or clean the output with a wrapper"
)


def build(kind: str, make: Any) -> Any:
    match kind:
        case "serial":
            return EnvFnConfig(env_fn=make, horizon=9, num_workers=0).build(2, 0)
        case "workers":
            return SubprocVectorEnv(make, 2, 0, 2)
        case "async":
            return RestartingVectorEnv(partial(GymnasiumVectorAdapter, AsyncVectorEnv([make] * 2)), 0)
        case "same-step":
            envs = SyncVectorEnv([make] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
            return RestartingVectorEnv(partial(GymnasiumVectorAdapter, envs), 0)
    mode = AutoresetMode.DISABLED if kind == "disabled" else AutoresetMode.NEXT_STEP
    return RestartingVectorEnv(partial(GymnasiumVectorAdapter, SyncVectorEnv([make] * 2, autoreset_mode=mode)), 0)


@pytest.mark.parametrize("kind", ["serial", "workers", "async", "same-step", "disabled", "next-step"])
def test_the_end_of_a_success_is_not_in_the_space(kind: str) -> None:
    envs = build(kind, Match)
    envs.reset() if kind == "serial" else envs.reset(EVERY, EVERY)
    envs.step(np.zeros(2, np.int64))
    with pytest.raises(UserError) as error:
        envs.step(np.array([0, 1]))
    assert str(error.value) == MESSAGE
    envs.close()


@pytest.mark.parametrize(
    ("space", "end", "message"),
    [
        (spaces.Discrete(3, start=1), 0, "is 0, which is not in Discrete(3, start=1)"),
        (spaces.MultiDiscrete([3, 3]), np.array([3, 0]), "is 3 at [0], which is not in MultiDiscrete([3 3])"),
        (spaces.MultiBinary(2), np.array([0, 2]), "is 2 at [1], which is not in MultiBinary(2)"),
        (spaces.Text(2), "won", "has 3 characters, its space allows 2"),
        (spaces.Box(0, 1, (2,)), np.zeros(3), "has shape (3,), expected (2,) by its space"),
        (spaces.Box(0, 1, (2,)), None, "is None, which is not in Box(0.0, 1.0, (2,), float32)"),
        (spaces.Box(0, 255, (2,), np.uint8), np.full(2, -1), "is -1 at [0], which is not in Box(0, 255, (2,), uint8)"),
        (
            spaces.Box(0, 1, (2,)),
            np.array([0.0, 3.4e38]),
            "is 3.4e+38 at [1] of Box(0.0, 1.0, (2,), float32), expected magnitudes below 1e+30",
        ),
    ],
)
def test_every_kind_of_space(space: Any, end: Any, message: str) -> None:
    envs = EnvFnConfig(env_fn=partial(Match, end, space), horizon=9, num_workers=0).build(2, 0)
    envs.reset()
    envs.step(np.ones(2, np.int64))
    with pytest.raises(UserError) as error:
        envs.step(np.ones(2, np.int64))
    assert f"environment 0 at step 2 of its episode: observation 'observation' {message}" in str(error.value)
    assert "\n" not in str(error.value) and not any(word in str(error.value) for word in ("disk", "corrupt"))


def test_a_number_beyond_the_bounds_of_a_box_is_taken() -> None:
    envs = EnvFnConfig(
        env_fn=partial(Match, np.array([1.5, -4.0]), spaces.Box(0, 1, (2,))), horizon=9, num_workers=0
    ).build(2, 0)
    envs.reset()
    envs.step(np.ones(2, np.int64))
    assert envs.step(np.ones(2, np.int64)).final_observation["observation"].tolist() == [[1.5, -4.0]] * 2


class Rows(VectorEnv[Any, Any, Any]):
    """Two environments that reset by mask; what a reset returns for the other row is no observation."""

    num_envs = 2
    single_observation_space = spaces.Discrete(3, start=1)
    single_action_space = spaces.Discrete(2)
    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.DISABLED}

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        mask = np.broadcast_to((options or {}).get("reset_mask", True), 2)
        return np.where(mask, 1, 0), {}

    def step(self, actions: np.ndarray) -> Any:
        no = np.zeros(2, np.bool_)
        return np.full(2, 3) if actions[0] == 0 else np.array([3, 4]), np.ones(2), no, no, {}


def test_rows_that_a_reset_leaves_out_are_not_checked() -> None:
    envs = GymnasiumVectorAdapter(Rows(), 0)
    envs.reset(EVERY, EVERY)
    envs.step(np.zeros(2, np.int64))
    first = np.array([True, False])
    assert envs.reset(first, first)["observation"].tolist() == [0, 2]
    with pytest.raises(UserError, match=r"environment 1 at step 2 .* is 4, which is not in Discrete"):
        envs.step(np.ones(2, np.int64))
