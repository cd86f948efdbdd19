"""Environments continue from the state of others of their kind; those without a state are an error."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from yamame.data.actions import action_shape
from yamame.envs.bandit import BanditConfig
from yamame.envs.base import TrialVectorEnv
from yamame.envs.config import EnvConfig
from yamame.envs.dark_key_to_door import DarkKeyToDoorConfig
from yamame.envs.endless_tmaze import EndlessTMazeConfig
from yamame.envs.env_fn import EnvFnConfig
from yamame.envs.gridnavi import GridNaviConfig
from yamame.envs.gymnasium import GymnasiumConfig
from yamame.envs.maze_runner import MazeRunnerConfig
from yamame.envs.package_delivery import PackageDeliveryConfig
from yamame.envs.rooms import RoomsConfig
from yamame.envs.tmaze import ActiveTMazeConfig, PassiveTMazeConfig
from yamame.envs.vector.numpy_env import parse_reset_options
from yamame.envs.wind import WindConfig
from yamame.types import Stateful

NUM_ENVS = 6


class DiceVectorEnv(VectorEnv):
    """A user's vector environment with a state: each step shows a die, each episode lasts for five."""

    def __init__(self, num_envs: int) -> None:
        self.metadata = {"autoreset_mode": AutoresetMode.DISABLED}
        self.num_envs = num_envs
        self.single_observation_space = spaces.Box(0, 6, (1,), np.float32)
        self.single_action_space = spaces.Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.time = [0] * num_envs

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        rows, _ = parse_reset_options(options, np.ones(self.num_envs, np.bool_))
        self.time = [0 if reset else time for time, reset in zip(self.time, rows, strict=True)]
        return self._throw(), {}

    def step(self, actions: np.ndarray) -> tuple[Any, ...]:
        self.time = [time + 1 for time in self.time]
        ended = np.array(self.time) >= 5
        return self._throw(), actions.astype(np.float64), ended, np.zeros_like(ended), {}

    def state_dict(self) -> dict[str, Any]:
        return {"time": list(self.time), "rng": self.np_random.bit_generator.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.time = list(state["time"])
        self.np_random.bit_generator.state = state["rng"]

    def _throw(self) -> np.ndarray:
        return self.np_random.integers(1, 7, (self.num_envs, 1)).astype(np.float32)


class SilentDiceVectorEnv(DiceVectorEnv):
    """The same, which does not say."""

    state_dict = None  # type: ignore[assignment]
    load_state_dict = None  # type: ignore[assignment]


TASKS: list[EnvConfig] = [
    PassiveTMazeConfig(horizon=7),
    ActiveTMazeConfig(horizon=7),
    EndlessTMazeConfig(corridor_length=2, corridors=3),
    DarkKeyToDoorConfig(size=4, horizon=30, attempt_length=8),
    BanditConfig(pulls=7),
    GridNaviConfig(attempts=2, attempt_length=6),
    RoomsConfig(attempts=2, attempt_length=6),
    WindConfig(horizon=9),
    PackageDeliveryConfig(horizon=20),
    MazeRunnerConfig(horizon=20, rewired=True),
    MazeRunnerConfig(horizon=20, actions="continuous", position=False),
    EnvFnConfig(env_fn=partial(DiceVectorEnv, NUM_ENVS), horizon=5, vector_size=NUM_ENVS),
]


def seen(trials: TrialVectorEnv, actions: np.ndarray) -> list[bytes]:
    """All results of some actions."""
    results = []
    for action in actions:
        step = trials.step(action)
        results.append(step.reward.tobytes() + step.terminated.tobytes() + step.truncated.tobytes())
        results += [leaf.tobytes() for leaf in (*step.observation.values(), *step.final_observation.values())]
        if step.goals is not None:
            results += [step.goals.achieved.tobytes(), step.goals.instruction.tobytes()]
    return results


def random_actions(trials: TrialVectorEnv, count: int) -> np.ndarray:
    rng, shape = np.random.default_rng(3), (count, NUM_ENVS, *action_shape(trials.action_space))
    if isinstance(trials.action_space, spaces.Discrete):
        return rng.integers(trials.action_space.n, size=shape)
    return rng.uniform(-1.0, 1.0, shape).astype(np.float32)


@pytest.mark.parametrize("config", TASKS, ids=lambda config: config.task_name)
@pytest.mark.parametrize("steps", [0, 1, 13, 50])
def test_a_new_object_continues_from_the_saved_state(config: EnvConfig, steps: int) -> None:
    one, other = config.build(NUM_ENVS, seed=1), config.build(NUM_ENVS, seed=2)
    assert isinstance(one, Stateful) and isinstance(other, Stateful)
    actions = random_actions(one, steps + 60)
    one.reset()
    seen(one, actions[:steps])
    state = one.state_dict()
    assert state is not None
    expected = seen(one, actions[steps:])
    other.load_state_dict(state)
    assert seen(other, actions[steps:]) == expected
    other.load_state_dict(state)  # which going on has not changed
    assert seen(other, actions[steps:]) == expected


@pytest.mark.parametrize(
    "make",
    [
        lambda: GymnasiumConfig(id="CartPole-v1", horizon=20),
        lambda: EnvFnConfig(env_fn=partial(SilentDiceVectorEnv, NUM_ENVS), horizon=5, vector_size=NUM_ENVS),
    ],
)
def test_what_cannot_say_where_it_stands_says_so(make: Callable[[], EnvConfig]) -> None:
    trials = make().build(NUM_ENVS, seed=1)
    trials.reset()
    assert isinstance(trials, Stateful) and trials.state_dict() is None
